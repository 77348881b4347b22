"""Exposed communication of each step divided into waiting and transfer, and what of the transfer blocks the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.intervals import COMM, COMPUTE, split

if TYPE_CHECKING:
    from numpy.typing import NDArray


CONTROL_BYTES = 64
"""A message of a few words moves nothing: time in an unmatched one (a monitored barrier, a hand-shake) is waiting."""

HANDSHAKE_BYTES = 128
"""The debug wrapper of process groups gathers a fingerprint of up to eleven words from every member before each call."""

_UNKNOWN_RATIO = 0.05


def mark_handshakes(calls: pl.DataFrame) -> pl.DataFrame:
    """Adds ``handshake``: calls of the debug wrapper (TORCH_DISTRIBUTED_DEBUG=DETAIL), which check and move nothing.

    Its monitored barrier sends words to nobody in particular; only where these are seen, tiny gathers are its as well.
    """
    tiny = pl.col("is_p2p") & pl.col("peer").is_null() & (pl.col("msg_bytes") <= CONTROL_BYTES)
    if calls.filter(tiny).is_empty():
        return calls.with_columns(handshake=pl.lit(value=False))
    gather = (pl.col("collective") == "all_gather") & (pl.col("msg_bytes") <= HANDSHAKE_BYTES)
    return calls.with_columns((tiny | gather).fill_null(value=False).alias("handshake"))


def divide_exposed(breakdown: pl.DataFrame, calls: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Breakdown rows with exposed_wait_ns, exposed_transfer_ns, an upper bound of it, its blocking part, late_comm_ns.

    An instant counts as transfer when any exposed call is past its waiting prefix, so concurrent calls are not counted
    twice; the rest of exposed_comm is waiting. Steps with unmatched exposed calls stay null: waiting is unknown there.

    Args:
        breakdown: rows (rank, step) with exposed_comm_ns; step -1 is the whole trace.
        calls: comm_call rows with ``handshake``: all of such a call is waiting.
        members: rows (rank, call) with wait_ns, and ``certain``: false where some members were not seen, so that the
            wait is only a lower bound.
    """
    exposed = calls.filter(pl.col("exposed_ns") > 0).join(
        members.select("rank", "call", "wait_ns", "certain"), on=["rank", "call"], how="left", maintain_order="left"
    )
    whole = exposed.with_columns(pl.lit(-1, pl.Int64).alias("step"))
    joined = pl.concat([exposed.filter(pl.col("step").is_not_null()), whole]).with_columns(
        (pl.col("handshake") | (pl.col("wait_ns").is_null() & (pl.col("msg_bytes") <= CONTROL_BYTES)))
        .fill_null(value=False)
        .alias("control")
    )
    joined = joined.with_columns(
        pl.when(pl.col("control")).then(pl.col("dur_ns")).otherwise(pl.col("wait_ns").fill_null(0)).alias("wait_ns"),
        (pl.col("certain").fill_null(value=False) | pl.col("control")).alias("certain"),
    )
    sure = joined.filter(pl.col("certain"))
    certain = _owned_transfer(sure, "transfer")
    bound = certain.rename({"transfer": "bound"}) if len(sure) == len(joined) else _owned_transfer(joined, "bound")
    unknown = (
        joined.filter(~pl.col("certain")).group_by("rank", "step").agg(pl.col("exposed_ns").sum().alias("unknown_ns"))
    )
    rows = breakdown
    if joined.get_column("exposed_late_ns").null_count() == len(joined):
        blocking = certain.rename({"transfer": "blocking"})
    else:
        blocking = _owned_transfer(sure.with_columns(_whole_late().alias("exposed_from_ns")), "blocking")
    late = _owned_late(joined)
    for part in (certain, bound, unknown, blocking, late):
        rows = rows.join(part, on=["rank", "step"], how="left")
    little = pl.col("unknown_ns").fill_null(0) <= _UNKNOWN_RATIO * pl.col("exposed_comm_ns")
    known = pl.when(little).then(pl.min_horizontal(pl.col("transfer").fill_null(0), pl.col("exposed_comm_ns")))
    return (
        rows.with_columns(
            known.alias("exposed_transfer_ns"),
            pl.min_horizontal(pl.col("bound").fill_null(0), pl.col("exposed_comm_ns")).alias("exposed_transfer_max_ns"),
            pl.min_horizontal(pl.col("late").fill_null(0), pl.col("exposed_comm_ns")).alias("late_comm_ns"),
        )
        .with_columns(pl.min_horizontal(pl.col("blocking").fill_null(0), "exposed_transfer_ns").alias("blocking"))
        .with_columns(
            (pl.col("exposed_comm_ns") - pl.col("exposed_transfer_ns")).alias("exposed_wait_ns"),
            pl.when(pl.col("exposed_transfer_ns").is_not_null()).then(pl.col("blocking")).alias("blocking_transfer_ns"),
            pl.col("local_work_ns") + pl.col("late_comm_ns").fill_null(0),
        )
        .drop("transfer", "bound", "unknown_ns", "blocking", "late")
    )


