"""What the profiler lost is unknown time, never idle time: whole traces, single steps, replayed graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from kineto_files import annotation, event, header, kernel, launch, launched, operator, read_bytes, render, step

from diagnose.analysis.rank.reduce import Reduced, reduce_rank
from diagnose.analysis.step_labels import label_steps

if TYPE_CHECKING:
    from pathlib import Path

Events = list[dict[str, Any]]


def reduced(tmp_path: Path, events: Events, **parts: Any) -> Reduced:
    return reduce_rank(read_bytes(tmp_path / "trace.json", render(events, **parts)).trace, keep_kernels=True)


def labels(result: Reduced) -> list[str]:
    return result.frames["step"].get_column("label").to_list()


def split_of(result: Reduced, number: int) -> dict[str, int | None]:
    return result.frames["breakdown"].row(by_predicate=pl.col("step") == number, named=True)


def work(number: int, *, recorded: bool, kernels: int = 10) -> Events:
    """A step that launches kernels; the device's records of them may be missing."""
    at = 1000 * number
    events: Events = [step(number, at, 990)]
    for place in range(kernels):
        correlation = 100 * number + place + 1
        events.append(launch(at + 10 + place, correlation))
        if recorded:
            events.append(kernel(at + 100 + 50 * place, 40, correlation=correlation))
    return events


def test_no_record_at_all(tmp_path: Path) -> None:
    result = reduced(tmp_path, work(1, recorded=False, kernels=50))
    assert result.lost_capture == "none of 50 kernel launches has a device record"
    assert labels(result) == ["lost_capture"]
    assert "breakdown" not in result.frames


def test_single_steps_are_lost_and_the_others_count(tmp_path: Path) -> None:
    events = [
        item
        for number, recorded in enumerate((True, True, False, True, True))
        for item in work(number, recorded=recorded)
    ]
    result = reduced(tmp_path, events)
    assert result.lost_capture is None
    assert labels(result) == ["normal", "normal", "lost_capture", "normal", "normal"]
    assert split_of(result, 2)["idle_ns"] is split_of(result, 2)["compute_ns"] is None
    assert split_of(result, 0)["idle_ns"] == 600_000
    assert split_of(result, 1)["span_ns"] == 490_000, "nothing says when the lost step began"
    assert split_of(result, -1)["idle_ns"] is None
    assert split_of(result, -1)["compute_ns"] == 1_600_000
    assert [(note.code, note.severity) for note in result.notes] == [("lost_capture", "warning")]


def test_records_in_two_of_many_steps_only(tmp_path: Path) -> None:
    events = [item for number in range(32) for item in work(number, recorded=number in (4, 5))]
    result = reduced(tmp_path, events)
    assert labels(result).count("lost_capture") == 30
    assert "30 of 32 steps" in result.notes[0].text
    assert split_of(result, -1)["idle_ns"] is None


def test_a_step_without_launches_has_no_device_work(tmp_path: Path) -> None:
    events = [*work(0, recorded=True), step(1, 1000, 990), operator(1100, 50), *work(2, recorded=True)]
    result = reduced(tmp_path, events)
    assert labels(result) == ["normal", "no_device_work", "normal"]
    assert split_of(result, 1)["idle_ns"] is None
    assert split_of(result, -1)["idle_ns"] is not None


def graph_step(number: int, *, replays: int, recorded: int, kernels: int = 5) -> Events:
    at = 1000 * number
    events: Events = [step(number, at, 990)]
    for place in range(replays):
        correlation = 100 * number + place + 1
        events.append(launch(at + 10 + place, correlation, name="cudaGraphLaunch"))
        if place < recorded:
            events += [kernel(at + 100 + 40 * place + 5 * nth, 4, correlation=correlation) for nth in range(kernels)]
    return events


@pytest.mark.parametrize("kernels", [1, 5])
def test_replayed_graphs_with_all_records(tmp_path: Path, kernels: int) -> None:
    events = [item for number in range(3) for item in graph_step(number, replays=10, recorded=10, kernels=kernels)]
    assert labels(reduced(tmp_path, events)) == ["normal"] * 3


def test_replayed_graphs_that_were_recorded_once_in_ten(tmp_path: Path) -> None:
    events = [item for number in range(3) for item in graph_step(number, replays=10, recorded=1)]
    result = reduced(tmp_path, events)
    assert result.lost_capture == "27 of 30 graph replays have no device record"
    assert split_of(result, -1)["idle_ns"] is split_of(result, -1)["compute_ns"] is None


def test_replayed_kernels_without_links_are_not_lost(tmp_path: Path) -> None:
    events = [launch(10 + place, place + 1, name="cudaGraphLaunch") for place in range(5)]
    events += [kernel(100 + 20 * place, 10) for place in range(25)]
    assert reduced(tmp_path, events).lost_capture is None


def test_a_host_profile_of_a_device_job(tmp_path: Path) -> None:
    events = [step(1, 0, 1000), operator(10, 900, name="aten::cudnn_convolution")]
    result = reduced(tmp_path, events)
    assert result.lost_capture is not None
    assert "only host activities were profiled, though the job communicates on a device" in result.lost_capture
    single = reduced(tmp_path, [step(1, 0, 1000), operator(10, 900)], head=header(rank=None))
    assert single.lost_capture == "only host activities were profiled, on a machine with Example GPU"
    cpu = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 1},
    }
    assert reduced(tmp_path, [step(1, 0, 1000), operator(10, 900)], head=cpu).lost_capture is None


