"""The smallest run that gives step times and a collective: two ranks, a few steps, a few kilobytes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMPUTE_US, COMM_US, STEPS = 3000.0, 60.0, 4
BASE_NS = 1_700_000_000_000_000_000


def write_run(
    folder: Path,
    *,
    seed: int = 0,
    slow: float = 1.0,
    ranks: int = 2,
    start_s: float = 0.0,
    straggler: int | None = None,
    steps: int = STEPS,
) -> Path:
    """A run folder; ``slow`` stretches the compute kernels of all ranks, or of the straggler alone."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(seed)  # noqa: S311 - jitter of test data
    pace = dice.gauss(1.0, 0.002)
    work = [
        [
            COMPUTE_US * pace * dice.gauss(1, 0.002) * (slow if straggler in (None, rank) else 1.0)
            for rank in range(ranks)
        ]
        for _ in range(steps)
    ]
    for rank in range(ranks):
        document = trace(rank, ranks, work, start_s)
        (folder / f"rank{rank}.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def trace(rank: int, ranks: int, work: list[list[float]], start_s: float) -> dict[str, object]:
    events: list[dict[str, object]] = []
    now, correlation = 1050.0, 1
    for number, durations in enumerate(work):
        slowest = max(durations)
        length = slowest + COMM_US + 60.0
        ahead = 1000.0 + number * 100  # the host is steps ahead of the device
        events.append(host("user_annotation", f"ProfilerStep#{number + 3}", ahead, 98.0))
        arrive, end = now + durations[rank], now + slowest + COMM_US
        events += launched(
            "gemm_kernel<128, 64>",
            ahead + 2,
            now,
            durations[rank],
            correlation,
            {"grid": [64, 1, 1], "block": [128, 1, 1]},
        )
        comm = {
            "Collective name": "allreduce", "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(ranks))),
            "Group size": ranks, "dtype": "Float", "In msg nelems": 1000, "Out msg nelems": 1000, "Seq": number + 1,
        }  # fmt: skip
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        events += launched(name, ahead + 8, arrive, end - arrive, correlation + 1, comm, stream=13)
        correlation += 2
        now += length
    return {
        "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}, "baseTimeNanoseconds": BASE_NS + int(start_s * 1e9),
        "deviceProperties": [{"id": 0, "name": "Test GPU"}], "traceEvents": events,
    }  # fmt: skip


def host(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 100,
        "tid": 100,
        "ts": round(ts, 3),
        "dur": round(dur, 3),
        "args": args,
    }


def launched(
    name: str, at: float, ts: float, dur: float, correlation: int, args: dict[str, object], stream: int = 7
) -> list[dict[str, object]]:
    call = host("cuda_runtime", "cudaLaunchKernel", at, 3.0, correlation=correlation)
    kernel = {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": round(ts, 3), "dur": round(dur, 3),
        "args": {"device": 0, "stream": stream, "correlation": correlation, **args},
    }  # fmt: skip
    return [call, kernel]
