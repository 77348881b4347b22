"""Public bug reports as small inputs: each must give its right outcome through the installed command."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from bug_runs import CASES, Outcome, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"{CASES} is not here")

PARTS = {
    "span_us": "span_ns",
    "compute_busy_us": "compute_ns",
    "exposed_comm_us": "exposed_comm_ns",
    "mem_only_us": "exposed_memcpy_ns",
    "idle_us": "idle_ns",
    "overlap_comm_compute_us": "overlapped_comm_ns",
}
ONE_TRACE = {
    "01-no-distributed-info": "?", "03-no-profiler-step": "0", "04-windows-backslash": "?", "06-unquoted-na": "?", "09-bracket-in-trace-name": "0",
    "12-nccldevkernel-names": "0", "14-missing-categories": "0", "16-batched-p2p": "0", "17-ddp-views-empty": "0", "20-ts-zero-events": "?",
    "31-comm-sum-over-streams": "0", "35-rocm-stream-zero": "0", "37-overlapping-on-one-row": "0", "41-generic-rccl-names": "0",
}  # fmt: skip


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / case / "expect.json").read_text(encoding="utf-8"))["numbers"]
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcome]:
    """The outcome of a case; each is run once."""
    return cache(lambda case: diagnose(tmp_path_factory.mktemp(case), CASES / case))


@pytest.mark.parametrize("case", ONE_TRACE)
def test_the_split_is_right(run: Callable[[str], Outcome], case: str) -> None:
    outcome = run(case)
    assert outcome.code == 0, outcome.error
    numbers = next(value for value in expected(case).values() if isinstance(value, dict))
    found = outcome.split(ONE_TRACE[case])
    wanted = {ours: round(numbers[theirs] * 1000) for theirs, ours in PARTS.items() if theirs in numbers}
    assert {name: found[name] for name in wanted} == wanted
    if "comm_busy_us" in numbers:
        assert found["exposed_comm_ns"] + found["overlapped_comm_ns"] == round(numbers["comm_busy_us"] * 1000)


def test_a_trace_without_rank_is_analysed_as_the_only_one(run: Callable[[str], Outcome]) -> None:
    outcome = run("01-no-distributed-info")
    assert outcome.report["run"]["world_size"] is None
    assert outcome.report["run"]["ranks"] == []
    assert "rank is not in the file" in outcome.issues()["rank_not_in_file"]["example"]


def test_without_steps_the_whole_trace_is_given_and_steps_are_marked_unavailable(run: Callable[[str], Outcome]) -> None:
    outcome = run("03-no-profiler-step")
    assert outcome.report["step_time"]["per_step"] == []
    assert outcome.report["step_time"]["median_ns"] is None
    assert any("step" in item["question"] for item in outcome.report["not_checked"])


def test_repairs_are_noticed_and_names_stay_readable(run: Callable[[str], Outcome]) -> None:
    windows = run("04-windows-backslash")
    assert windows.issues()["backslash"]["severity"] == "info"
    assert windows.sources()["trace.json"]["status"] == "ok"
    bare = run("06-unquoted-na")
    assert bare.issues()["bare_word"]["count"] == 1
    assert "N/A is fine in a string" in bare.query("SELECT name FROM kernel")["name"].to_list()


def test_a_file_with_brackets_in_its_name_is_found(run: Callable[[str], Outcome]) -> None:
    assert [name for name in run("09-bracket-in-trace-name").sources() if "[Strategy]" in name]


def test_a_cut_file_is_marked_and_not_blamed(run: Callable[[str], Outcome]) -> None:
    outcome = run("10-truncated-json")
    numbers = expected("10-truncated-json")
    sources = outcome.sources()
    assert sources["rank0.json"]["status"] == "partial"
    assert sources["rank1.json"]["status"] == "ok"
    kernels = dict(outcome.query("SELECT rank, count(*) FROM kernel GROUP BY rank").iter_rows())
    assert kernels[0] >= numbers["rank0_kernels_at_least"]
    assert kernels[1] == numbers["rank1_kernels"]
    assert not [row for row in outcome.report["findings"] if 0 in row["ranks"] and row["severity"] != "info"]


def test_launch_based_figures_are_marked_unavailable(run: Callable[[str], Outcome]) -> None:
    outcome = run("14-missing-categories")
    assert "no_launches" in outcome.issues()
    assert outcome.split()["idle_host_ns"] is None


def test_kernels_and_host_records_of_batched_sends_are_counted_apart(run: Callable[[str], Outcome]) -> None:
    outcome = run("16-batched-p2p")
    assert outcome.query("SELECT is_p2p, dur_ns, peer FROM comm_call").rows() == [(True, 40_000, None)]
    assert (
        "1 communication activities on the device, 2 on the host" in outcome.issues()["comm_records_differ"]["example"]
    )


def test_sizes_come_from_input_dims(run: Callable[[str], Outcome]) -> None:
    assert run("17-ddp-views-empty").query("SELECT collective, msg_bytes FROM comm_call").rows() == [
        ("all_reduce", 8_196_000)
    ]


def test_an_impossible_duration_is_cut_and_its_raw_figure_shown(run: Callable[[str], Outcome]) -> None:
    outcome = run("19-impossible-durations")
    numbers = expected("19-impossible-durations")
    issue = outcome.issues()["impossible_duration"]
    assert issue["count"] == numbers["flagged"]
    assert "3400000000 ns" in issue["example"]
    assert outcome.split()["compute_ns"] == round(numbers["compute_us_after_repair"] * 1000)


def test_lost_records_are_dropped_with_a_count(run: Callable[[str], Outcome]) -> None:
    assert (
        run("20-ts-zero-events").issues()["device_record_without_time"]["count"]
        == expected("20-ts-zero-events")["dropped"]
    )


def test_no_device_record_means_unknown_not_idle(run: Callable[[str], Outcome]) -> None:
    outcome = run("23-no-kernels-captured")
    launches = expected("23-no-kernels-captured")["launches"]
    assert f"{launches} kernel launches" in outcome.issues()["lost_capture"]["example"]
    assert outcome.report["verdict"]["bottleneck"] == "inconclusive"
    assert outcome.report["verdict"]["network_bound"] is None
    assert all(row["idle_ns"] is None for row in outcome.report["step_time"]["per_step"])
    assert outcome.report["step_time"].get("trace") in (None, {})


def test_ranks_come_from_the_content_where_names_are_all_alike(run: Callable[[str], Outcome]) -> None:
    outcome = run("25-same-rank-in-file-names")
    assert outcome.report["run"]["ranks"] == expected("25-same-rank-in-file-names")["ranks"]
    assert outcome.issues()["rank_name_differs"]["severity"] == "info"


def test_the_last_arriver_waits_least(run: Callable[[str], Outcome]) -> None:
    outcome = run("26-last-arriver")
    rows = outcome.query(
        "SELECT rank, sum(wait_ns) AS wait, count(*) AS calls, min(dur_ns - wait_ns) AS transfer FROM collective_rank GROUP BY rank ORDER BY rank"
    )
    assert rows["wait"].to_list() == [1_500_000, 1_500_000, 0, 1_500_000]
    assert rows["transfer"].to_list() == [20_000] * 4
    assert set(outcome.query("SELECT last_rank FROM collective")["last_rank"].to_list()) == {2}
    assert outcome.report["verdict"]["bottleneck"] == "straggler"
    assert [row["ranks"] for row in outcome.report["findings"] if row["cause"] == "gpu_slow"] == [[2]]
    assert not [
        row for row in outcome.report["findings"] if set(row["ranks"]) & {0, 1, 3} and row["severity"] != "info"
    ]


def test_clocks_that_differ_between_hosts(run: Callable[[str], Outcome]) -> None:
    outcome = run("28-clock-skew-between-hosts")
    offsets = outcome.query("SELECT offset_ns FROM clock ORDER BY host")["offset_ns"].to_list()
    assert abs(abs(offsets[1] - offsets[0]) - 750_000) <= 5_000
    assert outcome.query("SELECT last_rank FROM collective")["last_rank"].to_list() == [0] * 6
    skews = outcome.query("SELECT start_skew_ns FROM collective")["start_skew_ns"].to_list()
    assert all(abs(skew - 200_000) <= 5_000 for skew in skews)
    assert [row["ranks"] for row in outcome.report["findings"] if row["cause"] == "gpu_slow"] == [[0]]


def test_groups_of_one_name_are_kept_apart(run: Callable[[str], Outcome]) -> None:
    outcome = run("30-external-ids-differ")
    assert (
        outcome.query("SELECT count(*) AS n FROM collective")["n"][0]
        == expected("30-external-ids-differ")["collectives"]
    )
    assert sorted(map(tuple, outcome.query("SELECT ranks FROM process_group WHERE size = 2")["ranks"].to_list())) == [
        (0, 1),
        (2, 3),
    ]


def test_hidden_communication_is_no_bottleneck(run: Callable[[str], Outcome]) -> None:
    outcome = run("31-comm-sum-over-streams")
    assert outcome.report["verdict"]["bottleneck"] == "compute"
    assert outcome.report["verdict"]["network_bound"] is False
    assert outcome.split()["overlapped_comm_ns"] <= 900_000
    assert outcome.split()["exposed_comm_ns"] == 0


def test_an_execution_trace_is_refused_with_the_reason(run: Callable[[str], Outcome]) -> None:
    outcome = run("33-execution-trace-given")
    assert outcome.code == 2
    assert "execution trace" in outcome.error
    assert "a profiler trace is needed" in outcome.error
    assert "Traceback" not in outcome.error
    assert outcome.store is None


def test_device_ids_of_rocm_are_no_ranks(run: Callable[[str], Outcome]) -> None:
    outcome = run("35-rocm-stream-zero")
    assert outcome.report["run"]["ranks"] == [0]
    assert outcome.query("SELECT DISTINCT device, class FROM kernel ORDER BY class").rows() == [
        (2, "comm"),
        (2, "compute"),
    ]


def test_no_kernel_is_dropped_for_a_small_overlap(run: Callable[[str], Outcome]) -> None:
    outcome = run("37-overlapping-on-one-row")
    assert outcome.query("SELECT count(*) AS n FROM kernel")["n"][0] == 4
    assert "impossible_duration" not in outcome.issues()


def test_members_that_were_cut_come_from_the_configuration(run: Callable[[str], Outcome]) -> None:
    outcome = run("39-group-ranks-cut")
    group = outcome.query("SELECT size, ranks FROM process_group").row(0)
    assert group[0] == expected("39-group-ranks-cut")["group_size"]
    assert 40 in group[1]


def test_generic_kernels_are_named_by_their_arguments(run: Callable[[str], Outcome]) -> None:
    kinds = run("41-generic-rccl-names").query("SELECT collective FROM comm_call ORDER BY call")["collective"].to_list()
    assert kinds == ["all_reduce", "all_gather", "unknown"]
