"""What fixing something would buy: the scenarios, each one replay of the changed schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.replay import Schedule, replay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Scale = dict[tuple[int, int], float]

MAX_ERROR = 0.05
"""A replay that misses the measured step by more explains too little of it to price anything."""

_SMALL_BYTES = 65_536

SCHEMA = {"scenario": pl.String, "step_ns": pl.Int64, "speedup": pl.Float64, "explained_ratio": pl.Float64}


class Inputs(NamedTuple):
    """What the scenarios change.

    ``parts``: breakdown rows of normal steps with ``role``; ``typical``: (rank, step, typical_ns, actual_ns), the compute
    of each step at the mean duration of its kernels' names; ``ranks``: rank_work; ``alpha_ns``: fixed cost per call of the
    schedule, NaN where unknown; ``median_ns``: median transfer of the call's class.
    """

    parts: pl.DataFrame
    typical: pl.DataFrame
    ranks: pl.DataFrame
    alpha_ns: Floats
    median_ns: Floats
    step_ns: int


def what_if(schedule: Schedule, inputs: Inputs) -> tuple[pl.DataFrame, float]:
    """Rows of the what_if table and the replay's own ratio to the measured span; no rows when it is off by more than 5 %."""
    base = replay(schedule)
    explained = base / schedule.observed_ns if schedule.observed_ns else 0.0
    if abs(explained - 1) > MAX_ERROR:
        return pl.DataFrame(schema=SCHEMA), explained
    rows = []
    for name, span in _spans(schedule, inputs).items():
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


def _spans(schedule: Schedule, inputs: Inputs) -> dict[str, float]:
    alpha = inputs.alpha_ns
    known = ~np.isnan(alpha)

    def doubled(transfer: Floats, size: Floats) -> Floats:
        fixed = np.where(known, np.minimum(alpha, transfer), np.where(size <= _SMALL_BYTES, transfer, 0.0))
        return fixed + (transfer - fixed) / 2

    def without_latency(transfer: Floats, size: Floats) -> Floats:
        del size
        return np.maximum(transfer - np.where(known, alpha, 0.0), 0.0)

    def at_median(transfer: Floats, size: Floats) -> Floats:
        del size
        return np.where(np.isnan(inputs.median_ns), transfer, inputs.median_ns)

    spans = {
        "no_skew": replay(schedule, work_scale=_typical(inputs), transfer=at_median),
        "perfect_overlap": max(
            replay(schedule, transfer=lambda transfer, _size: transfer * 0.0), _busiest_wire(schedule)
        ),
        "bandwidth_x2": replay(schedule, transfer=doubled),
    }
    if known.any():
        spans["latency_zero"] = replay(schedule, transfer=without_latency)
    for name, scale in (
        ("straggler_removed", _without_stragglers(inputs)), ("stage_rebalanced", _rebalanced(inputs)),
        ("no_input_stall", _without(inputs, "idle_input_ns")), ("no_gc", _without(inputs, "idle_gc_ns")),
    ):  # fmt: skip
        if scale:
            spans[name] = replay(schedule, work_scale=scale)
    return spans


def _busiest_wire(schedule: Schedule) -> float:
    """No overlap makes a step shorter than the transfers of its busiest rank."""
    calls = np.flatnonzero(schedule.kind == 0)
    return float(np.bincount(schedule.rank[calls], schedule.transfer_ns[schedule.call[calls]]).max(initial=0.0))


def _typical(inputs: Inputs) -> Scale:
    """Local work with its compute at the mean of its type. Source: what-if analysis of stragglers, OSDI'25."""
    rows = inputs.typical.join(
        inputs.parts.select("rank", "step", "local_work_ns", "compute_ns"), on=["rank", "step"]
    ).filter((pl.col("local_work_ns") > 0) & (pl.col("actual_ns") > 0))
    share = (pl.col("compute_ns") / pl.col("local_work_ns")).clip(0.0, 1.0)
    scale = rows.select("rank", "step", (1 + share * (pl.col("typical_ns") / pl.col("actual_ns") - 1)).alias("scale"))
    return {(rank, step): value for rank, step, value in scale.iter_rows()}


def _without_stragglers(inputs: Inputs) -> Scale:
    scale: Scale = {}
    steps = inputs.parts.get_column("step").unique().to_list()
    for row in inputs.ranks.filter(pl.col("verdict") != "ordinary").iter_rows(named=True):
        if row["verdict"] == "persistent" and row["work_ns"]:
            scale |= {(row["rank"], step): row["reference_ns"] / row["work_ns"] for step in steps}
        elif row["reference_ns"]:
            usual = row["reference_ns"]
            scale |= {(row["rank"], step): usual / (usual + row["burst_ns"]) for step in row["slow_steps"]}
    return scale


def _rebalanced(inputs: Inputs) -> Scale:
    """Every rank at the mean work of all stages."""
    work = inputs.ranks.group_by("role").agg(pl.col("work_ns").median().alias("work"))
    if len(work) < 2:
        return {}
    mean = float(work.get_column("work").mean() or 0.0)  # type: ignore[arg-type]
    stage = dict(work.iter_rows())
    steps = inputs.parts.get_column("step").unique().to_list()
    return {
        (rank, step): mean / stage[role]
        for rank, role in inputs.ranks.select("rank", "role").iter_rows()
        for step in steps
        if stage[role]
    }


def _without(inputs: Inputs, part: str) -> Scale:
    rows = inputs.parts.filter((pl.col(part) > 0) & (pl.col("local_work_ns") > 0))
    scale = rows.select("rank", "step", (1 - pl.col(part) / pl.col("local_work_ns")).clip(0.0, 1.0).alias("scale"))
    return {(rank, step): value for rank, step, value in scale.iter_rows()}
