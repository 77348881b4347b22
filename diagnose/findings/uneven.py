"""How unevenly work lies over ranks and steps: data that differs from micro-batch to micro-batch, or a rank that is slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables

_MIN_STEPS = 3
_MIN_SHARE = 0.01
"""Launches that carry less of the compute of their rank say little of its work."""

_TO_SIGMA = 1.4826


class Uneven(NamedTuple):
    """What tells uneven data from a slow rank.

    ``between``: the part of the variation of ranks' work that stays with the ranks; ``top_share``: the part of the steps in which the most frequent
    busiest rank is busiest; ``excess_ns``: the busiest rank over the median of its role, median over the steps.
    """

    between: float
    top_share: float
    excess_ns: float


_VARIATION_SQL = """
WITH used AS (
  SELECT k.rank, k.step, k.name, k.dur_ns,
    row_number() OVER (PARTITION BY k.rank, k.step, k.name ORDER BY k.start_ns) AS nth,
    count(*) OVER (PARTITION BY k.rank, k.step, k.name) AS times
  FROM kernel AS k JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND k.class = 'compute' AND k.rank >= 0
), launch AS (
  SELECT rank, name, nth, median(dur_ns) AS usual, mad(dur_ns) AS off, sum(dur_ns) AS total, count(*) AS steps,
    min(times) = max(times) AS same FROM used GROUP BY rank, name, nth
)
SELECT off / usual AS variation, total::DOUBLE / sum(total) OVER (PARTITION BY rank) AS weight FROM launch
WHERE same AND steps >= $steps AND usual > 0
"""

_TOTALS_SQL = """
WITH used AS (
  SELECT k.rank, k.step, k.name, sum(k.total_ns) AS total, sum(k.count) AS times FROM kernel_stat AS k JOIN step AS s USING (rank, step)
  WHERE s.label = 'normal' AND k.class IN ('compute', 'cpu_op') AND k.rank >= 0 GROUP BY ALL
), kernel AS (
  SELECT rank, name, median(total) AS usual, mad(total) AS off, sum(total) AS total, count(*) AS steps, min(times) = max(times) AS same
  FROM used GROUP BY rank, name
)
SELECT off / usual AS variation, total::DOUBLE / sum(total) OVER (PARTITION BY rank) AS weight FROM kernel
WHERE same AND steps >= $steps AND usual > 0
"""

_WORK_SQL = """
SELECT b.rank, b.step, coalesce(r.role, 0) AS role, b.compute_ns::DOUBLE AS work FROM breakdown AS b JOIN step AS s USING (rank, step)
JOIN rank AS r USING (rank) WHERE s.label = 'normal' AND b.rank >= 0 AND b.compute_ns > 0
"""


def measure(tables: Tables) -> Uneven | None:
    """The measures; None with fewer than three steps or without two ranks of one role."""
    work = tables.query(_WORK_SQL)
    work = work.filter(pl.col("rank").n_unique().over("role") > 1)
    if work.is_empty() or work.get_column("step").n_unique() < _MIN_STEPS:
        return None
    over = pl.col("work") - pl.col("work").median().over("role", "step")
    rows = work.with_columns(
        over.alias("over"), (over / pl.col("work").median().over("role", "step")).alias("relative")
    )
    busiest = rows.sort("over", descending=True).unique("step", keep="first")
    top = max(busiest.group_by("rank").len().get_column("len").to_list())
    return Uneven(
        _between(rows), top / len(busiest),
        float(busiest.get_column("over").median() or 0.0),  # type: ignore[arg-type]
    )  # fmt: skip


def variation(tables: Tables) -> float:
    """How much one launch differs from step to step, as a ratio of its duration: weighted median over the launches that
    carry the work; of totals per step where single kernels were not kept.
    """
    for sql in (_VARIATION_SQL, _TOTALS_SQL):
        rows = tables.query(sql, {"steps": _MIN_STEPS}).filter(pl.col("weight") >= _MIN_SHARE).sort("variation")
        if not rows.is_empty():
            reached = rows.filter(pl.col("weight").cum_sum() >= pl.col("weight").sum() / 2)
            return _TO_SIGMA * float(reached.get_column("variation")[0])
    return 0.0


def _between(rows: pl.DataFrame) -> float:
    """Variance of the ranks' means less what the variation within ranks explains, over the whole variance."""
    each = rows.group_by("rank").agg(
        pl.col("relative").mean().alias("mean"), pl.col("relative").var().alias("within"), pl.len().alias("steps")
    )
    within = float(each.get_column("within").mean() or 0.0)  # type: ignore[arg-type]
    means = float(each.get_column("mean").var() or 0.0)  # type: ignore[arg-type]
    steps = float(each.get_column("steps").median() or 1.0)  # type: ignore[arg-type]
    between = max(means - within / steps, 0.0)
    return between / (between + within) if between + within else 0.0
