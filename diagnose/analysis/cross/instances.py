"""Matched collectives as they are held until clocks are known: one row an instance, and bare numbers of its members."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from diagnose.analysis.cross.exposed import CONTROL_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROOTED = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "send_recv")


class Instances(NamedTuple):
    """``table`` has one row an instance; the arrays have one value a member, instance by instance: the ``row`` of its call
    among all calls, its ``rank``, start and duration on its own clock. ``rooted`` is per instance: some member need not
    wait for the others. ``coverage`` per group: calls seen, calls in whole instances.
    """

    table: pl.DataFrame
    row: NDArray[np.int64]
    rank: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    rooted: NDArray[np.bool_]
    coverage: pl.DataFrame


def gather(members: pl.DataFrame, calls: pl.DataFrame) -> Instances:
    """The instances of one batch of groups.

    Args:
        members: matched calls ordered by instance, one row a (instance, rank).
        calls: all calls of the batch with group_id, for the matched share.
    """
    table = members.group_by("instance", maintain_order=True).agg(
        pl.col("group_id").first(), pl.col("is_p2p").first(), _kind(), pl.col("seq").min(), pl.col("step").median(), pl.col("dtype").first().cast(pl.String),
        _whole_message(), pl.col("size").first().alias("members"), pl.len().alias("seen"), pl.col("match_method").first(),
        (pl.col("token").min() != pl.col("token").max()).alias("mixed"), pl.col("collective").is_in(list(ROOTED)).any().alias("rooted"),
    )  # fmt: skip
    row, rank, start, duration = (members.get_column(name).to_numpy() for name in ("row", "rank", "start_ns", "dur_ns"))
    rooted = table.get_column("rooted").fill_null(value=False).to_numpy()
    return Instances(table.drop("rooted"), row, rank, start, duration, rooted, _coverage(table, calls))


def _kind() -> pl.Expr:
    """Kind of the instance; a transfer between two ranks goes by its receive."""
    kind = pl.col("collective").first()
    return (
        pl.when(pl.col("match_method").first() == "p2p")
        .then(pl.lit("recv").cast(pl.String))
        .otherwise(kind.cast(pl.String))
        .alias("collective")
    )


def _whole_message() -> pl.Expr:
    """S of the instance. An all-gather whose trace has the shard only is the members times that."""
    shard_only = (pl.col("collective") == "all_gather") & pl.col("out_elems").is_null() & pl.col("group_size").is_null()
    return (pl.col("msg_bytes") * pl.when(shard_only).then(pl.col("size")).otherwise(1)).max().alias("msg_bytes")


def _coverage(table: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Per (group, point to point or not): calls seen, calls in complete instances."""
    key = ["group_id", "is_p2p"]
    matched = table.filter(pl.col("seen") == pl.col("members")).group_by(key).agg(pl.col("seen").sum().alias("matched"))
    control = pl.col("is_p2p") & pl.col("peer").is_null() & (pl.col("msg_bytes") <= CONTROL_BYTES)
    total = calls.filter(pl.col("group_id").is_not_null() & ~control.fill_null(value=False)).group_by(key).len("calls")
    return total.join(matched, on=key, how="left").with_columns(pl.col("matched").fill_null(0)).sort(key)
