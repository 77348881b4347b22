"""Who waits, and for whom: waiting of each rank and waiting it causes by coming last."""

from __future__ import annotations

import polars as pl

SCHEMA = pl.Schema({"rank": pl.Int32, "wait_ns": pl.Int64, "caused_wait_ns": pl.Int64, "last_ratio": pl.Float64})


def who_waits(own: pl.DataFrame, caused: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Per step: own waiting, waiting of the others in instances where the rank came last, and how often it did.

    Args:
        own: (rank, wait_ns, calls), sums over its matched calls.
        caused: (rank, wait_ns, last), sums over the instances in which it came last.
        steps: steps that the sums cover.
    """
    count = max(steps, 1)
    table = own.join(caused.rename({"wait_ns": "caused"}), on="rank", how="left").with_columns(
        pl.col("caused", "last").fill_null(0)
    )
    return table.select(
        "rank", (pl.col("wait_ns") / count).round().cast(pl.Int64), (pl.col("caused") / count).round().cast(pl.Int64).alias("caused_wait_ns"),
        (pl.col("last") / pl.col("calls")).alias("last_ratio"),
    ).select(list(SCHEMA)).sort("rank")  # fmt: skip
