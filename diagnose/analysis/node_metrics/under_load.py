"""GPU samples while the GPU worked: clocks, widths and power of an idle GPU say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.node_metrics.load import samples

if TYPE_CHECKING:
    from diagnose.analysis.node_metrics.load import Tables

LOADED_UTIL = 0.9
LOADED_POWER = 0.5
"""Share of the power limit from which a GPU without utilisation counts as working."""

_KEY = ["host", "entity", "source", "t_ns"]
LOAD_METRICS = ("gpu.util", "gpu.gr_active", "gpu.power", "gpu.power_limit")
LEVELS = (
    "gpu.sm_clock",
    "gpu.sm_clock_max",
    "gpu.mem_clock",
    "gpu.temp",
    "gpu.mem_temp",
    "gpu.temp_margin",
    "gpu.temp_limit_slowdown",
    "gpu.throttle_mask",
    "gpu.pcie_gen",
    "gpu.pcie_gen_max",
    "gpu.pcie_width",
    "gpu.pcie_width_max",
)


def loaded_polls(tables: Tables, aliases: dict[str, str], window: tuple[int, int] | None) -> pl.DataFrame:
    """One row per GPU and poll: every level of that poll, and ``loaded`` (null when nothing tells).

    Metrics of one poll share file and time; exporters scraped into one range share the time.
    """
    frame = samples(tables, (*LOAD_METRICS, *LEVELS), aliases)
    if frame.is_empty():
        return pl.DataFrame(schema={"host": pl.String, "entity": pl.String, "loaded": pl.Boolean})
    if window is not None:
        inside = frame.filter(pl.col("t_ns").is_between(*window))
        frame = inside if not inside.is_empty() else frame
    frame = frame.filter(pl.col("value").is_not_null()).with_columns(
        pl.when(pl.col("t_ns").is_null()).then(pl.col("source")).otherwise(pl.lit("")).alias("source")
    )
    order = frame.with_columns(pl.int_range(pl.len()).over(["metric", *_KEY]).alias("poll"))
    order = order.with_columns(pl.when(pl.col("t_ns").is_null()).then(pl.col("poll")).otherwise(0).alias("poll"))
    wide = order.pivot(on="metric", index=[*_KEY, "poll"], values="value", aggregate_function="last")
    missing = [name for name in (*LOAD_METRICS, *LEVELS) if name not in wide.columns]
    wide = wide.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in missing)
    share = pl.col("gpu.power") / pl.col("gpu.power_limit").max().over(["host", "entity"])
    loaded = (
        pl.when(pl.col("gpu.util").is_not_null())
        .then(pl.col("gpu.util") >= LOADED_UTIL)
        .when(pl.col("gpu.gr_active").is_not_null())
        .then(pl.col("gpu.gr_active") >= LOADED_UTIL)
        .otherwise(share >= LOADED_POWER)
    )
    return wide.with_columns(loaded.alias("loaded")).sort(_KEY, nulls_last=True)
