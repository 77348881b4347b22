"""Clocks of a pipeline: no collective ties its hosts, only messages in both directions."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.analysis.cross.clocks import fit_clocks
from diagnose.analysis.cross.message_clocks import DELAY_SCHEMA, message_delays, tie_clocks

HOSTS = {rank: f"node{rank}" for rank in range(4)}
MS = 1_000_000


def messages(offset_ns: dict[int, int], transfer_ns: int = MS // 5, back: bool = True) -> pl.DataFrame:
    """Twenty messages over each link, the receiver waiting for each: activations forward, gradients back."""
    rows = []
    for count in range(20):
        for left in range(3):
            for src, dst in ((left, left + 1), (left + 1, left))[: 2 if back else 1]:
                begin = 100 * MS * count + 10 * MS * src
                ends = ((src, "send", begin), (dst, "recv", begin - 5 * MS))
                rows += [
                    {"instance": len(rows) // 2, "rank": rank, "collective": kind, "size": 2,
                     "start_ns": start + offset_ns.get(rank, 0), "dur_ns": begin + transfer_ns - start}
                    for rank, kind, start in ends
                ]  # fmt: skip
    return pl.DataFrame(rows)


def tied(members: pl.DataFrame):
    return tie_clocks(fit_clocks(members, HOSTS), message_delays(members), HOSTS)


@pytest.mark.parametrize("shift", [37_500_000, -3_000_000_000])
def test_a_shifted_host_of_a_pipeline_is_found(shift):
    found = tied(messages({1: shift, 2: 20_000_000}))

    assert found.offset["node0"][0] == found.offset["node3"][0] == 0
    assert found.offset["node1"][0] == pytest.approx(shift, abs=1000)
    assert found.offset["node2"][0] == pytest.approx(20_000_000, abs=1000)
    assert found.table.get_column("component").n_unique() == 1
    assert found.table.get_column("offset_ns").to_list() == [round(found.offset[host][0]) for host in HOSTS.values()]
    assert found.table.get_column("residual_ns").to_list() == [MS // 5] * 4


def test_clocks_that_may_agree_are_left_alone_over_a_slow_link():
    found = tied(messages({2: 3_000_000}, transfer_ns=40 * MS))

    assert {offset for offset, _ in found.offset.values()} == {0.0}


def test_one_direction_corrects_what_is_impossible_only():
    assert tied(messages({3: 50 * MS}, back=False)).offset["node3"][0] == 0

    found = tied(messages({3: -50 * MS}, back=False))

    assert found.offset["node3"][0] == pytest.approx(-50 * MS, abs=MS)
    assert found.table.get_column("residual_ns").to_list()[3] is None


def test_a_few_wrong_matches_move_nothing():
    members = messages({1: 40 * MS})
    wrong = (pl.col("instance") == 7) & (pl.col("collective") == "recv")

    found = tied(members.with_columns(pl.when(wrong).then(0).otherwise("dur_ns").alias("dur_ns")))

    assert found.offset["node1"][0] == pytest.approx(40 * MS, abs=MS)


def test_bounds_that_contradict_one_another_tie_nothing():
    delays = pl.DataFrame({"src": [0, 1], "dst": [1, 0], "delay_ns": [-40 * MS, 10 * MS]}, schema=DELAY_SCHEMA)
    alone = fit_clocks(messages({}), HOSTS)

    assert tie_clocks(alone, delays, HOSTS) == alone
