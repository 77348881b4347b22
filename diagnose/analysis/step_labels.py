"""Which steps count: warm-up, checkpoint, cut and unusable steps are named and left out of statistics."""

from __future__ import annotations

import polars as pl

_CUT_RATIO = 0.5
"""A first or last host window below half the median was cut by the profiler's window."""

_OUTLIER_MADS = 5.0
_OUTLIER_RATIO = 1.25
_MIN_STEPS_FOR_OUTLIERS = 4
_WARM_BY_STEP = 5
"""Counted from where the profiler's schedule began; the first steps of a run are slow for reasons of their own."""

_FEW = 0.5


def label_steps(steps: pl.DataFrame, breakdown: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Steps with label and why. Grain (rank, step).

    A step is warm-up when it leads the run and is above median + 5 MAD (and 1.25 x median) on all ranks, checkpoint
    when later, on all ranks, and exposed copies or silence of the host explain it; a slow step that only some ranks
    have is a finding and never a label. Source: algorithms, step segmentation.
    """
    lost = {rank: why for rank, why in ranks.iter_rows() if why}
    frame = steps.with_columns(
        (pl.col("host_end_ns") - pl.col("host_start_ns")).alias("_host"),
    ).with_columns(
        pl.col("_host").median().over("rank").alias("_host_median"),
        pl.col("host_start_ns").min().over("rank").alias("_first"),
        pl.col("host_start_ns").max().over("rank").alias("_last"),
        pl.len().over("rank").alias("_count"),
    )
    edge = (pl.col("host_start_ns") == pl.col("_first")) | (pl.col("host_start_ns") == pl.col("_last"))
    short = (pl.col("_count") > 2) & (pl.col("_host") < _CUT_RATIO * pl.col("_host_median"))
    cut = edge & short & pl.col("label").is_in(("normal", "no_device_work"))
    label = (
        pl.when(pl.col("rank").is_in(list(lost)))
        .then(pl.lit("lost_capture"))
        .when(cut)
        .then(pl.lit("cut"))
        .otherwise(pl.col("label"))
    )
    why = (
        pl.when(pl.col("rank").is_in(list(lost)))
        .then(pl.col("rank").replace_strict(lost, default=None, return_dtype=pl.String))
        .when(cut)
        .then(pl.lit("the profiler's window cut this step"))
        .otherwise(pl.col("why"))
    )
    frame = frame.with_columns(label.alias("label"), why.alias("why"))
    slow = _slow_on_all(frame)
    checkpoint = _checkpoint_like(slow, breakdown)
    leading = [step for step in _leading(slow) if step not in _held_up(slow, breakdown)]
    labels = dict.fromkeys(leading, ("warm_up", "leads the run and is slow on all ranks"))
    labels |= {
        step: ("checkpoint", "slow on all ranks, spent in copies or outside the training loop")
        for step in checkpoint
        if step not in labels
    }
    for step, (name, text) in labels.items():
        chosen = (pl.col("step") == step) & (pl.col("label") == "normal")
        frame = frame.with_columns(
            pl.when(chosen).then(pl.lit(text)).otherwise(pl.col("why")).alias("why"),
            pl.when(chosen).then(pl.lit(name)).otherwise(pl.col("label")).alias("label"),
        )
    return frame.drop("_host", "_host_median", "_first", "_last", "_count")


def _slow_on_all(frame: pl.DataFrame) -> pl.DataFrame:
    """Steps slow on every rank, with how slow; empty for runs too short to know."""
    normal = frame.filter(pl.col("label") == "normal")
    per_rank = normal.with_columns(
        pl.col("step_ns").median().over("rank").alias("median"),
        pl.len().over("rank").alias("count"),
    ).with_columns((pl.col("step_ns") - pl.col("median")).abs().median().over("rank").alias("mad"))
    limit = pl.max_horizontal(pl.col("median") + _OUTLIER_MADS * pl.col("mad"), _OUTLIER_RATIO * pl.col("median"))
    judged = per_rank.filter(pl.col("count") >= _MIN_STEPS_FOR_OUTLIERS).with_columns(
        (pl.col("step_ns") > limit).alias("slow")
    )
    return (
        judged.group_by("step")
        .agg(
            pl.col("slow").all(),
            (pl.col("step_ns") / pl.col("median")).median().alias("ratio"),
            pl.col("start_ns").min(),
        )
        .sort("start_ns")
    )


def _leading(slow: pl.DataFrame) -> list[int]:
    steps: list[int] = []
    for step, is_slow in slow.select("step", "slow").iter_rows():
        if not is_slow:
            break
        steps.append(step)
    return steps if len(steps) < len(slow) else []


def _held_up(slow: pl.DataFrame, breakdown: pl.DataFrame) -> set[int]:
    """Slow steps well into the run in which a few ranks do the excess themselves and most others wait for them: profiling
    began in the middle of it, and no label hides whose doing it is.
    """
    if slow.is_empty() or breakdown.is_empty():
        return set()
    parts = breakdown.with_columns(own=pl.col("span_ns") - pl.col("exposed_comm_ns")).with_columns(
        (pl.col(name) - pl.col(name).median().over("rank")).alias(f"{name}_more") for name in ("own", "exposed_comm_ns")
    )
    half = 0.5 * (pl.col("span_ns") - pl.col("span_ns").median().over("rank"))
    found = parts.with_columns(
        doing=(pl.col("own_more") > half) & (half > 0), waiting=(pl.col("exposed_comm_ns_more") > half) & (half > 0)
    )
    found = found.group_by("step").agg(pl.col("doing").mean(), pl.col("waiting").mean())
    chosen = found.filter((pl.col("doing") > 0) & (pl.col("doing") < _FEW) & (pl.col("waiting") > 0.5))
    return set(chosen.filter(pl.col("step") >= _WARM_BY_STEP).get_column("step").to_list())


def _checkpoint_like(slow: pl.DataFrame, breakdown: pl.DataFrame) -> list[int]:
    """Steps slow everywhere whose excess most ranks spend on their own, in copies or idle: saving, evaluating.

    Where one rank spends it and the others wait, it is that rank's doing, and no label hides it.
    """
    if slow.is_empty() or breakdown.is_empty():
        return []
    parts = breakdown.with_columns((pl.col("exposed_memcpy_ns") + pl.col("idle_ns")).alias("away"))
    parts = parts.with_columns(
        pl.col("away").median().over("rank").alias("usual"), pl.col("span_ns").median().over("rank").alias("span")
    )
    excess = parts.group_by("step").agg(((pl.col("away") - pl.col("usual")) / pl.col("span")).median().alias("excess"))
    joined = slow.filter(pl.col("slow")).join(excess, on="step")
    return joined.filter(pl.col("excess") > 0.5 * (pl.col("ratio") - 1)).get_column("step").sort().to_list()
