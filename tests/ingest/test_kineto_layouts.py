"""No event is lost or changed by the way a writer lays its text out, by the order of events, or by the chunks."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_files import (
    LAYOUTS,
    OBJECT_LAYOUTS,
    annotation,
    event,
    header,
    kernel,
    kinds,
    launch,
    operator,
    read_bytes,
    render,
    small_run,
    write,
)

from diagnose.analysis.rank.reduce import reduce_rank
from diagnose.ingest.kineto import chunks

if TYPE_CHECKING:
    from pathlib import Path

    from diagnose.store.rank_trace import RankTrace

QUIET = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    [
        'a "quoted" name',
        "back\\slash",
        '}, {"ph": "X", ',
        "[memory]",
        "traceEvents",
        'end"}]}',
        "ProfilerStep#3",
        "N/A",
        "{",
        "ñ",
        "\u2028",
    ]
)
plain = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | names
nested = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
look_alikes = st.lists(st.fixed_dictionaries({"ph": names, "name": names}), max_size=3) | st.lists(
    st.fixed_dictionaries({"name": names, "cat": names}), max_size=3
)
arguments = st.dictionaries(names, nested | look_alikes, max_size=4)


@st.composite
def any_event(draw: st.DrawFn) -> dict[str, object]:
    cat = draw(
        st.sampled_from(
            ["cpu_op", "cuda_runtime", "kernel", "user_annotation", "python_function", "gpu_memcpy", "odd cat"]
        )
    )
    item: dict[str, object] = {
        "ph": "X", "cat": cat, "name": draw(names), "pid": draw(st.integers(0, 9)), "tid": draw(st.integers(0, 9) | st.just("stream 7")),
        "ts": draw(st.integers(1, 10**6)), "dur": draw(st.integers(1, 10**4)), "args": draw(arguments),
    }  # fmt: skip
    match draw(st.integers(0, 9)):
        case 0:
            return {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": draw(names)}}
        case 1:
            return {"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": 5, "cat": "ac2g", "name": "ac2g"}
        case 2:
            return {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": draw(arguments)}
        case 3:
            return dict(draw(st.permutations(list(item.items()))))
        case _:
            return item


def counted(trace: RankTrace) -> list[int]:
    return [len(calls.start_ns) for calls in (trace.activities, trace.operators, trace.runtime, trace.annotations)]


@QUIET
@given(
    events=st.lists(any_event(), min_size=1, max_size=25),
    layout=st.sampled_from(("dump", "compact", "indent", "name-first")),
    block=st.sampled_from([64, 257, 1 << 20]),
)
def test_every_event_arrives(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, object]], layout: str, block: int
) -> None:
    wanted = [item for item in events if item["ph"] == "X"]
    if not any(item["cat"] in ("cpu_op", "cuda_runtime", "kernel", "user_annotation", "gpu_memcpy") for item in wanted):
        events.append(operator(5, 5))
        wanted.append(events[-1])
    data = render(events, layout, head=header(world=1))
    assert json.loads(data)["traceEvents"]
    before = chunks.BLOCK_BYTES
    try:
        chunks.BLOCK_BYTES = block
        decoded = read_bytes(tmp_path_factory.mktemp("layout") / "trace.json", data)
    finally:
        chunks.BLOCK_BYTES = before
    trace = decoded.trace
    assert not [issue for issue in decoded.issues if issue.code not in ("impossible_duration",)]
    assert trace.events == len(events)
    of_kind = {
        cat: sorted(str(item["name"]) for item in wanted if item["cat"] == cat)
        for cat in ("kernel", "gpu_memcpy", "cuda_runtime")
    }
    assert sorted(trace.names[code] for code in trace.activities.name) == sorted(
        of_kind["kernel"] + of_kind["gpu_memcpy"]
    )
    assert sorted(trace.names[code] for code in trace.runtime.name) == of_kind["cuda_runtime"]
    host = sorted(str(item["name"]) for item in wanted if item["cat"] in ("cpu_op", "user_annotation"))
    assert sorted(trace.names[code] for calls in (trace.operators, trace.annotations) for code in calls.name) == host


@pytest.mark.parametrize("block", [48, 200, 1 << 22])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_split_does_not_depend_on_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, block: int
) -> None:
    expected = reduce_rank(read_bytes(tmp_path / "plain.json", render(small_run(), "dump")).trace, keep_kernels=True)
    monkeypatch.setattr(chunks, "BLOCK_BYTES", block)
    shuffled = small_run()
    random.Random(3).shuffle(shuffled)  # noqa: S311
    decoded = read_bytes(tmp_path / "trace.json.gz", gzip.compress(render(shuffled, layout)))
    assert kinds(decoded) == {}
    found = reduce_rank(decoded.trace, keep_kernels=True)
    assert found.frames.keys() == expected.frames.keys()
    for name, frame in expected.frames.items():
        assert found.frames[name].equals(frame), name


@pytest.mark.parametrize("layout", OBJECT_LAYOUTS)
def test_metadata_may_stand_before_or_after_the_events(tmp_path: Path, layout: str) -> None:
    base = {"baseTimeNanoseconds": 1_700_000_000_000_000_000, "displayTimeUnit": "ms"}
    before = read_bytes(tmp_path / "a.json", render(small_run(), layout, head={**header(rank=3, world=8), **base}))
    after = read_bytes(
        tmp_path / "b.json",
        render(small_run(), layout, head={"schemaVersion": 1}, tail={**header(rank=3, world=8), **base}),
    )
    assert before.trace.header == after.trace.header
    assert after.trace.header.rank == 3
    assert after.trace.header.base_ns == base["baseTimeNanoseconds"]
    assert np.array_equal(before.trace.activities.start_ns, after.trace.activities.start_ns)
    assert before.trace.activities.start_ns[0] == base["baseTimeNanoseconds"] + 150_000


def test_objects_in_arguments_that_look_like_events_stay_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = [{"ph": "X", "cat": "kernel", "name": "not a kernel"}] * 5
    events = [operator(number, 1, name=f"op{number}", inner=inner, more={"list": inner}) for number in range(30)]
    for block in (64, 500, 1 << 20):
        monkeypatch.setattr(chunks, "BLOCK_BYTES", block)
        decoded = read_bytes(tmp_path / f"{block}.json", render(events, "dump"))
        assert counted(decoded.trace) == [0, 30, 0, 0]
        assert kinds(decoded) == {}


def test_one_event_and_an_event_larger_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 1000)
    assert counted(read_bytes(tmp_path / "one.json", render([kernel(1, 2)])).trace) == [1, 0, 0, 0]
    big = [operator(1, 2, blob="x" * 50_000), operator(4, 1), operator(7, 1, blob="y" * 20_000)]
    assert counted(read_bytes(tmp_path / "big.json", render(big)).trace) == [0, 3, 0, 0]


def test_old_files_with_text_threads_and_old_categories(tmp_path: Path) -> None:
    events = [
        event("Operator", "ProfilerStep#5", 100, 90, tid="3239786240", Device=24572),
        event("Operator", "aten::add", 105, 20, tid="3239786240"),
        event("Runtime", "cudaLaunchKernel", 110, 5, tid="3239786240", correlation=7, **{"external id": 1}),
        event(
            "Kernel", "Kernel", 120, 30, pid=0, tid="stream 7", device=0, stream=7, correlation=7, **{"external id": 1}
        ),
        event("Memcpy", "Memcpy HtoD", 160, 10, pid=0, tid="stream 7", device=0, stream=7, correlation=8),
    ]
    trace = read_bytes(tmp_path / "old.json", render(events, "kineto", head={"schemaVersion": 1})).trace
    assert counted(trace) == [2, 1, 1, 1]
    assert trace.activities.stream.tolist() == [7, 7]
    assert trace.names[trace.activities.name[0]] == "Kernel"
    assert trace.annotations.thread[0] == trace.runtime.thread[0] == 3239786240


def test_only_the_category_makes_device_work(tmp_path: Path) -> None:
    events = [
        operator(1, 5, name="triton_kernel", stream=0, kernel_hash="x"),
        event("gpu_user_annotation", "ProfilerStep#1", 1, 900, pid=0, tid=7),
        event("cuda_sync", "Stream Sync", 1, 900, pid=0, tid=-1, stream=7, device=0),
        event("cuda_sync", "Stream Wait Event", 1, 900, pid=0, tid=1_000_007, stream=7, device=0),
        event("overhead", "Activity Buffer Request", 1, 900, pid=-1, tid=0),
        event("cuda_event", "cudaEventRecord", 1, 900, pid=0, tid=7, stream=7),
        event("python_function", "model.py(3): forward", 1, 900, pid=0, tid=0),
        event("Trace", "PyTorch Profiler (0)", 1, 900, pid="Spans", tid="PyTorch Profiler"),
        kernel(10, 20),
    ]
    trace = read_bytes(tmp_path / "trace.json", render(events)).trace
    assert counted(trace) == [1, 1, 0, 0]
    reduced = reduce_rank(trace, keep_kernels=True)
    assert reduced.frames["breakdown"].row(0, named=True)["compute_ns"] == 20_000


def test_ids_of_64_bits_and_shared_correlations(tmp_path: Path) -> None:
    wide = (1 << 64) - 3
    events = [
        launch(1, wide),
        kernel(5, 3, correlation=wide, stream=(1 << 47) + 5),
        launch(2, 9),
        kernel(9, 3, correlation=9),
        kernel(12, 3, correlation=9),
    ]
    trace = read_bytes(tmp_path / "trace.json", render(events)).trace
    kernels = reduce_rank(trace, keep_kernels=True).frames["kernel"]
    assert kernels.get_column("launch_ns").to_list() == [1000, 2000, 2000]
    assert kernels.get_column("graph").to_list() == [False, True, True]
    assert kernels.get_column("stream").to_list() == [(1 << 47) + 5, 7, 7]


def test_a_file_of_thousands_of_equal_layouts_is_cut_in_bounded_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 20_000)
    seen: list[int] = []
    original = chunks._split

    def watched(text: bytes, layout: chunks.Layout, offset: int) -> chunks.Chunk:
        seen.append(len(text))
        return original(text, layout, offset)

    monkeypatch.setattr(chunks, "_split", watched)
    path = write(tmp_path / "trace.json", [annotation(number, 1, f"range {number}") for number in range(3000)])
    assert read_bytes(path, path.read_bytes()).trace.events == 3000
    assert max(seen) < 200_000