def test_profiler_ranges_in_place_of_kernels(tmp_path: Path) -> None:
    events = [
        *work(1, recorded=False),
        event("cuda_profiler_range", "range", 100, 50, pid=0, tid=7, smsp__cycles_active=3),
    ]
    assert reduced(tmp_path, events).lost_capture is not None


def test_the_profilers_own_start_is_labelled(tmp_path: Path) -> None:
    overhead = event("overhead", "Activity Buffer Request", 20, 200, pid=-1, tid=0)
    events = [item for number in range(3) for item in work(number, recorded=True)]
    result = reduced(tmp_path, [*events, overhead])
    assert labels(result) == ["profiler_start", "normal", "normal"]
    assert labels(reduced(tmp_path, [*events, {**overhead, "dur": 20}])) == ["normal"] * 3
    assert labels(reduced(tmp_path, [*work(0, recorded=True), overhead])) == ["normal"]


def labelled(
    tmp_path: Path, durations: list[int], *, host: list[int] | None = None, copies: dict[int, int] | None = None
) -> list[str]:
    """Labels of one rank's steps of these lengths; ``copies`` are seconds copied to the host."""
    events: Events = []
    at = 0
    for number, duration in enumerate(durations):
        events.append(step(number, at, (host or durations)[number] - 1))
        busy = duration - (copies or {}).get(number, 0)
        events += launched(at + 10, busy - 20, at + 2, number + 1)
        if number in (copies or {}):
            events.append(launch(at + 3, 1000 + number, name="cudaMemcpyAsync"))
            events.append(
                event(
                    "gpu_memcpy",
                    "Memcpy DtoH",
                    at + busy,
                    copies[number] - 20,
                    pid=0,
                    tid=7,
                    stream=7,
                    correlation=1000 + number,
                )
            )  # type: ignore[index]
        at += duration
    result = reduced(tmp_path, events)
    steps = result.frames["step"].with_columns(pl.lit(0).alias("rank"))
    splits = result.frames["breakdown"].with_columns(pl.lit(0).alias("rank"))
    ranks = pl.DataFrame({"rank": [0], "lost_capture": [None]}, schema={"rank": pl.Int32, "lost_capture": pl.String})
    return label_steps(steps, splits, ranks).sort("step").get_column("label").to_list()


def test_warm_up_steps_lead_and_are_slow(tmp_path: Path) -> None:
    assert labelled(tmp_path, [5000, 3000, 1000, 1010, 990, 1000, 1005, 1000]) == [
        "warm_up",
        "warm_up",
        *["normal"] * 6,
    ]


@pytest.mark.parametrize(
    ("first", "doing", "label"), [(36, 1, "normal"), (0, 1, "warm_up"), (36, 4, "warm_up"), (36, 0, "warm_up")]
)
def test_a_rank_that_holds_up_the_first_profiled_step_is_no_warm_up(first: int, doing: int, label: str) -> None:
    """Of four ranks this many spend the excess of the first step themselves; the others wait for them in collectives."""
    steps, splits = [], []
    for rank in range(4):
        for number in range(6):
            span = 500 if number == 0 else 200
            comm = span - 190 if rank >= doing else 10
            at = 1000 * number
            steps.append({"rank": rank, "step": first + number, "label": "normal", "why": None, "start_ns": at, "step_ns": span,
                          "host_start_ns": at, "host_end_ns": at + span})  # fmt: skip
            splits.append(
                {
                    "rank": rank,
                    "step": first + number,
                    "span_ns": span,
                    "exposed_comm_ns": comm,
                    "exposed_memcpy_ns": 0,
                    "idle_ns": 0,
                }
            )
    table = pl.DataFrame(steps, schema_overrides={"why": pl.String})
    ranks = pl.DataFrame({"rank": [0], "lost_capture": [None]}, schema={"rank": pl.Int32, "lost_capture": pl.String})
    found = label_steps(table, pl.DataFrame(splits), ranks)
    assert set(found.filter(pl.col("step") == first).get_column("label")) == {label}


def test_a_slow_step_in_the_middle_is_no_warm_up(tmp_path: Path) -> None:
    assert labelled(tmp_path, [1000, 1000, 1010, 5000, 1000, 990, 1000]) == ["normal"] * 7


def test_a_step_that_copies_its_model_away_is_a_checkpoint(tmp_path: Path) -> None:
    assert labelled(tmp_path, [1000, 1000, 1010, 5000, 1000, 990, 1000], copies={3: 4000})[3] == "checkpoint"


def test_steps_cut_by_the_window_at_both_ends(tmp_path: Path) -> None:
    durations = [1000] * 6
    assert labelled(tmp_path, durations, host=[100, 1000, 1000, 1000, 1000, 60]) == ["cut", *["normal"] * 4, "cut"]


def test_annotations_alone_are_no_lost_capture(tmp_path: Path) -> None:
    events = [annotation(0, 1000, "ProfilerStep#1"), *launched(20, 80, 10, 1)]
    assert labels(reduced(tmp_path, events, head=header())) == ["normal"]
