"""Slow steps outside the profile, explained by one rank's late issues: flight recorders cover the whole run.

All ranks log the same long step, since collectives couple them; the recorder tells who issued its collectives that much
after the second latest rank. Late alone is not guilty, slow links make ranks late as well: the lateness has to explain
most of what the step lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.training_log import SLOW_RATIO

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_EXPLAINS = 0.5
_MAX_SHARE = 0.25
"""Slow in more steps than these is how the job runs; its profile shows why."""

_MIN_STEPS = 10
_FIRST_STEPS = 3
_MIN_RANKS = 3
"""Of two ranks nothing says whether one is late or the other early."""


class LateRank(NamedTuple):
    """A rank with its late steps; ``lost_ns`` in all of them, ``longest_ns`` in one, of ``logged_steps`` steps."""

    rank: int
    steps: tuple[int, ...]
    lost_ns: int
    longest_ns: int
    logged_steps: int


def late_ranks(
    issues: pl.DataFrame, log: pl.DataFrame, profiled: Sequence[tuple[int, int]], known: Collection[int]
) -> list[LateRank]:
    """Ranks whose late issues explain slow steps, dearest first.

    Args:
        issues: rows (comm_group, seq, rank, created_ns) of collectives.
        log: one rank's log with step, t_ns (end of the step), step_time_ns.
        profiled: spans of the profile, unix nanoseconds; the steps in and right after them are judged elsewhere.
        known: steps whose length is explained already.
    """
    rows = log.filter((pl.col("step_time_ns") > 0) & pl.col("t_ns").is_not_null()).sort("t_ns") if len(log) else log
    if len(rows) < _MIN_STEPS or issues.is_empty():
        return []
    ends, lengths = rows.get_column("t_ns").to_numpy(), rows.get_column("step_time_ns").to_numpy()
    numbers = rows.get_column("step").to_numpy()
    usual = float(np.median(lengths))
    slow = (lengths > SLOW_RATIO * usual) & (np.arange(len(ends)) >= _FIRST_STEPS) & ~np.isin(numbers, list(known))
    for start, end in profiled:
        last = int(np.searchsorted(ends - lengths, end))  # saving the trace is no step of the job
        slow &= (ends < start) | (np.arange(len(ends)) > last)
    if not slow.any() or slow.sum() > _MAX_SHARE * len(ends):
        return []
    last_two = _latest(issues)
    place = np.searchsorted(ends, last_two.get_column("second_ns").to_numpy())
    inside = place < len(ends)
    step = np.minimum(place, len(ends) - 1)
    found = last_two.with_columns(pl.Series("place", step), pl.Series("inside", inside & slow[step]))
    found = found.filter("inside").group_by("place", "rank").agg(pl.col("late_ns").max())
    over = (lengths - usual)[found.get_column("place").to_numpy()]
    found = found.with_columns(
        pl.Series("over_ns", over, dtype=pl.Float64), pl.Series("step", numbers[found.get_column("place").to_numpy()])
    )
    found = found.filter(pl.col("late_ns") >= _EXPLAINS * pl.col("over_ns"))
    ranks = found.group_by("rank").agg(
        pl.col("step").sort(), pl.min_horizontal("late_ns", "over_ns").sum().alias("lost"), pl.col("late_ns").max()
    )
    return [
        LateRank(row["rank"], tuple(row["step"]), round(row["lost"]), int(row["late_ns"]), len(ends))
        for row in ranks.sort(-pl.col("lost"), "rank").iter_rows(named=True)
    ]


def _latest(issues: pl.DataFrame) -> pl.DataFrame:
    """Per collective that all ranks issued: the last of them, and how long after the second latest."""
    everyone = issues.get_column("rank").n_unique()
    if everyone < _MIN_RANKS:
        return pl.DataFrame(schema={"rank": pl.Int32, "second_ns": pl.Int64, "late_ns": pl.Int64})
    ordered = issues.sort("created_ns").group_by("comm_group", "seq", maintain_order=True)
    return (
        ordered.agg(
            pl.len().alias("seen"), pl.col("rank").last(), pl.col("created_ns").last().alias("last_ns"),
            pl.col("created_ns").tail(2).first().alias("second_ns"),
        )
        .filter(pl.col("seen") == everyone)
        .select("rank", "second_ns", late_ns=pl.col("last_ns") - pl.col("second_ns"))
    )  # fmt: skip
