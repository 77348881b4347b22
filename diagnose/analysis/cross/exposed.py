"""Exposed communication of each step divided into waiting and transfer, and what of the transfer blocks the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.intervals import COMM, COMPUTE, split

if TYPE_CHECKING:
    from numpy.typing import NDArray


def divide_exposed(breakdown: pl.DataFrame, calls: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Breakdown rows with exposed_wait_ns and exposed_transfer_ns where every exposed call of the step is matched.

    An instant counts as transfer when any exposed call is past its waiting prefix, so concurrent calls are not counted
    twice; the rest of exposed_comm is waiting. Steps with unmatched exposed calls stay null: waiting is unknown there.

    Args:
        breakdown: rows (rank, step) with exposed_comm_ns.
        calls: comm_call rows.
        members: collective_rank rows with wait_ns, of groups that may be believed.
    """
    whole = calls.with_columns(pl.lit(-1, pl.Int64).alias("step"))
    joined = pl.concat([calls.filter(pl.col("step").is_not_null()), whole]).filter(pl.col("exposed_ns") > 0).join(
        members.select("rank", "call", "wait_ns"), on=["rank", "call"], how="left"
    )
    if joined.is_empty():
        settled = pl.when(pl.col("exposed_comm_ns") == 0).then(0)
        return breakdown.with_columns(settled.alias("exposed_wait_ns"), settled.alias("exposed_transfer_ns"))
    unknown = joined.filter(pl.col("wait_ns").is_null()).group_by("rank", "step").agg(pl.col("exposed_ns").sum().alias("unknown_ns"))
    pieces = (
        joined.filter(pl.col("wait_ns").is_not_null())
        .select("rank", "step", "start_ns", "wait_ns", "exposed_from_ns", "exposed_to_ns", (pl.col("collective") == "send").alias("send"))
        .explode("exposed_from_ns", "exposed_to_ns")
        .sort("rank", "step")
    )
    owners = pieces.select("rank", "step").unique(maintain_order=True).with_row_index("owner")
    transfer = owners.with_columns(pl.Series("transfer", _transfer_ns(pieces.join(owners, on=["rank", "step"]), len(owners)))).drop("owner")
    rows = breakdown.join(transfer, on=["rank", "step"], how="left").join(unknown, on=["rank", "step"], how="left")
    little = pl.col("unknown_ns").fill_null(0) <= 0.05 * pl.col("exposed_comm_ns")
    known = pl.when(little).then(pl.min_horizontal(pl.col("transfer").fill_null(0), pl.col("exposed_comm_ns")))
    return rows.with_columns(known.alias("exposed_transfer_ns")).with_columns(
        (pl.col("exposed_comm_ns") - pl.col("exposed_transfer_ns")).alias("exposed_wait_ns")
    ).drop("transfer", "unknown_ns")


def _transfer_ns(pieces: pl.DataFrame, owners: int) -> NDArray[np.int64]:
    """Exposed transfer of each owner. A send blocks nobody while a receive or a collective is what is waited for."""
    low = np.maximum(pieces.get_column("exposed_from_ns").to_numpy(), pieces.get_column("wait_ns").to_numpy())
    high = np.maximum(pieces.get_column("exposed_to_ns").to_numpy(), low)
    start, owner = pieces.get_column("start_ns").to_numpy(), pieces.get_column("owner").to_numpy().astype(np.int64)
    send = pieces.get_column("send").to_numpy()
    waited = ~send
    first = pieces.get_column("exposed_from_ns").to_numpy()[waited]
    last = pieces.get_column("exposed_to_ns").to_numpy()[waited]
    own = split((start + low)[waited], (start + high)[waited], np.full(int(waited.sum()), COMM, np.int8), owner[waited], owners).comm_ns
    beside = split(
        np.concatenate(((start[waited] + first), (start + low)[send])),
        np.concatenate(((start[waited] + last), (start + high)[send])),
        np.concatenate((np.full(int(waited.sum()), COMPUTE, np.int8), np.full(int(send.sum()), COMM, np.int8))),
        np.concatenate((owner[waited], owner[send])),
        owners,
    ).exposed_comm_ns
    return own + beside


def blocking_comm(breakdown: pl.DataFrame) -> pl.DataFrame:
    """Per step: the critical rank (least exposed wait) and its exposed transfer. Grain: step."""
    known = breakdown.filter((pl.col("step") >= 0) & pl.col("exposed_wait_ns").is_not_null())
    return (
        known.sort("step", "exposed_wait_ns", "rank")
        .group_by("step", maintain_order=True)
        .agg(
            pl.col("rank").first().alias("critical_rank"), pl.col("exposed_transfer_ns").first().alias("blocking_comm_ns"),
            pl.col("span_ns").first().alias("span_ns"),
        )
    )  # fmt: skip
