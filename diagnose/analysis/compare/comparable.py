"""Whether two runs did the same work: same size, model and batch. If not, a slower step means nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.units import format_bytes, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.compare.facts import RunFacts

SAME_KERNELS_RATIO = 0.7
"""Overlap of launches by kernel name: half the layers give 0.5, another library version of one model 0.8 and more."""
SAME_MODEL_KERNELS_RATIO = 0.5
"""With equal traffic per step this suffices: the gradients are the same, kernels were rewritten or fused."""
SAME_SHAPES_RATIO = 0.3
"""Overlap of the same by signature (grid and block), below which the shapes are others: batch or sequence length."""
SAME_BYTES_RATIO = 0.03
SAME_WORK_RATIO = 0.03


def why_not(base: RunFacts, new: RunFacts, *, per_work: bool = False, same_model: bool = False) -> list[str]:
    """Reasons not to compare, empty when there are none.

    Args:
        base: the run compared with.
        new: the run in question.
        per_work: time is taken per unit of work, so size and batch may differ.
        same_model: the user vouches for the model; kernels and traffic are not looked at.
    """
    for run in (base, new):
        if run.step_ns is None:
            return [f"{run.name} has no step time: neither its traces nor a training log hold a complete step"]
    if base.measured_from != new.measured_from:
        return [f"{base.name} is measured by {base.measured_from}, {new.name} by {new.measured_from}"]
    reasons = []
    if per_work:
        reasons += [_no_work(run) for run in (base, new) if run.work is None or not run.world_size]
        if base.work and new.work and base.work.unit != new.work.unit:
            reasons.append(f"work is counted in {base.work.unit} and in {new.work.unit}")
    else:
        reasons += _size(base, new)
    if not same_model:
        reasons += _model(base, new, per_work=per_work)
    return reasons


def _no_work(run: RunFacts) -> str:
    return f"{run.name} does not say how much work a step is: its training log has no tokens/s or samples/s (give --work or --base-work)"


def _size(base: RunFacts, new: RunFacts) -> list[str]:
    reasons = []
    if base.world_size != new.world_size and base.world_size and new.world_size:
        reasons.append(f"world size {base.world_size} against {new.world_size}")
    if (
        base.work
        and new.work
        and base.work.unit == new.work.unit
        and abs(new.work.per_step / base.work.per_step - 1) > SAME_WORK_RATIO
    ):
        reasons.append(f"other batch: {base.work.per_step:.6g} {base.work.unit} a step against {new.work.per_step:.6g}")
    return reasons


def _model(base: RunFacts, new: RunFacts, *, per_work: bool) -> list[str]:
    names = overlap((base,), (new,), "name")
    if names is None:
        return []
    resized = base.world_size != new.world_size
    same_bytes = (
        None
        if base.comm_bytes is None or new.comm_bytes is None or resized
        else abs(new.comm_bytes / base.comm_bytes - 1) <= SAME_BYTES_RATIO
    )
    if names < (SAME_MODEL_KERNELS_RATIO if same_bytes else SAME_KERNELS_RATIO):
        return [
            f"other kernel set: only {format_ratio(names)} of the launches have the same kernel names, so another model (or --same-model)"
        ]
    if same_bytes is False and not per_work:
        return [
            (
                f"other traffic: a rank sends {format_bytes(base.comm_bytes)} a step against {format_bytes(new.comm_bytes)}, so another model size, "
                "sharding or accumulation (or --same-model)"
            )
        ]
    shapes = overlap((base,), (new,), "signature")
    if shapes is not None and shapes < SAME_SHAPES_RATIO and names >= SAME_KERNELS_RATIO and not per_work:
        return [
            (
                f"other shapes: the kernels have the same names but only {format_ratio(shapes)} the same grids, so another batch, sequence length or "
                "width (or --same-model)"
            )
        ]
    return []


def overlap(base: Sequence[RunFacts], new: Sequence[RunFacts], key: str) -> float | None:
    """Shared launches over all launches, median over the common ranks: one odd rank does not make another model."""
    sides = [run[0].kernels.group_by("rank", key).agg(pl.col("count").sum()) for run in (base, new)]
    joined = sides[0].join(sides[1], on=["rank", key], how="full", coalesce=True, suffix="_new")
    launches = joined.select(
        "rank",
        pl.max_horizontal(pl.col("count").fill_null(0.0), pl.col("count_new").fill_null(0.0)).alias("most"),
        pl.min_horizontal(pl.col("count").fill_null(0.0), pl.col("count_new").fill_null(0.0)).alias("least"),
    )
    common = sides[0].select("rank").unique().join(sides[1].select("rank").unique(), on="rank")
    ranks = launches.join(common, on="rank").group_by("rank").agg(pl.col("most").sum(), pl.col("least").sum())
    ratios = ranks.filter(pl.col("most") > 0).select(pl.col("least") / pl.col("most")).to_series()
    return float(np.median(ratios.to_numpy())) if len(ratios) else None
