"""Steps and their split: device work belongs to the step that launched it, and the parts add up to its window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_files import (
    annotation,
    event,
    kernel,
    launch,
    launched,
    memcpy,
    nccl,
    operator,
    read_bytes,
    render,
    small_run,
    step,
)

from diagnose.analysis.rank.reduce import Reduced, reduce_rank
from diagnose.analysis.rank.steps import period_windows

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memcpy_ns", "idle_ns")
CAUSES = ("idle_input_ns", "idle_host_ns", "idle_sync_ns", "idle_bubble_ns", "idle_other_ns")


def reduced(tmp_path: Path, events: list[dict[str, Any]], **parts: Any) -> Reduced:
    return reduce_rank(read_bytes(tmp_path / "trace.json", render(events, **parts)).trace, keep_kernels=True)


def split_of(result: Reduced, number: int) -> dict[str, int | None]:
    return result.frames["breakdown"].row(by_predicate=pl.col("step") == number, named=True)


def step_of(result: Reduced, number: int) -> dict[str, Any]:
    return result.frames["step"].row(by_predicate=pl.col("step") == number, named=True)


def test_the_split_of_a_known_run(tmp_path: Path) -> None:
    result = reduced(tmp_path, small_run())
    assert result.step_source == "ProfilerStep"
    first = split_of(result, 0)
    assert [first[name] for name in ("compute_ns", "exposed_comm_ns", "overlapped_comm_ns", "exposed_memcpy_ns")] == [
        100_000,
        80_000,
        40_000,
        20_000,
    ]
    assert (first["span_ns"], first["idle_ns"]) == (1_000_000, 800_000)
    assert step_of(result, 0)["step_ns"] == 1_000_000
    last = split_of(result, 1)
    assert (last["span_ns"], last["idle_ns"]) == (220_000, 20_000)
    whole = split_of(result, -1)
    assert (whole["span_ns"], whole["compute_ns"], whole["idle_ns"]) == (1_220_000, 200_000, 820_000)


def test_work_belongs_to_the_step_that_launched_it_however_late_it_runs(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number in range(3):
        events += [step(number, 100 * number, 100), *launched(1000 + 500 * number, 400, 100 * number + 5, number + 1)]
    events += [kernel(900, 50, correlation=999)]
    result = reduced(tmp_path, events)
    assert [split_of(result, number)["compute_ns"] for number in range(3)] == [400_000] * 3
    assert result.frames["step"].get_column("step_ns").to_list() == [500_000, 500_000, 400_000]
    assert result.frames["kernel"].get_column("step").null_count() == 1
    assert [note.code for note in result.notes] == ["launched_outside"]
    assert split_of(result, -1)["compute_ns"] == 1_250_000


def test_the_window_runs_to_the_later_of_its_last_end_and_the_next_start(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100), *launched(10, 500, 5, 1),
        step(2, 100, 100), *launched(200, 50, 110, 2),
    ]  # fmt: skip
    result = reduced(tmp_path, events)
    assert step_of(result, 1)["window_ns"] == 500_000
    assert step_of(result, 1)["step_ns"] == 190_000
    assert split_of(result, 1)["idle_ns"] == 0


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["kernel", "nccl", "memcpy"]), st.integers(0, 900), st.integers(0, 120), st.integers(0, 2)),
        min_size=1, max_size=20,
    ),
    st.lists(st.tuples(st.sampled_from(["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "sync", "malloc"]), st.integers(0, 4000), st.integers(1, 300)), max_size=4),
)  # fmt: skip
def test_the_parts_add_up_in_every_step(
    tmp_path_factory: pytest.TempPathFactory,
    work: list[tuple[int, str, int, int, int]],
    host: list[tuple[str, int, int]],
) -> None:
    events: list[dict[str, Any]] = [step(number, 1000 * number + 1, 999) for number in range(4)]
    per_step: dict[int, list[tuple[str, int, int]]] = {}
    for place, (number, kind, offset, dur, stream) in enumerate(work, 1):
        at, start = 1000 * number + 1 + offset, 1000 * number + 40 + offset
        make = {"kernel": kernel, "nccl": nccl, "memcpy": memcpy}[kind]
        events += [launch(at, place), make(start, dur, stream=stream, correlation=place)]
        per_step.setdefault(number, []).append((kind, start, start + dur))
    for name, start, dur in host:
        events.append(
            annotation(start, dur, name) if name.startswith("enumerate")
            else event("cuda_runtime", {"sync": "cudaDeviceSynchronize", "malloc": "cudaMalloc"}[name], start, dur)
        )  # fmt: skip
    result = reduced(tmp_path_factory.mktemp("split"), events)
    for number, items in per_step.items():
        row = split_of(result, number)
        window = step_of(result, number)
        assert sum(row[name] for name in PARTS) == row["span_ns"] == window["window_ns"]
        assert sum(row[name] for name in CAUSES) == row["idle_ns"]
        assert min(row[name] for name in (*PARTS, *CAUSES)) >= 0
        points = {
            kind: {point for name, low, high in items if name == kind for point in range(low, high)}
            for kind in ("kernel", "nccl", "memcpy")
        }
        compute, comm, copies = points["kernel"], points["nccl"], points["memcpy"]
        assert row["compute_ns"] == 1000 * len(compute)
        assert row["exposed_comm_ns"] == 1000 * len(comm - compute)
        assert row["overlapped_comm_ns"] == 1000 * len(comm & compute)
        assert row["exposed_memcpy_ns"] == 1000 * len(copies - comm - compute)
        assert window["start_ns"] == 1000 * min(low for _, low, _ in items)
    whole = split_of(result, -1)
    assert sum(whole[name] for name in PARTS) == whole["span_ns"]


def test_steps_between_optimizer_steps(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number in range(4):
        at = 1000 * number
        events += [*launched(at + 50, 300, at + 10, number + 1), annotation(at + 900, 90, "Optimizer.step#AdamW.step")]
    result = reduced(tmp_path, events)
    assert result.step_source == "optimizer"
    assert result.frames["step"].get_column("step").to_list() == [0, 1, 2]


def test_steps_from_the_period_of_the_calls(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for number in range(6):
        for place, size in enumerate((100, 100, 4096)):
            start = 1000 * number + 200 * place
            events.append(
                nccl(
                    start + 1,
                    50,
                    **{"Collective name": "allreduce", "In msg nelems": size, "dtype": "Float", "Group size": 2},
                )
            )
            events.append(kernel(start + 60, 90))
    result = reduced(tmp_path, events)
    assert result.step_source == "period"
    assert set(result.frames["step"].get_column("step_ns").to_list()[:-1]) == {1_000_000}


def test_annotated_steps_that_no_launch_joins_with_the_device_give_way_to_the_period(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [step(7, 0, 6000)]
    for number in range(6):
        events += [nccl(1000 * number + 1, 50), kernel(1000 * number + 60, 90)]
    assert reduced(tmp_path, events).step_source == "period"
    alone = reduced(tmp_path, [step(7, 0, 6000), kernel(10, 20), kernel(50, 20)])
    assert alone.frames["step"].select("step", "label", "why").rows() == [
        (7, "no_device_work", "what it launched is not in the file")
    ]


def test_one_micro_batch_is_no_period() -> None:
    windows = period_windows(np.arange(5, dtype=np.int64), np.array([0, 1, 2, 3, 4]))
    assert windows.source == "none"
    assert not len(windows.number)


@pytest.mark.parametrize(
    ("host", "cause"),
    [
        ([annotation(120, 870, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")], "idle_input_ns"),
        ([event("python_function", "torch/utils/data/dataloader.py(630): __next__", 120, 870)], "idle_input_ns"),
        ([event("cuda_runtime", "cudaStreamSynchronize", 120, 870)], "idle_sync_ns"),
        ([event("cuda_runtime", "cudaMalloc", 120, 870)], "idle_host_ns"),
        ([operator(120, 870, name="aten::slow_on_the_host")], "idle_host_ns"),
        ([], "idle_host_ns"),
    ],
)
def test_causes_of_idle_time(tmp_path: Path, host: list[dict[str, Any]], cause: str) -> None:
    events = [step(1, 0, 2000), *launched(20, 80, 10, 1), *host, *launched(1000, 100, 992, 2)]
    row = split_of(reduced(tmp_path, events), 1)
    assert row["idle_ns"] == 900_000
    assert row[cause] >= 870_000
    assert (row["idle_allocator_ns"] > 0) == (bool(host) and host[0]["name"] == "cudaMalloc")


def test_a_kernel_launched_before_its_gap_began_waits_for_something_else(tmp_path: Path) -> None:
    row = split_of(reduced(tmp_path, [step(1, 0, 99), *launched(20, 80, 10, 1), *launched(500, 50, 12, 2)]), 1)
    assert row["idle_other_ns"] == row["idle_ns"] == 400_000


def test_garbage_collection_is_named(tmp_path: Path) -> None:
    frame = event("python_function", "<built-in function collect>", 120, 800)
    result = reduced(tmp_path, [step(1, 0, 99_000), *launched(20, 80, 10, 1), frame, *launched(1000, 100, 992, 2)])
    assert split_of(result, 1)["idle_gc_ns"] == 800_000
    assert result.frames["host_gap"].row(0, named=True)["detail"] == "gc"
    silent = reduced(tmp_path, [step(1, 0, 99_000), *launched(20, 80, 10, 1), *launched(70_000, 100, 69_000, 2)])
    assert split_of(silent, 1)["idle_gc_ns"] > 60_000_000


def test_a_pause_behind_communication_is_listed_as_well(tmp_path: Path) -> None:
    """The device has only communication to do while the host stands still; then it has nothing."""
    late = [
        step(1, 0, 99_000), operator(5, 20), *launched(20, 80, 10, 1), launch(15, 2), nccl(100, 60_000, correlation=2), *launched(80_000, 100, 79_990, 3),
        *launched(80_100, 100, 79_995, 4),
    ]  # fmt: skip
    rows = (
        reduced(tmp_path, late)
        .frames["host_gap"]
        .select("start_ns", "dur_ns", "detail", "cause_ns", "beside_comm")
        .rows()
    )
    assert rows == [
        (100_000, 60_000_000, "gc", 60_000_000, True), (60_100_000, 19_900_000, "gc", 19_890_000, False)
    ]  # fmt: skip


def test_a_call_was_ready_when_the_work_launched_before_it_was_done(tmp_path: Path) -> None:
    events = [
        step(1, 0, 999), *launched(20, 80, 10, 1), launch(12, 2), nccl(100, 300, correlation=2), *launched(110, 50, 14, 3), launch(16, 4),
        nccl(400, 20, correlation=4), launch(500, 5), nccl(510, 20, correlation=5),
    ]  # fmt: skip
    ready = reduced(tmp_path, events).frames["comm_call"].get_column("ready_ns").to_list()
    assert ready == [100_000, 160_000, 500_000]


def test_long_gaps_are_listed_with_their_step(tmp_path: Path) -> None:
    gaps = reduced(tmp_path, small_run()).frames["host_gap"]
    assert gaps.select("step", "start_ns", "dur_ns").row(0) == (0, 370_000, 780_000)


def test_without_launches_the_cause_of_idle_time_is_unknown(tmp_path: Path) -> None:
    result = reduced(tmp_path, [kernel(10, 20), kernel(100, 20)])
    row = split_of(result, -1)
    assert (row["idle_ns"], row["idle_other_ns"]) == (70_000, 70_000)
    assert row["idle_host_ns"] is row["idle_input_ns"] is row["idle_sync_ns"] is None
    assert [note.code for note in result.notes] == ["no_launches"]


def test_several_devices_in_one_trace(tmp_path: Path) -> None:
    events = [kernel(10, 20), kernel(40, 20), {**kernel(10, 500), "pid": 1, "args": {"device": 1, "stream": 7}}]
    result = reduced(tmp_path, events)
    assert (result.device, result.devices) == (0, 2)
    assert split_of(result, -1)["compute_ns"] == 40_000