def _whole_late() -> pl.Expr:
    """Where each stretch starts once the host has launched what follows; its own start where launches are unknown."""
    return pl.coalesce("exposed_late_ns", "exposed_from_ns")


def _owned_late(joined: pl.DataFrame) -> pl.DataFrame:
    """Exposed time before the launch of what follows, per (rank, step): the union over its calls."""
    pieces = (
        joined.filter(pl.col("exposed_late_ns").is_not_null()).select("rank", "step", "start_ns", "exposed_from_ns", "exposed_late_ns")
        .explode("exposed_from_ns", "exposed_late_ns").drop_nulls().filter(pl.col("exposed_late_ns") > pl.col("exposed_from_ns")).sort("rank", "step")
    )  # fmt: skip
    owners = pieces.select("rank", "step").unique(maintain_order=True).with_row_index("owner")
    placed = pieces.join(owners, on=["rank", "step"], maintain_order="left")
    start = placed.get_column("start_ns").to_numpy()
    lengths = split(
        start + placed.get_column("exposed_from_ns").to_numpy(), start + placed.get_column("exposed_late_ns").to_numpy(),
        np.full(len(placed), COMM, np.int8), placed.get_column("owner").to_numpy().astype(np.int64), len(owners),
    ).comm_ns  # fmt: skip
    return owners.with_columns(pl.Series("late", lengths, dtype=pl.Int64)).drop("owner")


