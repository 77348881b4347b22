"""Puts the files of a run into a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.kineto import write_traces
from simulator.metrics import STYLES as METRIC_STYLES
from simulator.metrics import write_metrics
from simulator.nccl_log import write_logs
from simulator.training_log import write_training_log
from simulator.truth import write_truth

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.simulation import Run


def write_run(run: Run, folder: Path, *, truth: Path, metrics: str = "smi", logs: bool = True, level: int = 6) -> None:
    """traces/, logs/, metrics/ and train.log in the folder; the answer key wherever the caller wants it."""
    write_traces(run.timeline, folder / "traces", level=level)
    if logs:
        write_logs(run.timeline, folder / "logs")
        write_metrics(run.timeline, folder / "metrics", metrics)
        write_training_log(run.timeline, folder / "train.log")
    write_truth(run, truth)


__all__ = ["METRIC_STYLES", "write_run"]
