"""Each matched collective split into waiting and transfer, its skew, its last member, its bandwidth.

Synchronising kinds need no clock: transfer = the shortest duration, wait = duration - transfer. Rooted kinds and
send/recv use aligned clocks: transfer = end - latest start. Source: algorithms, wait against transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.bandwidth import busbw_factor
from diagnose.analysis.cross.clocks import aligned_ranks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from diagnose.analysis.cross.clocks import Clocks
    from diagnose.analysis.cross.instances import Instances

MATCHED_RATIO = 0.95
"""Below it nothing is claimed from a group: the shortest duration over some members is no transfer time."""

_LONE_RATIO = 0.7
_LEFT_EARLY = 0.5
_MANY = 16
"""From here on a single member that leaves before the others is no measure of the transfer. A straggler is the shortest
as well, but because it starts late: only who also ends early is set aside."""


class Waits(NamedTuple):
    """``collective`` as the store's table; ``wait_ns`` of every member, in the order of the instances."""

    collective: pl.DataFrame
    wait_ns: NDArray[np.int64]


def split_waits(instances: Instances, clocks: Clocks, hosts: Mapping[int, str]) -> Waits:
    """Waiting and transfer of every instance.

    Args:
        instances: what was matched.
        clocks: clocks by host.
        hosts: host by rank.
    """
    rows = _Rows(instances, clocks, hosts)
    shortest, longest = rows.least(rows.duration), rows.most(rows.duration)
    latest, last_end = rows.most(rows.start), rows.most(rows.end)
    rooted = instances.rooted
    transfer = _without_early_leavers(rows, shortest)
    # A receive cannot be waiting once its sender has started; where clocks contradict the durations, durations hold.
    transfer = np.where(rooted, np.minimum(np.maximum(last_end - latest, 0), longest), transfer)
    wait = np.maximum(rows.duration - transfer[rows.owner], 0)
    last = np.where(
        rooted, rows.member_at(rows.start, latest, last=True), rows.member_at(rows.duration, shortest, last=False)
    )
    split = {
        "wire_ns": _on_the_wire(rows, transfer, latest, rooted), "transfer_ns": transfer, "wait_ns": np.add.reduceat(wait, rows.first) if len(wait) else wait, "start_skew_ns": longest - shortest,
        "end_skew_ns": last_end - rows.least(rows.end), "last_rank": last, "residual": rows.most(rows.residual), "rooted": rooted,
    }  # fmt: skip
    table = instances.table.with_columns(pl.Series(name, values) for name, values in split.items())
    return Waits(_collective(table), wait)


class _Rows:
    """Members as arrays, ordered by instance; ``owner`` numbers the instances, ``first`` is where each begins."""

    def __init__(self, instances: Instances, clocks: Clocks, hosts: Mapping[int, str]) -> None:
        seen = instances.table.get_column("seen").cast(pl.Int64).to_numpy()
        self.first = np.cumsum(seen) - seen
        self.owner = np.repeat(np.arange(len(seen)), seen)
        self.rank = instances.rank
        self.duration = instances.duration_ns
        self.start, self.residual = aligned_ranks(instances.start_ns, self.rank, hosts, clocks)
        self.end = self.start + self.duration

    def least(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Minimum of each instance."""
        return np.minimum.reduceat(values, self.first) if len(values) else values

    def most(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Maximum of each instance."""
        return np.maximum.reduceat(values, self.first) if len(values) else values

    def member_at(self, values: NDArray[np.int64], wanted: NDArray[np.int64], *, last: bool) -> NDArray[np.int64]:
        """Rank whose value is the wanted one: the highest such rank or the lowest."""
        hit = values == wanted[self.owner]
        rank = self.rank.astype(np.int64)
        return self.most(np.where(hit, rank, -1)) if last else self.least(np.where(hit, rank, np.iinfo(np.int64).max))


def _on_the_wire(
    rows: _Rows, transfer: NDArray[np.int64], latest: NDArray[np.int64], rooted: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """From the last arrival to the first departure, where clocks are sure to a tenth of it; else the transfer.

    A transfer ends for its members one by one; what the last to arrive takes to notice is no time on the wire.
    """
    between = rows.least(rows.end) - latest
    sure = (10 * rows.most(rows.residual) <= transfer) & ~rooted & (2 * between >= transfer)
    return np.where(sure, np.minimum(between, transfer), transfer)


def _without_early_leavers(rows: _Rows, shortest: NDArray[np.int64]) -> NDArray[np.int64]:
    """The second shortest duration where a single member left long before the others; else the shortest."""
    count = np.diff(np.append(rows.first, len(rows.duration)))
    many = count >= _MANY
    if not many.any():
        return shortest
    place = np.full(len(shortest), len(rows.duration))
    is_shortest = rows.duration == shortest[rows.owner]
    hits = np.flatnonzero(is_shortest)
    np.minimum.at(place, rows.owner[hits], hits)
    others = rows.duration.copy()
    others[place] = np.iinfo(np.int64).max
    second = rows.least(others)
    lone = np.flatnonzero(many & (shortest < _LONE_RATIO * second))
    transfer = shortest.copy()
    for one in lone.tolist():  # few: each is looked at by itself
        low, high = rows.first[one], rows.first[one] + count[one]
        early = np.median(rows.end[low:high]) - rows.end[place[one]] - 3 * rows.residual[low:high].max()
        if early > _LEFT_EARLY * (second[one] - shortest[one]):
            transfer[one] = second[one]
    return transfer


def _collective(table: pl.DataFrame) -> pl.DataFrame:
    whole = (pl.col("seen") == pl.col("members")) & ((pl.col("match_method") == "p2p") | ~pl.col("mixed"))
    speed = pl.when(whole & (pl.col("transfer_ns") > 0) & pl.col("msg_bytes").is_not_null()).then(
        pl.col("msg_bytes") / pl.col("transfer_ns") * 1e9
    )
    sure = whole & (pl.col("start_skew_ns") > pl.when(pl.col("rooted")).then(pl.col("residual")).otherwise(0))
    return (
        table.with_columns(
            speed.alias("algbw_bytes_per_s"), pl.col("step").cast(pl.Int64),
            pl.when(sure).then(pl.col("last_rank")).alias("last_rank"),
            pl.when(whole).then(pl.col("transfer_ns")).alias("transfer_ns"),
            pl.when(whole).then(pl.col("wire_ns")).alias("wire_ns"),
            pl.when(whole).then(pl.col("wait_ns")).alias("wait_ns"),
        )
        .with_columns((pl.col("algbw_bytes_per_s") * busbw_factor(pl.col("collective"), pl.col("members"))).alias("busbw_bytes_per_s"))
        .select(
            "instance", "group_id", "is_p2p", "collective", "seq", "step", "dtype", "msg_bytes", "members", "seen", "match_method", "transfer_ns",
            "wire_ns", "wait_ns", "start_skew_ns", "end_skew_ns", "last_rank", "algbw_bytes_per_s", "busbw_bytes_per_s",
        )
    )  # fmt: skip
