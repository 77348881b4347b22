"""The log that rank 0 of the training script writes: every step of the job, profiled or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from simulator.conditions import stream
from simulator.trace_frame import EPOCH_NS

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.timeline import Timeline


def write_training_log(timeline: Timeline, path: Path) -> None:
    """One line a step, in torchtitan's manner."""
    job = timeline.job
    steps = timeline.step_ns()
    rng = stream(job.seed, "loss")
    tokens = job.model.tokens * job.model.micro_batches * job.dp
    lines = []
    for step, ns in enumerate(steps):
        end = timeline.observed(0, timeline.step_start[0, step] + ns)
        at = datetime.fromtimestamp((EPOCH_NS[job.era] + int(end)) / 1e9, tz=UTC)
        loss = 10.8 / (1 + 0.004 * step) + 0.02 * rng.standard_normal()
        seconds = float(ns) / 1e9
        lines.append(
            f"[rank0]:[titan] {at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} - root - INFO - step: {step:2d}  "
            f"loss: {loss:7.4f}  memory: 61.42GiB(77.63%)  tps: {round(tokens / seconds / job.ranks):,}  "
            f"time: {seconds * 1e3:.1f} ms"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
