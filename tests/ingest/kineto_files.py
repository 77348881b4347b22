"""Tiny traces as the profiler and other writers lay them out. Times are microseconds, as in the files."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from diagnose.ingest.base import Source
from diagnose.ingest.kineto.reader import DecodedTrace, read_trace

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]

HOST, THREAD = 4242, 4242
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_gemm_bf16_128x128_tn"


def event(
    cat: str, name: object, ts: object, dur: object, *, pid: object = HOST, tid: object = THREAD, **args: object
) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts: object, dur: object, name: object = GEMM, *, stream: Any = 7, device: int = 0, **args: object) -> Event:
    shape = {"grid": [1, 1, 1], "block": [128, 1, 1]}
    return event("kernel", name, ts, dur, pid=device, tid=stream, device=device, stream=stream, **{**shape, **args})


def nccl(ts: object, dur: object, name: str = NCCL, *, stream: int = 20, **args: object) -> Event:
    return kernel(ts, dur, name, stream=stream, **args)


def memcpy(
    ts: object, dur: object, name: str = "Memcpy HtoD (Pageable -> Device)", *, stream: int = 7, **args: object
) -> Event:
    return event("gpu_memcpy", name, ts, dur, pid=0, tid=stream, device=0, stream=stream, **args)


def launch(ts: object, correlation: int, *, dur: object = 2, name: str = "cudaLaunchKernel") -> Event:
    return event("cuda_runtime", name, ts, dur, cbid=211, correlation=correlation)


def operator(ts: object, dur: object, name: str = "aten::mm", **args: object) -> Event:
    return event("cpu_op", name, ts, dur, **args)


def annotation(ts: object, dur: object, name: str, **args: object) -> Event:
    return event("user_annotation", name, ts, dur, **args)


def step(number: int, ts: object, dur: object) -> Event:
    return annotation(ts, dur, f"ProfilerStep#{number}")


def launched(ts: int, dur: int, at: int, correlation: int, **kernel_args: Any) -> list[Event]:
    """A kernel and its launch."""
    return [launch(at, correlation), kernel(ts, dur, correlation=correlation, **kernel_args)]


def header(*, rank: int | None = 0, world: int | None = 1, **more: object) -> dict[str, Any]:
    found: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Example GPU"}]}
    if rank is not None:
        found["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    return {**found, **more}


def kineto_text(events: list[Event], head: dict[str, Any], tail: dict[str, Any]) -> str:
    """As Kineto writes it: two lines an event, its arguments on their own."""
    parts = []
    for item in events:
        first = ", ".join(
            f'"{key}": {json.dumps(item[key])}' for key in ("ph", "cat", "name", "pid", "tid") if key in item
        )
        second = ", ".join(f'"{key}": {json.dumps(item[key])}' for key in ("id", "ts", "dur", "s", "bp") if key in item)
        text = f"  {{\n    {first},\n    {second}"
        if "args" in item:
            args = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in item["args"].items())
            text += f',\n    "args": {{\n      {args}\n    }}'
        parts.append(text + "\n  }")
    before = "".join(f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    after = "".join(f",\n  {json.dumps(key)}: {json.dumps(value)}" for key, value in tail.items())
    return f'{{\n{before}  "traceEvents": [\n{",".join(chr(10) + part for part in parts)[1:]}\n  ]{after}\n}}\n'


def render(
    events: list[Event],
    layout: str = "kineto",
    *,
    head: dict[str, Any] | None = None,
    tail: dict[str, Any] | None = None,
) -> bytes:
    head = header() if head is None else head
    tail = {} if tail is None else tail
    document = {**head, "traceEvents": events, **tail}
    if layout == "kineto":
        return kineto_text(events, head, tail).encode()
    if layout == "dump":
        return json.dumps(document).encode()
    if layout == "compact":
        return json.dumps(document, separators=(",", ":")).encode()
    if layout == "indent":
        return json.dumps(document, indent=2).encode()
    if layout == "list":
        return json.dumps(events).encode()
    if layout == "name-first":
        order = ("name", "cat", "ph", "ts", "dur", "pid", "tid", "id", "s", "bp", "args")
        sorted_events = [{key: item[key] for key in order if key in item} for item in events]
        return json.dumps({**head, "traceEvents": sorted_events, **tail}).encode()
    raise ValueError(layout)


LAYOUTS = ("kineto", "dump", "compact", "indent", "name-first", "list")
OBJECT_LAYOUTS = LAYOUTS[:-1]


def write(path: Path, events: list[Event], layout: str = "kineto", **parts: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = render(events, layout, **parts)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read_bytes(path: Path, data: bytes) -> DecodedTrace:
    path.write_bytes(data)
    return read_file(path)


def read_file(path: Path) -> DecodedTrace:
    return read_trace(Source(path=str(path), size_bytes=path.stat().st_size))


def kinds(decoded: DecodedTrace) -> dict[str, int]:
    return {issue.code: issue.count for issue in decoded.issues}


def small_run() -> list[Event]:
    """Two steps: 100 us of compute, 120 of communication (40 hidden), 20 of copies each; the third window is empty."""
    events: list[Event] = []
    for number in range(2):
        at, first = 1000 * number + 100, 1000 * number + 150
        events += [
            step(number, at - 50, 950),
            operator(at, 20),
            *launched(first, 100, at, 10 * number + 1),
            launch(at + 5, 10 * number + 2),
            nccl(first + 60, 120, correlation=10 * number + 2),
            launch(at + 9, 10 * number + 3, name="cudaMemcpyAsync"),
            memcpy(first + 200, 20, correlation=10 * number + 3, bytes=4096),
        ]
    return events
