"""What fixing something would buy: the scenarios, each one replay of the changed schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.removals import gap_removal, straggler_change
from diagnose.analysis.cross.replay import Change, Schedule, levels_of, replay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_ERROR = 0.05
"""A replay that misses the measured step by more explains too little of it to price anything."""

_SMALL_BYTES = 65_536
_KNOWN_RATIO = 0.8
"""Fixed cost and bandwidth are priced apart where this part of the transfer time has a known division."""

_MOSTLY_FIXED = 0.5

SCHEMA = pl.Schema({"scenario": pl.String, "step_ns": pl.Int64, "speedup": pl.Float64, "explained_ratio": pl.Float64})


class Inputs(NamedTuple):
    """What the scenarios change.

    ``parts``: breakdown rows of normal steps; ``typical``: (rank, step, typical_ns, actual_ns), the compute of each step at
    the mean duration of its kernels' names; ``ranks``: rank_work; ``gaps``: host_gap rows of normal steps; ``alpha_ns``:
    fixed cost per call of the schedule, NaN where unknown; ``fixed_ns``: that, or the least it can be; ``median_ns``: median transfer of the call's class.
    """

    parts: pl.DataFrame
    typical: pl.DataFrame
    ranks: pl.DataFrame
    gaps: pl.DataFrame
    alpha_ns: Floats
    fixed_ns: Floats
    median_ns: Floats
    step_ns: int


def what_if(schedule: Schedule, inputs: Inputs) -> tuple[pl.DataFrame, float]:
    """Rows of the what_if table and the replay's own ratio to the measured span; no rows when it is off by more than 5 %."""
    levels = levels_of(schedule)
    base = replay(schedule, None, levels)
    explained = base / schedule.observed_ns if schedule.observed_ns else 0.0
    if abs(explained - 1) > MAX_ERROR:
        return pl.DataFrame(schema=SCHEMA), explained
    rows = []
    for name, change in _changes(schedule, inputs).items():
        span = replay(schedule, change, levels)
        if name == "perfect_overlap":
            span = max(span, _busiest_wire(schedule))
        ratio = min(span / base, 1.0)
        rows.append(
            {
                "scenario": name,
                "step_ns": round(inputs.step_ns * ratio),
                "speedup": 1 / ratio if ratio else None,
                "explained_ratio": explained,
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA).sort("speedup", "scenario", descending=[True, False]), explained


def repriced(schedule: Schedule, inputs: Inputs, rows: pl.DataFrame) -> pl.DataFrame:
    """rank_work with the cost of persistently slow ranks raised to what the replay saves without all of them.

    Step by step a rank is late by less than by segments: others are late elsewhere in the same step. Never more than its
    excess.

    Args:
        schedule: the schedule that was replayed.
        inputs: what the scenarios changed.
        rows: what_if rows; none leave the costs as they are.
    """
    slow = pl.col("verdict") == "persistent"
    largest = inputs.ranks.filter(slow).get_column("cost_ns").max()
    known = rows.filter(pl.col("scenario") == "straggler_removed")
    if not isinstance(largest, int) or largest <= 0 or known.is_empty():
        return inputs.ranks
    ratio = float(known.get_column("step_ns").item()) / max(inputs.step_ns, 1)
    if inputs.ranks.filter(~slow & (pl.col("verdict") != "ordinary")).height:
        change = straggler_change(
            schedule, inputs.parts, inputs.ranks.filter(slow | (pl.col("verdict") == "ordinary")), inputs.gaps
        )
        levels = levels_of(schedule)
        ratio = replay(schedule, change, levels) / replay(schedule, None, levels)
    gain = (1 - ratio) * schedule.observed_ns / max(len(schedule.steps), 1)
    excess = (pl.col("work_ns") - pl.col("reference_ns")).clip(lower_bound=0)
    raised = pl.min_horizontal(pl.col("cost_ns") * max(gain / largest, 1.0), pl.max_horizontal(excess, "cost_ns"))
    return inputs.ranks.with_columns(
        pl.when(slow).then(raised.round().cast(pl.Int64)).otherwise("cost_ns").alias("cost_ns")
    )


def _changes(schedule: Schedule, inputs: Inputs) -> dict[str, Change]:
    alpha = inputs.alpha_ns
    known = ~np.isnan(alpha)

    def doubled(transfer: Floats, size: Floats) -> Floats:
        least = np.where(np.isnan(inputs.fixed_ns), np.where(size <= _SMALL_BYTES, transfer, 0.0), inputs.fixed_ns)
        fixed = np.minimum(least, transfer)
        return fixed + (transfer - fixed) / 2

    def without_latency(transfer: Floats, size: Floats) -> Floats:
        del size
        return np.maximum(transfer - np.where(known, alpha, 0.0), 0.0)

    def at_median(transfer: Floats, size: Floats) -> Floats:
        del size
        return np.where(np.isnan(inputs.median_ns), transfer, inputs.median_ns)

    changes = {
        "no_skew": _even(schedule, inputs)._replace(transfer=at_median),
        "perfect_overlap": Change(transfer=lambda transfer, _size: transfer * 0.0),
    }
    total = schedule.transfer_ns.sum()
    # At least half of it is fixed cost, and how much more is not known: twice the bandwidth may buy anything or nothing.
    open_ = ~known & (inputs.fixed_ns > _MOSTLY_FIXED * schedule.transfer_ns)
    if schedule.transfer_ns[open_].sum() <= (1 - _KNOWN_RATIO) * total:
        changes["bandwidth_x2"] = Change(transfer=doubled)
    if schedule.transfer_ns[known].sum() >= _KNOWN_RATIO * total > 0:
        changes["latency_zero"] = Change(transfer=without_latency)
    local = (
        ("straggler_removed", straggler_change(schedule, inputs.parts, inputs.ranks, inputs.gaps)),
        ("stage_rebalanced", _rebalanced(schedule, inputs)),
        ("no_input_stall", gap_removal(schedule, inputs.parts, inputs.gaps, "idle_input_ns")),
        ("no_gc", gap_removal(schedule, inputs.parts, inputs.gaps, "idle_gc_ns")),
    )
    changes |= {name: change for name, change in local if change is not None}
    return changes


def _even(schedule: Schedule, inputs: Inputs) -> Change:
    """Every kernel at the mean of its name over ranks and steps. Source: what-if analysis of stragglers, OSDI'25."""
    if np.array_equal(schedule.typical, schedule.progress):
        return Change(scale=_typical(schedule, inputs))
    return Change(typical=True)


def _busiest_wire(schedule: Schedule) -> float:
    """No overlap makes a step shorter than the transfers of its busiest rank."""
    calls = np.flatnonzero(schedule.kind == 0)
    return float(np.bincount(schedule.rank[calls], schedule.transfer_ns[schedule.call[calls]]).max(initial=0.0))


def _typical(schedule: Schedule, inputs: Inputs) -> Floats:
    """Local work with its compute at the mean of its type, where single kernels are unknown."""
    rows = inputs.typical.join(
        inputs.parts.select("rank", "step", "local_work_ns", "compute_ns"), on=["rank", "step"]
    ).filter((pl.col("local_work_ns") > 0) & (pl.col("actual_ns") > 0))
    share = (pl.col("compute_ns") / pl.col("local_work_ns")).clip(0.0, 1.0)
    scale = rows.select("rank", "step", (1 + share * (pl.col("typical_ns") / pl.col("actual_ns") - 1)).alias("scale"))
    return schedule.matrix(scale)


def _rebalanced(schedule: Schedule, inputs: Inputs) -> Change | None:
    """Every rank at the mean work of all stages."""
    work = inputs.ranks.group_by("role").agg(pl.col("work_ns").median().alias("work"))
    if len(work) < 2:
        return None
    mean = float(work.get_column("work").mean() or 0.0)  # type: ignore[arg-type]
    ratio = (
        inputs.ranks.select("rank", "role")
        .join(work.filter(pl.col("work") > 0), on="role")
        .select("rank", (mean / pl.col("work")).alias("scale"))
    )
    rows = ratio.join(pl.DataFrame({"step": schedule.steps}), how="cross")
    return Change(scale=schedule.matrix(rows))
