"""Same work, how fast; and how much work: kernels of equal signature compared over the ranks."""

from __future__ import annotations

import polars as pl

_MATRIX = r"(?i)gemm|nvjet|xmma|cutlass|cublas|conv|wgrad|dgrad|Cijk_|mma|flash|fmha|attention|linear|addmm|matmul|bmm|einsum|_mm\b|::mm\b"
_SHARED_RATIO = 0.5
_MIN_WEIGHT = 0.002
_CORE_RATIO = 0.8
"""The fewest signatures that take this share of the time are what the rank is there for; the rest runs on its host."""

SCHEMA = pl.Schema(
    {
    "rank": pl.Int32, "speed_ratio": pl.Float64, "speed_spread_ratio": pl.Float64, "matrix_ratio": pl.Float64, "memory_ratio": pl.Float64,
    "breadth_ratio": pl.Float64, "volume_ratio": pl.Float64, "unshared_ratio": pl.Float64,
    }
)  # fmt: skip


def compare_speed(stats: pl.DataFrame, roles: dict[int, int]) -> pl.DataFrame:
    """Speed and volume of every rank against the others. Grain: rank; ratios minus 1, null where nothing compares.

    A signature (name and shape) that half of the ranks run is shared: its reference duration is the median over the
    ranks. ``speed`` weighs ratios by time; ``breadth`` is the same without the few signatures that take most of it, so
    that a slow device (its own kernels) and a slow host (everything) look different. ``unshared`` is the share of time in
    signatures that peers do not run, above what is usual in the role: where shapes vary everywhere, none stands out.

    Args:
        stats: kernel_stat rows of normal steps (rank, class, name, signature, count, total_ns).
        roles: role of each rank; volume is compared within a role.
    """
    work = stats.filter(pl.col("class").is_in(["compute", "cpu_op"]) & (pl.col("rank") >= 0))
    if work.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    per = work.group_by("rank", "signature").agg(
        pl.col("name").first(), pl.col("count").sum(), pl.col("total_ns").sum()
    )
    per = per.with_columns(
        (pl.col("total_ns") / pl.col("count")).alias("mean_ns"),
        pl.col("rank").replace_strict(roles, default=0).alias("role"),
    )
    ranks = per.get_column("rank").n_unique()
    in_role = per.select("rank", "role").unique().group_by("role").len("role_ranks")
    reference = (
        per.group_by("signature")
        .agg(
            pl.col("mean_ns").median().alias("ref_ns"),
            (pl.len() / ranks).alias("spread"),
            pl.col("total_ns").sum().alias("weight"),
        )
        .sort("weight", "signature", descending=[True, False])
    )
    before = pl.col("weight").cum_sum() - pl.col("weight")
    reference = reference.with_columns((before < _CORE_RATIO * pl.col("weight").sum()).alias("core"))
    by_role = per.group_by("role", "signature").agg(pl.len().alias("running")).join(in_role, on="role")
    by_role = by_role.with_columns((pl.col("running") / pl.col("role_ranks")).alias("share"))
    joined = per.join(reference, on="signature").join(
        by_role.select("role", "signature", "share"), on=["role", "signature"]
    )
    total = float(reference.get_column("weight").sum())
    joined = joined.with_columns(
        (pl.col("mean_ns").clip(lower_bound=1.0) / pl.col("ref_ns").clip(lower_bound=1.0)).log().alias("log_ratio"),
        ((pl.col("share") >= _SHARED_RATIO) & (pl.col("spread") > 1.0 / max(ranks, 2))).alias("shared"),
    )
    names = joined.select("name").unique().with_columns(pl.col("name").str.contains(_MATRIX).alias("matrix"))
    joined = joined.join(names, on="name", maintain_order="left")
    shared = joined.filter(pl.col("shared"))
    weighty = shared.filter(pl.col("weight") >= _MIN_WEIGHT * total)
    speed = shared.group_by("rank").agg(_weighted("log_ratio").alias("speed_ratio"))
    spread = weighty.group_by("rank").agg(
        (pl.col("log_ratio").quantile(0.75) - pl.col("log_ratio").quantile(0.25)).alias("speed_spread_ratio")
    )
    rest = shared.filter(~pl.col("core")).group_by("rank").agg(
        (pl.col("total_ns").sum() / (pl.col("count") * pl.col("ref_ns")).sum().clip(lower_bound=1.0) - 1).alias("breadth_ratio")
    )  # fmt: skip
    matrix = shared.filter(pl.col("matrix")).group_by("rank").agg(_weighted("log_ratio").alias("matrix_ratio"))
    memory = shared.filter(~pl.col("matrix")).group_by("rank").agg(_weighted("log_ratio").alias("memory_ratio"))
    volume = joined.group_by("rank", "role").agg(
        pl.when(pl.col("shared"))
        .then(pl.col("count") * pl.col("ref_ns"))
        .otherwise(pl.col("total_ns"))
        .sum()
        .alias("volume"),
        (pl.col("total_ns").filter(~pl.col("shared")).sum() / pl.col("total_ns").sum()).alias("unshared_ratio"),
    )
    volume = volume.with_columns(
        (pl.col("volume") / pl.col("volume").median().over("role") - 1).alias("volume_ratio"),
        (pl.col("unshared_ratio") - pl.col("unshared_ratio").median().over("role")).clip(lower_bound=0.0),
    )
    result = volume.select("rank", "volume_ratio", "unshared_ratio")
    for part in (speed, spread, rest, matrix, memory):
        result = result.join(part, on="rank", how="left")
    return result.select(list(SCHEMA)).sort("rank")


def _weighted(column: str) -> pl.Expr:
    """Time-weighted mean of a log ratio, as a ratio minus 1."""
    return ((pl.col(column) * pl.col("total_ns")).sum() / pl.col("total_ns").sum()).exp() - 1
