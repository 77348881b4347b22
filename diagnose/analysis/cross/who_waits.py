"""Who waits, and for whom: waiting of each rank and waiting it causes by coming last."""

from __future__ import annotations

import polars as pl

SCHEMA = pl.Schema({"rank": pl.Int32, "wait_ns": pl.Int64, "caused_wait_ns": pl.Int64, "last_ratio": pl.Float64})


def who_waits(collective: pl.DataFrame, collective_rank: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Per step: own waiting, waiting of the others in instances where the rank came last, and how often it did."""
    if collective_rank.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    count = max(steps, 1)
    judged = collective.filter(pl.col("last_rank").is_not_null())
    own = collective_rank.join(collective.filter(pl.col("wait_ns").is_not_null()).select("instance"), on="instance")
    wait = own.group_by("rank").agg(
        (pl.col("wait_ns").sum() / count).round().cast(pl.Int64).alias("wait_ns"), pl.len().alias("calls")
    )
    caused = judged.group_by(pl.col("last_rank").alias("rank")).agg(
        (pl.col("wait_ns").sum() / count).round().cast(pl.Int64).alias("caused_wait_ns"), pl.len().alias("last")
    )
    return (
        wait.join(caused, on="rank", how="left")
        .with_columns(pl.col("caused_wait_ns").fill_null(0), (pl.col("last").fill_null(0) / pl.col("calls")).alias("last_ratio"))
        .select(list(SCHEMA)).sort("rank")
    )  # fmt: skip
