"""Counters, windows, peers, outliers, correlation: properties that must hold whatever the names are."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analysis.node_metrics.correlate import evidence_for, step_associations
from diagnose.analysis.node_metrics.counters import deltas, rates, summarise, with_order
from diagnose.analysis.node_metrics.outliers import find_outliers, host_matrix
from diagnose.analysis.node_metrics.peers import compare, is_fleet_wide
from diagnose.ingest.node_metrics.samples import SAMPLE_SCHEMA

SECOND = 10**9


def series(
    values,
    *,
    metric="nic.tx_bytes_total",
    host="n0",
    entity="nic:eth0",
    kind="counter",
    step=SECOND,
    quality="ok",
    source="f",
    format_="x",
):
    rows = [
        (metric, "bytes", kind, host, entity, n * step, value, "null" if value is None else quality, source, format_)
        for n, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=SAMPLE_SCHEMA, orient="row")


def test_a_fall_is_a_reset_and_counts_the_new_value():
    row = summarise(series([10, 25, 5, 8]), None).row(0, named=True)
    assert (row["increase"], row["resets"], row["samples"]) == (15 + 5 + 3, 1, 4)


def test_nulls_are_neither_zero_nor_resets():
    row = summarise(series([10, None, 30]), None).row(0, named=True)
    assert (row["increase"], row["nulls"], row["resets"], row["span_ns"]) == (20, 1, 0, 2 * SECOND)


def test_saturated_counters_give_no_increase():
    frame = series([250, 255, 255], metric="nic.link_downed_total").with_columns(
        pl.when(pl.col("value") == 255).then(pl.lit("saturated")).otherwise("quality").alias("quality")
    )
    row = summarise(frame, None).row(0, named=True)
    assert (row["increase"], row["saturated"], row["snapshot"]) == (None, 2, True)


def test_window_counts_are_summed():
    assert summarise(series([3, 4, 5], kind="window"), None).row(0, named=True)["increase"] == 12


def test_the_window_takes_the_intervals_that_touch_it():
    row = summarise(series([0, 1, 11, 111, 1111]), (int(1.5 * SECOND), int(2.5 * SECOND))).row(0, named=True)
    assert row["increase"] == 10 + 100
    assert row["in_window"]
    outside = summarise(series([0, 1, 11]), (100 * SECOND, 101 * SECOND)).row(0, named=True)
    assert (outside["increase"], outside["in_window"]) == (11, False)


def test_two_readers_of_one_series_are_not_mixed():
    scraped, queried = series([0, 100, 200], format_="a"), series([0, 90, 190, 290], format_="b")
    row = summarise(pl.concat([scraped, queried]), None).row(0, named=True)
    assert (row["increase"], row["resets"]) == (290, 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=30))
def test_increases_of_a_counter_are_never_negative(values):
    moved = deltas(with_order(series(values)))
    assert (moved.get_column("delta").drop_nulls() >= 0).all()
    assert rates(series(values)).get_column("rate").min() >= 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=20), st.randoms())
def test_order_of_rows_does_not_matter(values, random):
    frame = series(values)
    order = list(range(frame.height))
    random.shuffle(order)
    assert summarise(frame, None).equals(summarise(frame[order], None))


def test_peers_leave_the_subject_out():
    found = compare({"a": 10.0, "b": 10.0, "c": 10.0, "d": 5.0})
    assert found["d"].ratio == 0.5
    assert found["a"].peers_median == 10
    assert compare({"a": 1.0, "b": 9.0}) == {}
    assert is_fleet_wide(4, 4)
    assert not is_fleet_wide(1, 1)


def matrix(names, strange=None):
    rng = np.random.default_rng(3)
    rows = rng.normal([100, 5, 1e9], [1, 0.1, 1e7], size=(len(names), 3))
    if strange is not None:
        rows[strange] += [60, 3, 0]
    return pl.DataFrame({"host": names, "a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2]})


def test_outliers_are_found_and_survive_renaming():
    names = [f"n{i:02d}" for i in range(16)]
    found = find_outliers(matrix(names, 5))
    assert [item.host for item in found] == ["n05"]
    renamed = [f"z{99 - i}" for i in range(16)]
    again = find_outliers(matrix(renamed, 5))
    assert [item.host for item in again] == ["z94"]
    assert again[0].score == found[0].score
    assert find_outliers(matrix(names)) == []
    assert find_outliers(matrix(names[:4], 1)) == []


def test_host_matrix_keeps_modes_apart():
    frame = pl.concat(
        [
            series([0, n], metric="node.cpu_seconds_total", host=f"n{n}", entity=f"node/cpu:0/mode:{mode}")
            for n in range(3)
            for mode in ("idle", "steal")
        ]
    )
    assert host_matrix(summarise(frame, None)).columns == [
        "host",
        "node.cpu_seconds_total mode:idle",
        "node.cpu_seconds_total mode:steal",
    ]


SLOW = frozenset(n for n in range(600) if (n // 30) % 3 == 0)


def with_steps(ingest, slow):
    times = [0.2 + (0.3 if n in slow else 0) + 0.001 * (n % 5) for n in range(600)]
    ends = np.cumsum(times)
    log = pl.DataFrame(
        {
            "step": range(600),
            "t_ns": (ends * 1e9).astype(int),
            "step_time_ns": [int(t * 1e9) for t in times],
            "rank": [0] * 600,
            "restart": [0] * 600,
            "source": ["log"] * 600,
        }
    )
    return ingest.insert("training_log", log), ends


def test_association_names_the_metric_that_moves_with_the_steps(ingest):
    store, ends = with_steps(ingest, SLOW)
    seconds = int(ends[-1]) + 1
    busy = [np.searchsorted(ends, n + 0.5) in SLOW for n in range(seconds)]
    rng = np.random.default_rng(1)
    guilty = np.cumsum([1000 + 9000 * hit + rng.normal(0, 50) for hit in busy])
    store.insert("metric_sample", series(guilty.tolist(), host="n1"))
    for n in range(2, 12):
        store.insert("metric_sample", series(np.cumsum(rng.normal(1000, 50, seconds)).tolist(), host=f"n{n}"))
    found = step_associations(store.store, ["nic.tx_bytes_total"])
    assert [item.host for item in found] == ["n1"]
    assert found[0].correlation > 0.6
    assert found[0].q_value < 0.05


def test_what_gets_worse_with_the_steps_is_a_remark_and_what_follows_them_is_none(ingest):
    store, ends = with_steps(ingest, SLOW)
    seconds = int(ends[-1]) + 1
    busy = [np.searchsorted(ends, n + 0.5) in SLOW for n in range(seconds)]
    rng = np.random.default_rng(1)
    guilty = np.cumsum([10 + 900 * hit + rng.normal(0, 5) for hit in busy]).tolist()
    store.insert("metric_sample", series(guilty, host="n1", metric="nic.roce.cnp_handled_total"))
    better = np.cumsum([1000 - 900 * hit + rng.normal(0, 5) for hit in busy]).tolist()
    store.insert("metric_sample", series(better, host="n2", metric="nic.roce.cnp_handled_total"))
    store.insert("metric_sample", series(guilty, host="n3"))
    (found,) = [item for item in store.findings() if item.code == "HOST-MOVES-01"]
    assert (found.severity, found.hosts) == ("info", ("n1",))
    assert "n1 nic:eth0 nic.roce.cnp_handled_total" in found.message


def test_evidence_says_normal_and_says_absent(ingest):
    for n in range(4):
        ingest.insert("metric_sample", series([0, 1_000_000, 2_000_000], host=f"n{n}"))
    found = evidence_for(ingest.store, ["n1", "n9"], None)
    assert "counters look normal" in found["n1"][0].text
    assert "no GPU" in found["n1"][0].text
    assert "no node metrics" in found["n9"][0].text


def test_evidence_names_the_foreign_traffic(ingest):
    for n in range(4):
        ingest.insert("metric_sample", series([0, 5e6 * (1 + 4 * (n == 2))], host=f"n{n}"))
    found = evidence_for(ingest.store, ["n2"], None)["n2"]
    assert "nic:eth0: sent 25.0 MB/s" in found[0].text
    assert found[0].value == pytest.approx(25e6)
