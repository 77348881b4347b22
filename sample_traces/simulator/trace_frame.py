"""What stands around the events of a trace file: times, process ids, the header, names of rows, the span."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.kineto_text import Text24, Text213
    from simulator.timeline import Timeline

EPOCH_NS = {"2.13": 1_773_306_000 * 10**9, "2.4": 1_721_296_800 * 10**9}
BASE_NS = {"2.13": 1_767_189_312 * 10**9, "2.4": 1_719_853_884 * 10**9}
_NCCL = {"2.13": "2.27.3", "2.4": "2.20.5"}


def process_id(rank: int, seed: int) -> int:
    """Process ids look arbitrary but are the same on every run of the simulator."""
    return 20_000 + zlib.crc32(f"{seed}/{rank}".encode()) % 30_000


def header(timeline: Timeline, rank: int) -> dict[str, object]:
    """Top-level keys of a rank's file."""
    job = timeline.job
    mine = [g for g in timeline.groups if rank in g.ranks]
    config = [
        {
            "pg_name": g.name,
            "pg_desc": g.description,
            "backend_config": "cuda:nccl" if g.kind != "world" else "cpu:gloo,cuda:nccl",
            "pg_size": len(g.ranks),
            "ranks": list(g.ranks),
        }
        for g in mine
    ]
    info = {
        "backend": "nccl",
        "rank": rank,
        "world_size": job.ranks,
        "pg_count": len(mine),
        "pg_config": config,
        "nccl_version": _NCCL[job.era],
    }
    if job.era != "2.13":
        return {"record_shapes": 1, "distributedInfo": info}
    digest = "".join(f"{zlib.crc32(f'{job.seed}/{rank}/{k}'.encode()):08X}" for k in range(4))
    return {
        "cuda_driver_version": 12080,
        "cuda_runtime_version": 12080,
        "cupti_version": 26,
        "trace_id": digest,
        "record_shapes": 1,
        "distributedInfo": info,
        "host_name": timeline.topology.host_names[timeline.topology.host_of[rank]],
    }


def row_names(
    text: Text24 | Text213, ts: int, *, pid: int, threads: dict[str, int], device: int, streams: set[int], devices: int
) -> list[str]:
    """Metadata events that name processes, devices, threads and streams."""
    program = "python"
    rows = [(pid, program, "CPU", pid)]
    rows += [(d, program, f"GPU {d}", 5_000_000 + d) for d in range(devices)]
    meta = []
    for ident, name, label, order in rows:
        meta.append(text.meta("process_name", ident, 0, ts, "name", name))
        meta.append(text.meta("process_labels", ident, 0, ts, "labels", label))
        meta.append(text.meta("process_sort_index", ident, 0, ts, "sort_index", order))
    lines = [(device, s, f"stream {s} ") for s in sorted(streams)]
    for thread, tid in threads.items():
        label = program if thread == "main" else "pt_autograd_0"
        lines.append((pid, tid, f"thread {tid} ({label})"))
    for ident, tid, name in lines:
        meta.append(text.meta("thread_name", ident, tid, ts, "name", name))
        meta.append(text.meta("thread_sort_index", ident, tid, ts, "sort_index", tid))
    return meta


def span(text: Text24 | Text213, ts: int, dur: int) -> list[str]:
    """The profiler's own span and its two markers."""
    name = "PyTorch Profiler"
    return [
        text.complete("Trace", f"{name} (0)", '"Spans"', f'"{name}"', ts, dur, '"Op count": 0'),
        text.meta("process_sort_index", '"Spans"', 0, ts, "sort_index", 536_870_912),
        text.instant(f"Iteration Start: {name}", "Traces", f"Trace {name}", ts),
        text.instant("Record Window End", "", "", ts + dur + 41_000),
    ]
