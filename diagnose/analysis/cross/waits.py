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
from diagnose.analysis.cross.exposed import CONTROL_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from diagnose.analysis.cross.clocks import Clocks

ROOTED = ("broadcast", "reduce", "gather", "scatter", "send", "recv", "send_recv")
MATCHED_RATIO = 0.95
"""Below it nothing is claimed from a group: the shortest duration over some members is no transfer time."""

_LONE_RATIO = 0.7
_LEFT_EARLY = 0.5
_MANY = 16
"""From here on a single member that leaves before the others is no measure of the transfer. A straggler is the shortest
as well, but because it starts late: only who also ends early is set aside."""


class Waits(NamedTuple):
    """``collective`` and ``collective_rank`` as the store's tables; ``coverage`` per group: matched share and members."""

    collective: pl.DataFrame
    collective_rank: pl.DataFrame
    coverage: pl.DataFrame


def split_waits(members: pl.DataFrame, calls: pl.DataFrame, clocks: Clocks, hosts: Mapping[int, str]) -> Waits:
    """Waiting and transfer of every instance.

    Args:
        members: matched calls ordered by instance, one row a (instance, rank).
        calls: all calls with group_id, for the matched share.
        clocks: clocks by host.
        hosts: host by rank.
    """
    rows = _Rows(members, clocks, hosts)
    shortest, longest = rows.least(rows.duration), rows.most(rows.duration)
    latest, last_end = rows.most(rows.start), rows.most(rows.end)
    rooted = rows.most(rows.rooted.astype(np.int64)) > 0
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
    table = members.group_by("instance", maintain_order=True).agg(
        pl.col("group_id").first(), pl.col("is_p2p").first(), _kind(), pl.col("seq").min(), pl.col("step").median(), pl.col("dtype").first(),
        _whole_message(), pl.col("size").first().alias("members"), pl.len().alias("seen"), pl.col("match_method").first(),
        (pl.col("token").min() != pl.col("token").max()).alias("mixed"),
    )  # fmt: skip
    table = table.with_columns(pl.Series(name, values) for name, values in split.items())
    ranks = members.select("instance", "rank", "step", "call").with_columns(
        pl.Series("start_ns", rows.start), pl.Series("dur_ns", rows.duration), pl.Series("wait_ns", wait)
    )
    return Waits(_collective(table), ranks, _coverage(members, calls))


class _Rows:
    """Members as arrays, ordered by instance; ``owner`` numbers the instances, ``first`` is where each begins."""

    def __init__(self, members: pl.DataFrame, clocks: Clocks, hosts: Mapping[int, str]) -> None:
        instance = members.get_column("instance").to_numpy()
        new = np.concatenate(([True], instance[1:] != instance[:-1])) if len(instance) else np.zeros(0, bool)
        self.first = np.flatnonzero(new)
        self.owner = np.cumsum(new) - 1
        self.rank = members.get_column("rank").to_numpy()
        self.duration = members.get_column("dur_ns").to_numpy()
        self.rooted = members.select(pl.col("collective").is_in(list(ROOTED))).to_series().to_numpy()
        self.start, self.residual = aligned_ranks(members.get_column("start_ns").to_numpy(), self.rank, hosts, clocks)
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


def _coverage(members: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Per (group, point to point or not): calls seen, calls in complete instances, their share."""
    key = ["group_id", "is_p2p"]
    per = members.group_by("instance", *key).agg(pl.len().alias("seen"), pl.col("size").first())
    matched = per.filter(pl.col("seen") == pl.col("size")).group_by(key).agg(pl.col("seen").sum().alias("matched"))
    control = pl.col("is_p2p") & pl.col("peer").is_null() & (pl.col("msg_bytes") <= CONTROL_BYTES)
    total = calls.filter(pl.col("group_id").is_not_null() & ~control.fill_null(value=False)).group_by(key).len("calls")
    return (
        total.join(matched, on=key, how="left").with_columns(pl.col("matched").fill_null(0))
        .with_columns((pl.col("matched") / pl.col("calls")).alias("matched_ratio")).sort(key)
    )  # fmt: skip
