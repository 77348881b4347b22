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
    """One line a step: torchtitan's beside torch 2.13 traces, Megatron-LM's beside 2.4 ones."""
    job = timeline.job
    steps = timeline.step_ns()
    rng = stream(job.seed, "loss")
    titan = job.era == "2.13"
    lines = []
    for step, ns in enumerate(steps):
        end = timeline.observed(0, timeline.step_start[0, step] + ns)
        at = datetime.fromtimestamp((EPOCH_NS[job.era] + int(end)) / 1e9, tz=UTC)
        loss = 10.8 / (1 + 0.004 * step) + 0.02 * float(rng.standard_normal())
        write = _titan if titan else _megatron
        lines.append(write(timeline, step, at, float(ns), loss))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _titan(timeline: Timeline, step: int, at: datetime, ns: float, loss: float) -> str:
    job = timeline.job
    tokens = job.model.tokens * job.model.micro_batches * job.dp / job.ranks
    return (
        f"[rank0]:[titan] {at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} - root - INFO - step: {step:2d}  "
        f"loss: {loss:7.4f}  memory: 61.42GiB(77.63%)  tps: {round(tokens / ns * 1e9):,}"
    )


def _megatron(timeline: Timeline, step: int, at: datetime, ns: float, loss: float) -> str:
    job = timeline.job
    batch = job.dp * job.model.micro_batches
    return (
        f" [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{job.total_steps:8d} | consumed samples: {step * batch:12d} | "
        f"elapsed time per iteration (ms): {ns / 1e6:.1f} | learning rate: 3.000000E-04 | "
        f"global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.000 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
