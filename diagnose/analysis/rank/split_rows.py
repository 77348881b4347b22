"""Steps and their split as rows of the tables ``step`` and ``breakdown``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.analysis.intervals import Split
    from diagnose.analysis.rank.idle import IdleParts
    from diagnose.analysis.rank.steps import HostWindows, StepTimes

IDLE_CAUSES = ("idle_input_ns", "idle_host_ns", "idle_sync_ns", "idle_gc_ns", "idle_allocator_ns")
IDLE = ("idle_ns", "idle_bubble_ns", "idle_other_ns", "local_work_ns", *IDLE_CAUSES)
WORK = ("compute_ns", "exposed_comm_ns", "overlapped_comm_ns", "exposed_memcpy_ns", "memcpy_ns", "comm_ns")


def breakdown_frame(number: NDArray[np.int64], span: NDArray[np.int64], parts: Split, idle: IdleParts) -> pl.DataFrame:
    """One row a window of length ``span``; compute + exposed_comm + exposed_memcpy + idle is the span."""
    return pl.DataFrame(
        {
            "step": number.astype(np.int64),
            "span_ns": span.astype(np.int64),
            "compute_ns": parts.compute_ns,
            "exposed_comm_ns": parts.exposed_comm_ns,
            "overlapped_comm_ns": parts.overlapped_comm_ns,
            "exposed_memcpy_ns": parts.exposed_memcpy_ns,
            "idle_ns": span - parts.busy_ns,
            "idle_input_ns": idle.input_ns,
            "idle_host_ns": idle.host_ns,
            "idle_sync_ns": idle.sync_ns,
            "idle_bubble_ns": np.zeros(len(span), np.int64),
            "idle_other_ns": idle.other_ns,
            "idle_gc_ns": idle.gc_ns,
            "idle_allocator_ns": idle.allocator_ns,
            "local_work_ns": parts.compute_ns + parts.exposed_memcpy_ns + idle.input_ns + idle.host_ns,
            "memcpy_ns": parts.memcpy_ns,
            "comm_ns": parts.comm_ns,
        }
    )


def unknown(frame: pl.DataFrame, columns: Sequence[str], where: pl.Expr | None = None) -> pl.DataFrame:
    """The frame with these columns null, in all rows or where a condition holds."""
    empty = pl.lit(None, pl.Int64)
    return frame.with_columns(
        (empty if where is None else pl.when(where).then(empty).otherwise(pl.col(name))).alias(name) for name in columns
    )


def step_frame(windows: HostWindows, times: StepTimes, number: NDArray[np.int64]) -> pl.DataFrame:
    """One row a step that counts so far; labels are given later, with all ranks in view."""
    return pl.DataFrame(
        {
            "step": number,
            "host_start_ns": windows.start_ns[times.index],
            "host_end_ns": windows.end_ns[times.index],
            "start_ns": times.start_ns,
            "end_ns": times.end_ns,
            "window_ns": times.end_ns - times.start_ns,
            "step_ns": times.step_ns,
            "label": pl.Series(["normal"] * len(number), dtype=pl.String),
            "why": pl.Series([None] * len(number), dtype=pl.String),
            "activities": times.activities,
        }
    )


def blind_steps(
    windows: HostWindows, index: NDArray[np.int64], label: str, why: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps of which only the host window is known, and their split, which is not."""
    start, end = windows.start_ns[index], windows.end_ns[index]
    step = pl.DataFrame(
        {
            "step": windows.number[index],
            "host_start_ns": start,
            "host_end_ns": end,
            "start_ns": start,
            "end_ns": end,
            "window_ns": end - start,
            "step_ns": end - start,
            "label": [label] * len(index),
            "why": list(why),
            "activities": np.zeros(len(index), np.int64),
        },
        schema_overrides={"why": pl.String, "label": pl.String},
    )
    split = pl.DataFrame({"step": windows.number[index], "span_ns": end - start})
    return step, split.with_columns(pl.lit(None, pl.Int64).alias(name) for name in (*WORK, *IDLE))
