"""Exposed communication of each step divided into waiting and transfer, and what of the transfer blocks the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.stretches import Owners, Stretches, rank_owners, step_owners
from diagnose.analysis.intervals import COMM, COMPUTE, split, union_ns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

CONTROL_BYTES = 64
"""A message of a few words moves nothing: time in an unmatched one (a monitored barrier, a hand-shake) is waiting."""

HANDSHAKE_BYTES = 128
"""The debug wrapper of process groups gathers a fingerprint of up to eleven words from every member before each call."""

UNMATCHED = -1
"""In place of the wait of a call that no instance holds."""

_UNKNOWN_RATIO = 0.05


class Waited(NamedTuple):
    """What matching says of each call: ``wait_ns`` or UNMATCHED, and ``certain``: false where some members were not seen, so
    that the wait is only a lower bound.
    """

    wait_ns: Ints
    certain: Flags


def mark_handshakes(calls: pl.DataFrame) -> pl.DataFrame:
    """Adds ``handshake``: calls of the debug wrapper (TORCH_DISTRIBUTED_DEBUG=DETAIL), which check and move nothing.

    Its monitored barrier sends words to nobody in particular; only where these are seen, tiny gathers are its as well.
    """
    tiny = pl.col("is_p2p") & pl.col("peer").is_null() & (pl.col("msg_bytes") <= CONTROL_BYTES)
    if calls.filter(tiny).is_empty():
        return calls.with_columns(handshake=pl.lit(value=False))
    gather = (pl.col("collective") == "all_gather") & (pl.col("msg_bytes") <= HANDSHAKE_BYTES)
    return calls.with_columns((tiny | gather).fill_null(value=False).alias("handshake"))


def divide_exposed(breakdown: pl.DataFrame, calls: pl.DataFrame, stretches: Stretches, waited: Waited) -> pl.DataFrame:
    """Breakdown rows with exposed_wait_ns, exposed_transfer_ns, an upper bound of it, its blocking part, late_comm_ns.

    An instant counts as transfer when any exposed call is past its waiting prefix, so concurrent calls are not counted
    twice; the rest of exposed_comm is waiting. Steps with unmatched exposed calls stay null: waiting is unknown there.

    Args:
        breakdown: rows (rank, step) with exposed_comm_ns; step -1 is the whole trace.
        calls: comm_call rows in order of rank and start, with ``handshake``: all of such a call is waiting.
        stretches: their exposed stretches.
        waited: what matching says of each call.
    """
    rows = breakdown.join(_divided(calls, stretches, waited), on=["rank", "step"], how="left", maintain_order="left")
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


def call_exposure(exposed_ns: Ints, stretches: Stretches, wait_ns: Ints) -> tuple[Ints, Ints]:
    """Exposed wait and transfer of every call by itself.

    Concurrent calls are both exposed at the same instant; for sums over a step use divide_exposed.
    """
    past = np.maximum(stretches.high - np.maximum(stretches.low, wait_ns[stretches.row]), 0)
    transfer = np.bincount(stretches.row, past, len(exposed_ns)).astype(np.int64)
    return exposed_ns - transfer, transfer


def _divided(calls: pl.DataFrame, stretches: Stretches, waited: Waited) -> pl.DataFrame:
    """Per (rank, step), and per rank as step -1: transfer, its bound, its blocking part, late and unknown time."""
    control = (
        calls.select(
            pl.col("handshake") | (pl.Series(waited.wait_ns == UNMATCHED) & (pl.col("msg_bytes") <= CONTROL_BYTES))
        )
        .to_series().fill_null(value=False).to_numpy()
    )  # fmt: skip
    duration, exposed = calls.get_column("dur_ns").to_numpy(), calls.get_column("exposed_ns").fill_null(0).to_numpy()
    wait = np.where(control, duration, np.maximum(waited.wait_ns, 0))
    certain = waited.certain | control
    send = (calls.get_column("collective").cast(pl.String) == "send").fill_null(value=False).to_numpy()
    start = calls.get_column("start_ns").to_numpy()
    counted = stretches.of(exposed > 0)
    parts = []
    for owners in (step_owners(calls), rank_owners(calls)):
        pieces = _Pieces(counted.of(owners.number >= 0), start, wait, send, owners)
        sure = certain[pieces.stretches.row]
        transfer = pieces.transfer(sure)
        whole = bool(sure.all())
        mine = (owners.number >= 0) & ~certain & (exposed > 0)
        parts.append(
            owners.table.with_columns(
                pl.Series("transfer", transfer),
                pl.Series("bound", transfer if whole else pieces.transfer(np.ones_like(sure))),
                pl.Series("blocking", pieces.transfer(sure, late=True) if stretches.any_late else transfer),
                pl.Series("late", pieces.late()),
                pl.Series(
                    "unknown_ns",
                    np.bincount(owners.number[mine], exposed[mine], len(owners.table)).astype(np.int64),
                ),
            )
        )
    return pl.concat(parts)


class _Pieces(NamedTuple):
    """Exposed stretches with what is known of their calls, and who owns them."""

    stretches: Stretches
    start: Ints
    wait: Ints
    send: Flags
    owners: Owners

    def transfer(self, chosen: Flags, *, late: bool = False) -> Ints:
        """Exposed transfer of each owner over the stretches chosen; ``late``: only once the host had launched what follows.

        A send blocks nobody while a receive or a collective is what is waited for.
        """
        mine = self.stretches.only(chosen)
        owner, start = self.owners.number[mine.row], self.start[mine.row]
        since = mine.late if late else mine.low
        low = np.maximum(since, self.wait[mine.row])
        high = np.maximum(mine.high, low)
        send, count = self.send[mine.row], len(self.owners.table)
        if not send.any():
            return union_ns(start + low, start + high, owner, count)
        waited = ~send
        own = union_ns((start + low)[waited], (start + high)[waited], owner[waited], count)
        sends = np.zeros(count, np.bool_)
        sends[owner[send]] = True
        waited &= sends[owner]
        beside = split(
            np.concatenate(((start + since)[waited], (start + low)[send])),
            np.concatenate(((start + mine.high)[waited], (start + high)[send])),
            np.concatenate((np.full(int(waited.sum()), COMPUTE, np.int8), np.full(int(send.sum()), COMM, np.int8))),
            np.concatenate((owner[waited], owner[send])),
            count,
        ).exposed_comm_ns
        return own + beside

    def late(self) -> Ints:
        """Exposed time of each owner before the launch of what follows."""
        mine = self.stretches.only(self.stretches.late > self.stretches.low)
        start = self.start[mine.row]
        return union_ns(start + mine.low, start + mine.late, self.owners.number[mine.row], len(self.owners.table))


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
