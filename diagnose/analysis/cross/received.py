"""How evenly all-to-all hands out bytes: the tokens that experts get."""

from __future__ import annotations

import polars as pl

SCHEMA = pl.Schema({"rank": pl.Int32, "step": pl.Int64, "ratio": pl.Float64})
_KINDS = ("all_to_all", "all_to_allv")


def received_ratio(calls: pl.DataFrame) -> pl.DataFrame:
    """Elements received per rank and step over the mean of the ranks of its groups, minus 1.

    Args:
        calls: comm_call rows with group_id.
    """
    rows = calls.filter(
        pl.col("collective").is_in(list(_KINDS))
        & (pl.col("out_elems") > 0)
        & pl.col("step").is_not_null()
        & (pl.col("rank") >= 0)
    )
    if rows.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    per = rows.group_by("group_id", "rank", "step").agg(pl.col("out_elems").sum().cast(pl.Float64).alias("got"))
    per = per.with_columns(pl.col("got").mean().over("group_id", "step").alias("mean"))
    total = per.group_by("rank", "step").agg((pl.col("got").sum() / pl.col("mean").sum() - 1).alias("ratio"))
    return total.select(list(SCHEMA)).cast(SCHEMA).sort("rank", "step")


def imbalance(received: pl.DataFrame) -> float | None:
    """Median over the steps of the busiest rank's ratio; None without all-to-all."""
    if received.is_empty():
        return None
    return float(received.group_by("step").agg(pl.col("ratio").max()).get_column("ratio").median() or 0.0)  # type: ignore[arg-type]
