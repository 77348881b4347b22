"""What a fix takes out of a schedule: stalls where they lie, slowness in proportion to the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.cross.replay import Change, Removal, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_GAPS = {
    "idle_host_ns": pl.col("cause") == "host", "idle_input_ns": pl.col("cause") == "input",
    "idle_gc_ns": pl.col("detail") == "gc", "idle_allocator_ns": pl.col("detail") == "allocator",
}  # fmt: skip
"""Long gaps of the device's own work by why they are there."""

_STALLS = {
    "input_stall": "idle_input_ns",
    "gc_pause": "idle_gc_ns",
    "allocator": "idle_allocator_ns",
    "host_slow": "idle_host_ns",
}
_FOUND = 0.5
"""Where listed gaps hold less than half of a stall, it is spread over the step instead."""


def gap_removal(schedule: Schedule, parts: pl.DataFrame, gaps: pl.DataFrame, part: str) -> Change | None:
    """Every rank without this part of its idle time; None where there is none."""
    stalls = _stalls(parts, gaps)
    wanted = stalls.filter(pl.col(part) > 0).select("rank", "step", pl.col(part).alias("wanted"))
    return _without(schedule, parts, gaps, wanted.with_columns(pl.lit(part).alias("part")))


def _listed(gaps: pl.DataFrame) -> pl.DataFrame:
    """Gaps by the part of the breakdown they belong to, with ``amount``: how much of each does."""
    host = pl.when(pl.col("detail").is_null()).then("cause_ns").otherwise("dur_ns")
    return pl.concat(
        gaps.filter(chosen).select(
            "rank", "step", "start_ns", "dur_ns", pl.lit(part).alias("part"),
            (host if part == "idle_host_ns" else pl.col("cause_ns")).alias("amount"),
        )
        for part, chosen in _GAPS.items()
    )  # fmt: skip


def _stalls(parts: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Stalls of each (rank, step): idle time of the kind, and more where communication hid some of it."""
    sums = _listed(gaps).group_by("rank", "step", "part").agg(pl.col("amount").sum())
    columns = list(dict.fromkeys(_GAPS))
    wide = parts.select("rank", "step", "local_work_ns", *columns)
    for name in columns:
        mine = sums.filter(pl.col("part") == name).select("rank", "step", pl.col("amount").alias("seen"))
        wide = wide.join(mine, on=["rank", "step"], how="left", maintain_order="left").with_columns(
            pl.max_horizontal(name, "seen").alias(name)
        ).drop("seen")  # fmt: skip
    return wide


def straggler_change(schedule: Schedule, parts: pl.DataFrame, ranks: pl.DataFrame, gaps: pl.DataFrame) -> Change | None:
    """Flagged ranks at the work of their role's ordinary ranks: step by step for persistent ones, slow steps for others."""
    flagged = ranks.filter(pl.col("verdict") != "ordinary").select(
        "rank", "role", "verdict", "cause", "slow_steps", "reference_ns"
    )
    if flagged.is_empty():
        return None
    columns = ("local_work_ns", *dict.fromkeys(_STALLS.values()))
    mine = _stalls(parts, gaps).select("rank", "step", *columns)
    role = ranks.select("rank", "role", (pl.col("verdict") == "persistent").alias("slow"))
    usual = (
        mine.join(role.filter(~pl.col("slow")), on="rank").group_by("role", "step")
        .agg(pl.col(name).median().alias(f"usual_{name}") for name in columns)
    )  # fmt: skip
    rows = mine.join(flagged, on="rank").join(usual, on=["role", "step"], how="left")
    calm = pl.col("reference_ns").cast(pl.Float64)
    usual_work = pl.when(pl.col("verdict") == "persistent").then(pl.col("usual_local_work_ns")).otherwise(calm)
    hit = (pl.col("verdict") == "persistent") | pl.col("step").is_in(pl.col("slow_steps"))
    rows = rows.filter(hit & usual_work.is_not_null()).with_columns(
        (pl.col("local_work_ns") - usual_work).clip(lower_bound=0).alias("excess")
    )
    stalls = [
        rows.filter(pl.col("cause") == cause).select(
            "rank",
            "step",
            pl.min_horizontal(pl.col(part) - pl.col(f"usual_{part}").fill_null(0), "excess")
            .clip(lower_bound=0)
            .alias("wanted"),
            pl.lit(part).alias("part"),
        )
        for cause, part in _STALLS.items()
    ]
    # What no gap holds goes in proportion to the work that is left.
    stalled = rows.join(
        pl.concat(stalls).select("rank", "step", "wanted"), on=["rank", "step"], how="left"
    ).with_columns(pl.col("wanted").fill_null(0))
    rest, left = pl.col("excess") - pl.col("wanted"), (pl.col("local_work_ns") - pl.col("wanted")).clip(lower_bound=1)
    scale = stalled.select("rank", "step", (1 - rest / left).clip(0.0, 1.0).alias("scale"))
    change = _without(schedule, parts, gaps, pl.concat(stalls).filter(pl.col("wanted") > 0))
    matrix = schedule.matrix(scale)
    if change is None:
        return Change(scale=matrix)
    return Change(scale=matrix if change.scale is None else matrix * change.scale, removal=change.removal)


def _without(schedule: Schedule, parts: pl.DataFrame, gaps: pl.DataFrame, wanted: pl.DataFrame) -> Change | None:
    """Take (rank, step, wanted, part) out of the gaps of that kind, or, where gaps do not show it, out of the whole step."""
    if wanted.is_empty():
        return None
    wanted = wanted.filter(
        pl.col("rank").is_in(schedule.ranks.tolist()) & pl.col("step").is_in(schedule.steps.tolist())
    )
    listed = _listed(gaps).join(wanted, on=["rank", "step", "part"])
    listed = listed.with_columns(pl.col("amount").sum().over("rank", "step", "part").alias("total")).filter(
        pl.col("total") >= _FOUND * pl.col("wanted")
    )
    spread = wanted.join(listed.select("rank", "step", "part").unique(), on=["rank", "step", "part"], how="anti")
    work = parts.select("rank", "step", "local_work_ns").filter(pl.col("local_work_ns") > 0)
    scale = spread.group_by("rank", "step").agg(pl.col("wanted").sum()).join(work, on=["rank", "step"]).select(
        "rank", "step", (1 - pl.col("wanted") / pl.col("local_work_ns")).clip(0.0, 1.0).alias("scale")
    )  # fmt: skip
    removal = None
    if len(listed):
        removal = Removal(
            np.searchsorted(schedule.ranks, listed.get_column("rank").to_numpy()), listed.get_column("start_ns").to_numpy(),
            (listed.get_column("start_ns") + listed.get_column("dur_ns")).to_numpy(),
            listed.select(
                (pl.col("wanted") / pl.col("total")).clip(0.0, 1.0) * (pl.col("amount") / pl.col("dur_ns"))
            ).to_series().to_numpy(),
        )  # fmt: skip
    return Change(scale=schedule.matrix(scale) if len(scale) else None, removal=removal)
