"""A quick part of benchmarks/faults.py: one seed of every class on few ranks, and the same answer from trace files."""

from __future__ import annotations

import fault_scores as fs
import pytest
from fault_cases import DEVELOPMENT_SEEDS, SCORING_SEEDS, case, groups
from fault_run import record, simulated
from faults import options, report, run
from simulated import store_run
from simulator.kineto import write_traces

from diagnose.config import Config
from diagnose.findings.evaluate import evaluate
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.store.reader import Store

pytestmark = pytest.mark.slow

SEED = 41


@pytest.fixture(scope="module")
def records():
    assert SEED in DEVELOPMENT_SEEDS
    assert SEED not in SCORING_SEEDS
    return run(options(["--quick", "--seeds", str(SEED)]))


def test_healthy_runs_blame_nobody(records):
    for item in filter(fs.healthy, records):
        blamed = [
            one for one in item["said"]["findings"] if one["severity"] in fs.LOUD and (one["ranks"] or one["hosts"])
        ]
        assert blamed == [], item["group"]


def test_ranks_are_found(records):
    strong = [item for item in records if fs.healthy(item) or fs.effect(item) >= 0.03]

    right, wrong, missed = fs.rank_scores(strong, fs.named_ranks, fs.loud_ranks)

    assert right / (right + wrong) >= 0.95
    assert right / (right + missed) >= 0.90


def test_causes_are_named(records):
    large = [item for item in records if not fs.healthy(item) and fs.effect(item) >= fs.SMALL_EFFECT]

    _, right, total = fs.confusion(large)

    assert right / total >= 0.90


def test_the_network_is_blamed_only_where_it_blocks(records):
    for item in records:
        if item["true"]["expected"]["network_bound"] is False:
            assert item["said"]["network_bound"] is False, (item["group"], item["said"]["text"])


def test_clocks_bandwidth_and_what_if_are_right(records):
    clocks = [value for item in records for value in item["said"]["clock_error_ns"]]
    speeds = [one["found"] / one["true"] - 1 for item in records for one in item["said"]["bandwidth"]]

    assert fs.quantile(clocks, 0.95) <= 15_000
    assert fs.quantile(speeds, 0.5) <= 0.03
    assert fs.quantile(fs.what_if_errors(records), 0.9) <= 0.05


def test_twice_the_bandwidth_is_priced_or_left_open():
    priced, open_ = (record(case(group, SEED), wires=True) for group in ("21 slow network", "22 tiny buckets"))

    (error,) = fs.bandwidth_errors([priced])
    assert error == pytest.approx(0, abs=0.05)
    assert fs.bandwidth_errors([open_]) == [None]


def test_memory_that_slows_no_step_is_told_all_the_same():
    item = record(case("5 slow memory", SEED))

    assert [(one["code"], one["ranks"]) for one in item["said"]["findings"] if one["code"].startswith("RANK-")] == [
        ("RANK-MEMORY", item["true"]["faults"][0]["ranks"])
    ]


def test_compute_that_communication_slows_is_priced(records):
    (item,) = (one for one in records if one["group"] == "38 contention")

    found = [one for one in item["said"]["findings"] if one["code"] == "NET-CONTENTION"]
    assert [one["share"] for one in found] == [pytest.approx(fs.effect(item), rel=0.3)]


def test_the_report_has_every_class(records):
    text = report(records)

    assert all(f"| {item['group']} |" in text for item in records)


@pytest.mark.parametrize("group", ["4 slow GPU", "12 loader of one rank", "16 slow NIC"])
def test_trace_files_give_the_same_answer(group, tmp_path):
    chosen = case(next(name for name in groups() if name == group), SEED)
    made = simulated(chosen)
    write_traces(made.timeline, tmp_path / "traces", level=1)

    direct = store_run(made, tmp_path / "direct.duckdb", Config())
    read = build_run(
        [str(tmp_path / "traces")], tmp_path / "read.duckdb", Config(), RunOptions(name=made.name, jobs=1, keep="stats")
    )

    said = []
    for path in (direct, read):
        with Store(path) as store:
            result = evaluate(store, Config())
            said.append(
                [
                    (item.code, item.ranks, item.hosts, item.severity)
                    for item in result.findings
                    if item.code.startswith(("RANK", "NET", "PIPE"))
                ]
            )
    assert said[0] == said[1]


def test_scored_runs_know_what_is_true(records):
    items = [one for one in records if one["group"] in ("10 onset", "34 mixed GPUs", "35 waiting, not network")]

    assert items
    for item in items:
        assert item["true"]["faults"][0]["cause"] in ("gpu_slow", "mixed_hardware")
        assert item["true"]["mean_ns"] > item["true"]["mean_without_ns"]
