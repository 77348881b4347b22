"""More of what public reports describe, as tiny inputs made here: a folder of good traces survives each of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bug_runs import diagnose as command
from kineto_files import (
    NCCL,
    annotation,
    event,
    header,
    kernel,
    launch,
    launched,
    memcpy,
    nccl,
    operator,
    render,
    small_run,
    step,
    write,
)

import diagnose

if TYPE_CHECKING:
    from diagnose.report.document import Document

Events = list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def analysed(folder: Path) -> diagnose.Run:
    return diagnose.run(folder, jobs=1)


def report(folder: Path) -> Document:
    with analysed(folder) as run:
        return run.report


def issues(found: Document) -> dict[str, int]:
    return {row.code: row.count for row in found.data_quality.issues}


def statuses(found: Document) -> dict[str, str]:
    return {Path(row.path).name: row.status for row in found.data_quality.sources}


DAMAGED = {
    "truncated.json": render(small_run())[:900],
    "truncated.json.gz": gzip.compress(render(small_run() * 40))[:700],
    "latin.json": render(small_run(), head=header(rank=None)).replace(b"sm90_gemm", b"sm90\xe9\xff", 1),
    "control.json": render(small_run(), "dump", head=header(rank=None)).replace(b"sm90_gemm", b"sm\x0090\x1b[31m", 1),
    "quotes.json": render(small_run(), "compact", head=header(rank=None)).replace(b"sm90_gemm", b'op("a", "b")', 1),
    "infinite.json": render(small_run(), head=header(rank=None)).replace(b"[128, 1, 1]", b"inf", 2),
    "metadata.json": json.dumps(header(rank=None)).encode(),
    "no events.json": render([], head=header(rank=None)),
    "empty.json": b"",
    "empty list.json": b"[]",
    "half.json": b'{"schemaVersion": 1, "deviceProperties": [], "distributed',
    "words.json": b"this is no trace",
    "numbers.json": b"[1, 2, 3]",
    "zeros.json": b"\0" * 5000,
    "gzip of nothing.json.gz": gzip.compress(b""),
    "text with a gzip name.json.gz": b"plain text",
    "bad archive.zip": b"PK\x03\x04" + b"x" * 50,
    "bad archive.tar.gz": b"\x1f\x8b\x08\x00 nothing",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_never_stops_the_good_ones(folder: Path, name: str) -> None:
    for rank in range(2):
        write(folder / f"rank{rank}.json", small_run(), head=header(rank=rank, world=2))
    (folder / name).write_bytes(DAMAGED[name])
    found = report(folder)
    assert found.run.ranks == (0, 1)
    assert statuses(found)["rank0.json"] == statuses(found)["rank1.json"] == "ok"
    assert name in statuses(found)
    assert found.step_time.trace["0"].compute_ns == 200_000


def test_all_of_them_through_the_installed_command(folder: Path, tmp_path: Path) -> None:
    for rank in range(2):
        write(folder / f"rank{rank}.json", small_run(), head=header(rank=rank, world=2))
    for name, data in DAMAGED.items():
        (folder / name).write_bytes(data)
    outcome = command(tmp_path, folder)
    assert outcome.code == 0, outcome.error
    assert "Traceback" not in outcome.error
    assert outcome.report["run"]["ranks"] == [0, 1]
    assert all(source["problem"] for source in outcome.sources().values() if source["status"] != "ok")


@pytest.mark.parametrize("name", ["metadata.json", "empty.json", "words.json", "half.json"])
def test_nothing_readable_at_all_is_one_sentence(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).write_bytes(DAMAGED[name])
    outcome = command(tmp_path, folder)
    assert outcome.code == 2
    assert name in outcome.error
    assert "Traceback" not in outcome.error
    assert outcome.store is None


@pytest.mark.parametrize("layout", ["compact", "dump", "indent", "kineto"])
def test_ranks_are_found_however_the_json_is_spaced(folder: Path, layout: str) -> None:
    for rank in range(3):
        write(folder / f"trace_{'abc'[rank]}.json", small_run(), layout, head=header(rank=rank, world=3))
    assert report(folder).run.ranks == (0, 1, 2)


def test_two_files_of_one_rank(folder: Path) -> None:
    write(folder / "a.json", [kernel(5_000_000, 70)], head=header(rank=0))
    write(folder / "b.json", [kernel(10, 20)], head=header(rank=0))
    found = report(folder)
    assert found.step_time.trace["0"].compute_ns == 70_000
    (row,) = [row for row in found.data_quality.issues if row.code == "duplicate_rank"]
    assert "a.json" in row.example
    assert "b.json" in row.example
    assert statuses(found) == {"a.json": "ok", "b.json": "skipped"}


def test_a_backend_without_rank(folder: Path) -> None:
    write(folder / "trace.json", small_run(), head={"schemaVersion": 1, "distributedInfo": {"backend": "nccl"}})
    found = report(folder)
    assert list(found.step_time.trace) == ["?"]
    assert issues(found) == {"rank_not_in_file": 1}
    assert found.run.world_size is None


def test_the_same_correlations_on_two_ranks_stay_apart(folder: Path) -> None:
    for rank in range(2):
        events = [step(1, 0, 500), *launched(100 + 1000 * rank, 50, 10, 5)]
        write(folder / f"rank{rank}.json", events, head=header(rank=rank, world=2))
    with analysed(folder) as run:
        assert run.query("SELECT rank, launch_ns, start_ns FROM kernel ORDER BY rank").rows() == [
            (0, 10_000, 100_000),
            (1, 10_000, 1_100_000),
        ]


def test_the_last_step_is_kept(folder: Path) -> None:
    events = [
        item
        for number in range(3)
        for item in (
            step(number, 1000 * number, 990),
            *launched(1000 * number + 50, 400, 1000 * number + 5, number + 1),
        )
    ]
    write(folder / "rank0.json", events)
    assert report(folder).run.steps == (0, 1, 2)


def test_synchronisation_and_annotations_of_the_device_are_no_work(folder: Path) -> None:
    events = [
        kernel(0, 100, correlation=1), kernel(900, 100, correlation=2),
        event("cuda_sync", "Stream Wait Event", 100, 800, pid=0, tid=7, stream=7, device=0),
        event("cuda_sync", "Context Sync", 100, 800, pid=0, tid=-1, stream=-1, device=0),
        event("gpu_user_annotation", "ProfilerStep#1", 0, 1000, pid=0, tid=7),
    ]  # fmt: skip
    write(folder / "rank0.json", events)
    split = report(folder).step_time.trace["0"]
    assert (split.compute_ns, split.idle_ns) == (200_000, 800_000)


def test_operators_of_triton_with_a_stream_are_host_work(folder: Path) -> None:
    events = [
        step(1, 0, 500),
        operator(5, 400, name="triton_poi_fused_0", stream=0, num_warps=4, grid="grid(64)"),
        *launched(50, 30, 10, 1),
    ]
    write(folder / "rank0.json", events)
    with analysed(folder) as run:
        assert run.frame("kernel").height == 1
        assert run.report.step_time.trace["0"].compute_ns == 30_000


def test_names_of_hip_are_not_taken_for_communication(folder: Path) -> None:
    events = [
        event("cuda_runtime", "hipMemcpyAsync", 1, 500, correlation=1), event("cuda_runtime", "hipModuleLaunchKernel", 2, 3, correlation=2),
        event("gpu_memcpy", "CopyDeviceToDevice", 10, 20, pid=2, tid=0, device=2, stream=0, correlation=1, kind="DtoD"),
        event("kernel", "hipblasLt_Cijk_Ailk", 40, 60, pid=2, tid=0, device=2, stream=0, correlation=2, kind="Dispatch Kernel"),
        event("kernel", "void dma_like_kernel<float>", 110, 5, pid=2, tid=0, device=2, stream=0, correlation=2),
    ]  # fmt: skip
    write(folder / "rank0.json", events)
    split = report(folder).step_time.trace["0"]
    assert (split.compute_ns, split.exposed_comm_ns, split.exposed_memcpy_ns) == (65_000, 0, 20_000)


@pytest.mark.parametrize(
    "name",
    [
        NCCL, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "ncclSymkDevKernel_AllReduce_RSxLD",
        "rcclGenericKernel", "void deep_ep::internode::dispatch<false, 8>", "multimem_all_reduce_kernel", "cross_device_reduce_2stage<float>",
        "mscclpp::allreduceKernel", "oneccl_reduce_base<float>", "nvshmemi_proxy_kernel", "hcom_allReduce_",
    ],
)  # fmt: skip
def test_every_library_is_communication(folder: Path, name: str) -> None:
    write(folder / "rank0.json", [kernel(0, 100, name), kernel(300, 10)])
    split = report(folder).step_time.trace["0"]
    assert (split.exposed_comm_ns, split.compute_ns) == (100_000, 10_000)


@pytest.mark.parametrize(
    "name",
    ["Kernel", "void at::native::reduce_kernel", "deep_ep::layout::get_dispatch_layout", "gather_scatter_kernel", ""],
)
def test_what_only_sounds_like_it_is_compute(folder: Path, name: str) -> None:
    write(folder / "rank0.json", [kernel(0, 100, name)])
    assert report(folder).step_time.trace["0"].compute_ns == 100_000


def test_short_kernels_keep_their_nanoseconds(folder: Path) -> None:
    base = {"baseTimeNanoseconds": 1_782_967_788_000_000_000, "displayTimeUnit": "ms"}
    events = [kernel(4_000_000_000_000 + 0.4 * number, 0.2) for number in range(1000)]
    text = render(events, "dump", head=header(**base))
    (folder / "rank0.json").write_bytes(text)
    with analysed(folder) as run:
        assert run.report.step_time.trace["0"].compute_ns == 200_000
        assert run.query("SELECT min(dur_ns) AS low, max(dur_ns) AS high FROM kernel").row(0) == (200, 200)


def test_a_kernel_that_starts_before_its_launch(folder: Path) -> None:
    write(folder / "rank0.json", [step(1, 0, 500), *launched(100, 50, 110, 1), *launched(300, 50, 320, 2)])
    with analysed(folder) as run:
        row = run.query("SELECT * FROM breakdown WHERE step = 1").row(0, named=True)
        assert (row["compute_ns"], row["idle_ns"]) == (100_000, 150_000)


def test_times_as_text_and_rows_that_are_an_answer(folder: Path) -> None:
    """Ascend writes strings, kinds by process, and a process that already holds the result."""
    events: Events = [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "Ascend Hardware"}},
        {"name": "process_name", "ph": "M", "pid": 2, "tid": 0, "args": {"name": "Overlap Analysis"}},
        {"ph": "X", "name": "MatMulV2", "pid": 1, "tid": 3, "ts": "1704161511420306.250", "dur": 20.5, "args": {}},
        {
            "ph": "X",
            "name": "hcom_allReduce_1",
            "pid": 1,
            "tid": 4,
            "ts": "1704161511420340.000",
            "dur": 10,
            "args": {},
        },
        {"ph": "X", "name": "EVENT_WAIT", "pid": 1, "tid": 4, "ts": "1704161511420300.000", "dur": 900, "args": {}},
        {"ph": "X", "name": "Computing", "pid": 2, "tid": 0, "ts": "1704161511420306.250", "dur": 900, "args": {}},
        {"ph": "X", "name": "Free", "pid": 2, "tid": 1, "ts": "1704161511420306.250", "dur": 900, "args": {}},
    ]
    (folder / "trace_view.json").write_bytes(render(events, "list"))
    split = report(folder).step_time.trace["?"]
    assert (split.compute_ns, split.exposed_comm_ns, split.span_ns) == (20_500, 10_000, 43_750)


def test_two_writers_in_one_file(folder: Path) -> None:
    first = render(small_run(), head=header(rank=0, world=2))
    second = render([kernel(5, 999_000)], head=header(rank=1, world=2))
    (folder / "trace.json").write_bytes(first + second)
    found = report(folder)
    assert found.run.ranks == (0,)
    assert found.step_time.trace["0"].compute_ns == 200_000
    assert issues(found)["extra_data"] == 1
    assert statuses(found)["trace.json"] == "partial"


def test_a_writer_that_was_killed_leaves_its_temporary_file(folder: Path) -> None:
    write(folder / "rank0.json", small_run(), head=header(rank=0, world=2))
    data = render(small_run(), head=header(rank=1, world=2))
    (folder / "rank1.json.tmp").write_bytes(data[: len(data) // 2])
    found = report(folder)
    assert statuses(found) == {"rank0.json": "ok", "rank1.json.tmp": "partial"}
    assert "unfinished_file" in issues(found)


def test_graph_replays_that_were_mostly_lost_are_not_idle_time(folder: Path) -> None:
    events: Events = []
    for number in range(4):
        events.append(step(number, 1000 * number, 990))
        for place in range(10):
            correlation = 100 * number + place + 1
            events.append(launch(1000 * number + 5 + place, correlation, name="cudaGraphLaunch"))
            if place == 0:
                events += [kernel(1000 * number + 50 + 10 * nth, 9, correlation=correlation) for nth in range(8)]
    write(folder / "rank0.json", events)
    found = report(folder)
    assert found.verdict.bottleneck == "inconclusive"
    assert all(row.idle_ns is None for row in found.step_time.per_step)
    assert "graph replays" in next(row.example for row in found.data_quality.issues if row.code == "lost_capture")


def test_members_that_were_cut_and_no_configuration(folder: Path) -> None:
    ranks = f"[{', '.join(map(str, range(30)))}, ...]"
    args = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "dtype": "Float",
        "Group size": 64,
        "Process Group Name": "7",
        "Process Group Ranks": ranks,
    }
    write(folder / "rank0.json", [nccl(10, 50, **args)], head=header(rank=0, world=128))
    with analysed(folder) as run:
        assert run.query("SELECT size, ranks FROM process_group").row(0) == (64, None)


def test_a_group_of_one_rank_moves_nothing(folder: Path) -> None:
    record = {
        "Collective name": "allreduce",
        "In msg nelems": 8,
        "Out msg nelems": 8,
        "dtype": "Float",
        "Group size": 1,
        "Process Group Ranks": "[0]",
    }
    events = [step(1, 0, 500), operator(5, 3, name="record_param_comms", **record), *launched(50, 30, 10, 1)]
    write(folder / "rank0.json", events)
    with analysed(folder) as run:
        assert run.frame("comm_call").is_empty()
        assert run.report.verdict.network_bound is False


def test_a_coalesced_kernel_takes_the_arguments_of_its_record(folder: Path) -> None:
    record = {
        "Collective name": "allreduce_coalesced",
        "In msg nelems": 512,
        "Out msg nelems": 512,
        "dtype": "Half",
        "Group size": 2,
        "Process Group Ranks": "[0, 1]",
    }
    events = [operator(5, 20, name="record_param_comms", **record), launch(10, 3), nccl(50, 30, correlation=3)]
    write(folder / "rank0.json", events, head=header(rank=0, world=2))
    with analysed(folder) as run:
        assert run.query("SELECT collective, msg_bytes, group_size FROM comm_call").row(0) == ("all_reduce", 1024, 2)


def test_hostile_names_reach_the_store_whole_and_the_page_escaped(folder: Path, tmp_path: Path) -> None:
    name = "</td><script>alert('x')</script>\u202e{{7*7}}\x1b[31m"
    write(
        folder / "rank0.json",
        [
            step(1, 0, 900),
            *(item for n in range(5) for item in launched(100 * n + 20, 60, 100 * n + 2, n + 1, name=name)),
        ],
    )
    outcome = command(tmp_path, folder, options=("--output", str(tmp_path / "report.json")))
    assert outcome.code == 0, outcome.error
    assert outcome.query("SELECT DISTINCT name FROM kernel")["name"].to_list() == [name]


def test_steps_are_numbered_by_their_annotation_not_by_the_file(folder: Path) -> None:
    write(folder / "worker0_step_12.1694128201545.pt.trace.json", [step(10, 0, 500), *launched(50, 30, 10, 1)])
    assert report(folder).run.steps == (10,)


def test_ranks_whose_counts_differ_are_matched_as_far_as_they_go(folder: Path) -> None:
    args = {"Collective name": "allreduce", "dtype": "Float", "Group size": 2, "Process Group Ranks": "[0, 1]"}
    for rank, count in ((0, 6), (1, 5)):
        events = [
            nccl(1000 * n + 10 * rank, 100 - 10 * rank, **args, **{"In msg nelems": 100 + n, "Out msg nelems": 100 + n})
            for n in range(count)
        ]
        write(folder / f"rank{rank}.json", events, head=header(rank=rank, world=2))
    with analysed(folder) as run:
        seen = run.query("SELECT seen FROM collective ORDER BY seq")["seen"].to_list()
        assert seen.count(2) == 5


def test_a_sequence_of_copies_and_memsets(folder: Path) -> None:
    events = [
        memcpy(0, 50),
        event("gpu_memset", "Memset (Device)", 100, 10, pid=0, tid=7, device=0, stream=7, bytes=64),
        kernel(20, 10),
    ]
    write(folder / "rank0.json", events)
    split = report(folder).step_time.trace["0"]
    assert (split.exposed_memcpy_ns, split.compute_ns, split.idle_ns) == (50_000, 10_000, 50_000)


def test_annotations_only(folder: Path) -> None:
    write(folder / "rank0.json", [annotation(0, 100, "my range")], head={"schemaVersion": 1, "deviceProperties": []})
    found = report(folder)
    assert found.run.ranks == (0,)
    assert statuses(found)["rank0.json"] == "ok"
