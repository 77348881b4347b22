"""What the charts of a report are drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report_findings import MS
from report_job import STEP_NS

if TYPE_CHECKING:
    import random

    from report_job import Job


def charts(job: Job, random_: random.Random) -> dict[str, Any]:
    """What charts are drawn from."""
    ranks, hosts, of, waits, numbers = job.ranks, job.hosts, job.of, job.waits, job.numbers
    sizes = [2**power for power in range(12, 30)]
    busbw = [size / (20e-6 + size / 4.8e10) for size in sizes]
    return {
        "charts": {
            "lateness": {
                "ranks": list(range(ranks)),
                "steps": numbers,
                "late_ns": [
                    [(38 * MS if rank == 3 else 200_000) + (step * rank * 7919) % 400_000 for step in numbers]
                    for rank in range(ranks)
                ],
            },
            "busbw": [
                {
                    "tier": "inter-node",
                    "collective": "all_gather",
                    "points": [
                        [size, value * (0.9 + random_.random() / 5)] for size, value in zip(sizes, busbw, strict=True)
                    ],
                    "fit": [[size, value] for size, value in zip(sizes, busbw, strict=True)],
                    "reference_bytes_per_s": 4.9e10,
                }
            ],
            "who_waits": [
                {
                    "rank": rank,
                    "host": of[rank],
                    "wait_ns": round(waits[rank] * STEP_NS),
                    "caused_wait_ns": 250 * MS if rank == 3 else MS,
                    "last_ratio": 0.97 if rank == 3 else 0.004,
                }
                for rank in range(ranks)
            ],
            "nodes": [
                {
                    "host": name,
                    "gpu_clock_mhz": 1980 - 500 * (index == 0),
                    "ecc_count": 0,
                    "busy_ratio": 0.97,
                    "gpu_clock_history": [1980, 1975, 1400, 1395, 1390],
                }
                for index, name in enumerate(hosts)
            ],
        },
    }
