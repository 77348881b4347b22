"""The job's step in one place: which steps count, medians of every part, what blocks. Everything else reads it here."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from diagnose.analysis.cross.exposed import blocking_comm

PARTS = (
    "compute_ns", "exposed_comm_ns", "exposed_wait_ns", "exposed_transfer_ns", "overlapped_comm_ns", "exposed_memcpy_ns", "idle_ns",
    "idle_input_ns", "idle_host_ns", "idle_sync_ns", "idle_bubble_ns", "idle_other_ns",
)  # fmt: skip
WHOLE_TRACE = -1


class JobSummary(NamedTuple):
    """``steps`` and ``parts`` have one row a (rank, step) of the steps used; without steps, one a rank of its trace.

    ``blocking_max_ns`` bounds blocking_comm where waits are unknown.
    """

    window: str
    steps: pl.DataFrame
    parts: pl.DataFrame
    steps_used: int
    step_ns: int | None
    span_ns: int | None
    breakdown: dict[str, int | None]
    per_rank: pl.DataFrame
    blocking_ns: int | None
    blocking_max_ns: int | None
    critical_rank: int | None

    def share(self, part: str) -> float | None:
        """A part of the median step as a ratio of its window, None when unknown."""
        value = self.breakdown.get(part)
        return None if value is None or not self.span_ns else value / self.span_ns


def summarise(steps: pl.DataFrame, breakdown: pl.DataFrame, hosts: pl.DataFrame, source: str) -> JobSummary:
    """Medians over the steps used: per step over the ranks, then over the steps.

    Args:
        steps: step rows.
        breakdown: breakdown rows, step -1 being whole traces.
        hosts: rank rows with rank and host.
        source: where steps come from.
    """
    used = steps.filter(pl.col("label") == "normal")
    if used.is_empty():
        parts = breakdown.filter(pl.col("step") == WHOLE_TRACE)
        window = "whole trace, first to last activity (no complete step)"
        times = parts.select("rank", "step", pl.col("span_ns").alias("step_ns"), pl.col("span_ns").alias("window_ns"))
        return _summary(window, times, parts, hosts, steps_used=0)
    parts = breakdown.join(used.select("rank", "step"), on=["rank", "step"])
    window = {
        "ProfilerStep": "steps of the profiler schedule (ProfilerStep#), device work counted where it was launched",
        "optimizer": "from one optimizer step to the next (no ProfilerStep# in the trace)",
        "period": "period of the communication calls (no ProfilerStep# and no optimizer annotation)",
    }.get(source, source)
    return _summary(
        window,
        used.select("rank", "step", "step_ns", "window_ns"),
        parts,
        hosts,
        steps_used=used.get_column("step").n_unique(),
    )


def _summary(
    window: str, steps: pl.DataFrame, parts: pl.DataFrame, hosts: pl.DataFrame, *, steps_used: int
) -> JobSummary:
    blocking = blocking_comm(parts)
    per_step = parts.group_by("step").agg(*(_known_median(name) for name in PARTS), pl.col("span_ns").median())
    medians = {name: _integer(per_step.get_column(name).median()) if len(per_step) else None for name in PARTS}
    for name in ("exposed_wait_ns", "exposed_transfer_ns"):
        if len(per_step) and per_step.get_column(name).null_count() * 2 > len(per_step):
            medians[name] = None
    per_rank = (
        parts.group_by("rank").agg(*(pl.col(name).median().round().cast(pl.Int64) for name in PARTS))
        .join(steps.group_by("rank").agg(pl.col("step_ns").median().round().cast(pl.Int64)), on="rank", how="full", coalesce=True)
        .join(hosts.select("rank", "host"), on="rank", how="left").sort("rank")
    )  # fmt: skip
    known = blocking.get_column("blocking_comm_ns").null_count() * 2 <= len(blocking) if len(blocking) else False
    critical = blocking.get_column("critical_rank").drop_nulls()
    return JobSummary(
        window=window, steps=steps, parts=parts, steps_used=steps_used, step_ns=_integer(steps.get_column("step_ns").median()),
        span_ns=_integer(parts.get_column("span_ns").median()), breakdown=medians, per_rank=per_rank,
        blocking_ns=_integer(blocking.get_column("blocking_comm_ns").median()) if known else None,
        blocking_max_ns=_integer(blocking.get_column("blocking_max_ns").median()) if len(blocking) else None,
        critical_rank=int(critical.mode().sort()[0]) if known and len(critical) else None,
    )  # fmt: skip


def _known_median(name: str) -> pl.Expr:
    """Median over the ranks; null when more than half of them are unknown."""
    column = pl.col(name)
    return pl.when(column.null_count() * 2 <= pl.len()).then(column.median()).alias(name)


def _integer(value: object) -> int | None:
    return None if value is None else round(float(value))  # type: ignore[arg-type]
