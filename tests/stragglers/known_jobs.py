"""The jobs: an even one, and three faults as they were published."""

from __future__ import annotations

import math
import random

from pipeline_job import Job, Work

FORWARD_US = 65_000.0


def even(step: int, stage: int, replica: int, batch: int) -> float:
    return FORWARD_US


def heavy_last_stage(step: int, stage: int, replica: int, batch: int) -> float:
    return FORWARD_US * (1.62 if stage == 3 else 1.0)


def one_slow_worker(step: int, stage: int, replica: int, batch: int) -> float:
    return FORWARD_US * (2.35 if (stage, replica) == (2, 1) else 1.0) * (1.05 if stage == 3 else 1.0)


def uneven_sequences(stages: tuple[float, ...], seed: int) -> Work:
    """Every micro-batch has a length of its own, which all stages of its replica feel."""

    def work(step: int, stage: int, replica: int, batch: int) -> float:
        length = random.Random(hash((seed, step, replica, batch))).gauss(0, 0.19)  # noqa: S311 - no secret
        return FORWARD_US * stages[stage] * math.exp(length)

    return work


JOBS = {
    "even": Job(even),
    "heavy_stage": Job(heavy_last_stage),
    "slow_worker": Job(one_slow_worker),
    "uneven": Job(uneven_sequences((0.8, 1.2), 3), stages=2, replicas=4),
    "uneven_even_stages": Job(uneven_sequences((1.0, 1.0, 1.0, 1.0), 5)),
}