def call_exposure(calls: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Exposed wait and transfer of every matched call by itself. Grain: (instance, rank).

    Concurrent calls are both exposed at the same instant; for sums over a step use divide_exposed.
    """
    joined = members.select("instance", "rank", "call", "wait_ns").join(
        calls.select("rank", "call", "exposed_ns", "exposed_from_ns", "exposed_to_ns"), on=["rank", "call"]
    )
    pieces = joined.explode("exposed_from_ns", "exposed_to_ns").with_columns(
        (pl.col("exposed_to_ns") - pl.max_horizontal("exposed_from_ns", "wait_ns"))
        .clip(lower_bound=0)
        .fill_null(0)
        .alias("piece")
    )
    sums = pieces.group_by("instance", "rank").agg(
        pl.col("piece").sum().alias("exposed_transfer_ns"), pl.col("exposed_ns").first()
    )
    return sums.with_columns((pl.col("exposed_ns") - pl.col("exposed_transfer_ns")).alias("exposed_wait_ns")).drop(
        "exposed_ns"
    )


def _owned_transfer(joined: pl.DataFrame, name: str) -> pl.DataFrame:
    """Exposed transfer per (rank, step) under the waits given."""
    pieces = (
        joined.select(
            "rank",
            "step",
            "start_ns",
            "wait_ns",
            "exposed_from_ns",
            "exposed_to_ns",
            (pl.col("collective") == "send").alias("send"),
        )
        .explode("exposed_from_ns", "exposed_to_ns")
        .sort("rank", "step")
    )
    owners = pieces.select("rank", "step").unique(maintain_order=True).with_row_index("owner")
    lengths = _transfer_ns(pieces.join(owners, on=["rank", "step"]), len(owners))
    return owners.with_columns(pl.Series(name, lengths, dtype=pl.Int64)).drop("owner")


def _transfer_ns(pieces: pl.DataFrame, owners: int) -> NDArray[np.int64]:
    """Exposed transfer of each owner. A send blocks nobody while a receive or a collective is what is waited for."""
    low = np.maximum(pieces.get_column("exposed_from_ns").to_numpy(), pieces.get_column("wait_ns").to_numpy())
    high = np.maximum(pieces.get_column("exposed_to_ns").to_numpy(), low)
    start, owner = pieces.get_column("start_ns").to_numpy(), pieces.get_column("owner").to_numpy().astype(np.int64)
    send = pieces.get_column("send").to_numpy()
    apart, tangled = _apart(start + low, start + high, owner, send, owners)
    if not tangled.any():
        return apart
    mine = tangled[owner]
    return np.where(tangled, _tangled_ns(pieces.filter(pl.Series(mine)), low[mine], high[mine], owners), apart)


def _apart(
    low: NDArray[np.int64], high: NDArray[np.int64], owner: NDArray[np.int64], send: NDArray[np.bool_], owners: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Lengths where the pieces of an owner lie apart, and which owners have overlapping pieces or sends."""
    total = np.bincount(owner, high - low, owners).astype(np.int64)
    order = np.lexsort((low, owner))
    place = owner[order]
    together = (place[1:] == place[:-1]) & (low[order][1:] < high[order][:-1])
    tangled = np.zeros(owners, bool)
    tangled[place[1:][together]] = True
    tangled[owner[send]] = True
    return total, tangled


def _tangled_ns(
    pieces: pl.DataFrame, low: NDArray[np.int64], high: NDArray[np.int64], owners: int
) -> NDArray[np.int64]:
    """Union of overlapping pieces; of sends only what lies beside everything that is waited for."""
    start, owner = pieces.get_column("start_ns").to_numpy(), pieces.get_column("owner").to_numpy().astype(np.int64)
    send = pieces.get_column("send").to_numpy()
    waited = ~send
    first = pieces.get_column("exposed_from_ns").to_numpy()[waited]
    last = pieces.get_column("exposed_to_ns").to_numpy()[waited]
    count = int(waited.sum())
    own = split(
        (start + low)[waited], (start + high)[waited], np.full(count, COMM, np.int8), owner[waited], owners
    ).comm_ns
    if not send.any():
        return own
    beside = split(
        np.concatenate(((start[waited] + first), (start + low)[send])),
        np.concatenate(((start[waited] + last), (start + high)[send])),
        np.concatenate((np.full(count, COMPUTE, np.int8), np.full(int(send.sum()), COMM, np.int8))),
        np.concatenate((owner[waited], owner[send])),
        owners,
    ).exposed_comm_ns
    return own + beside


def blocking_comm(breakdown: pl.DataFrame) -> pl.DataFrame:
    """Per step: the critical rank (least exposed wait) and what blocks it; the bound where waits are unknown.

    Grain: step. blocking_comm_ns is null where any rank's wait is unknown; blocking_max_ns is the least upper bound.
    """
    frame = breakdown.filter(pl.col("exposed_comm_ns").is_not_null())
    critical = (
        frame.filter(pl.col("exposed_wait_ns").is_not_null()).sort("step", "exposed_wait_ns", "rank")
        .group_by("step", maintain_order=True)
        .agg(pl.col("rank").first().alias("critical_rank"), pl.col("blocking_transfer_ns").first().alias("blocking_comm_ns"))
    )  # fmt: skip
    bounds = frame.group_by("step").agg(
        (pl.col("exposed_transfer_max_ns") - pl.col("late_comm_ns").fill_null(0))
        .clip(lower_bound=0)
        .min()
        .alias("blocking_max_ns"),
        pl.col("span_ns").median(),
    )
    return bounds.join(critical, on="step", how="left").sort("step")
