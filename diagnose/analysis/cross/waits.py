"""Each matched collective split into waiting and transfer, its skew, its last member, its bandwidth.

Synchronising kinds need no clock: transfer = the shortest duration, wait = duration - transfer. Rooted kinds and
send/recv use aligned clocks: transfer = end - latest start. Source: algorithms, wait against transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from diagnose.analysis.cross.bandwidth import busbw_factor
from diagnose.analysis.cross.clocks import aligned
from diagnose.analysis.cross.exposed import CONTROL_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        members: matched calls, one row a (instance, rank).
        calls: all calls with group_id, for the matched share.
        clocks: clocks by host.
        hosts: host by rank.
    """
    start = aligned(
        members.get_column("start_ns").to_numpy(),
        [hosts.get(rank, "") for rank in members.get_column("rank").to_list()],
        clocks,
    )
    residual = pl.Series(
        [clocks.residual_ns.get(hosts.get(rank, ""), 0) for rank in members.get_column("rank").to_list()],
        dtype=pl.Int64,
    )
    frame = members.with_columns(pl.Series("aligned_ns", start), residual.alias("residual")).with_columns(
        (pl.col("aligned_ns") + pl.col("dur_ns")).alias("end_ns")
    )
    frame = frame.with_columns(
        pl.col("aligned_ns").max().over("instance").alias("latest"),
        pl.col("dur_ns").min().over("instance").alias("shortest"),
        pl.col("dur_ns").bottom_k(2).max().over("instance").alias("second"),
        pl.len().over("instance").alias("seen"),
        pl.col("collective").is_in(list(ROOTED)).any().over("instance").alias("rooted"),
        pl.col("token").n_unique().over("instance").alias("tokens"),
    )
    end_of_shortest = pl.col("end_ns").sort_by("dur_ns", "rank").first().over("instance")
    early = pl.col("end_ns").median().over("instance") - end_of_shortest - 3 * pl.col("residual").max().over("instance")
    lone = (
        (pl.col("seen") >= _MANY)
        & (pl.col("shortest") < _LONE_RATIO * pl.col("second"))
        & (early > _LEFT_EARLY * (pl.col("second") - pl.col("shortest")))
    )
    transfer = pl.when(lone).then(pl.col("second")).otherwise(pl.col("shortest"))
    by_clock = (pl.col("end_ns").max().over("instance") - pl.col("latest")).clip(lower_bound=0)
    # A receive cannot be waiting once its sender has started; where clocks contradict the durations, durations hold.
    rooted = pl.min_horizontal(by_clock, pl.col("dur_ns").max().over("instance"))
    frame = frame.with_columns(pl.when(pl.col("rooted")).then(rooted).otherwise(transfer).alias("transfer_ns"))
    frame = frame.with_columns((pl.col("dur_ns") - pl.col("transfer_ns")).clip(lower_bound=0).alias("wait_ns"))
    return Waits(_collective(frame), _collective_rank(frame), _coverage(members, calls))


def _collective_rank(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("instance", "rank", "step", "call", start_ns="aligned_ns", dur_ns="dur_ns", wait_ns="wait_ns")


def _collective(frame: pl.DataFrame) -> pl.DataFrame:
    last_by_duration = pl.col("rank").sort_by("dur_ns", "rank").first()
    last_by_clock = pl.col("rank").sort_by("aligned_ns", "rank").last()
    table = frame.group_by("instance").agg(
        pl.col("group_id").first(), pl.col("is_p2p").first(), pl.col("collective").sort().first(), pl.col("seq").min(), pl.col("step").mode().sort().first(),
        pl.col("dtype").first(), _whole_message(), pl.col("size").first().alias("members"), pl.len().alias("seen"),
        pl.col("match_method").first(), pl.col("transfer_ns").first(), pl.col("wait_ns").sum(),
        (pl.col("dur_ns").max() - pl.col("dur_ns").min()).alias("start_skew_ns"),
        (pl.col("end_ns").max() - pl.col("end_ns").min()).alias("end_skew_ns"),
        pl.when(pl.col("rooted").first()).then(last_by_clock).otherwise(last_by_duration).alias("last_rank"),
        pl.col("residual").max(), pl.col("rooted").first(), pl.col("tokens").first(),
    )  # fmt: skip
    whole = (pl.col("seen") == pl.col("members")) & (
        pl.col("tokens") <= pl.when(pl.col("match_method") == "p2p").then(2).otherwise(1)
    )
    speed = pl.when(whole & (pl.col("transfer_ns") > 0) & pl.col("msg_bytes").is_not_null()).then(
        pl.col("msg_bytes") / pl.col("transfer_ns") * 1e9
    )
    sure = whole & (pl.col("start_skew_ns") > pl.when(pl.col("rooted")).then(pl.col("residual")).otherwise(0))
    return (
        table.with_columns(
            speed.alias("algbw_bytes_per_s"),
            pl.when(sure).then(pl.col("last_rank")).alias("last_rank"),
            pl.when(whole).then(pl.col("transfer_ns")).alias("transfer_ns"),
            pl.when(whole).then(pl.col("wait_ns")).alias("wait_ns"),
        )
        .with_columns((pl.col("algbw_bytes_per_s") * busbw_factor(pl.col("collective"), pl.col("members"))).alias("busbw_bytes_per_s"))
        .select(
            "instance", "group_id", "is_p2p", "collective", "seq", "step", "dtype", "msg_bytes", "members", "seen", "match_method", "transfer_ns",
            "wait_ns", "start_skew_ns", "end_skew_ns", "last_rank", "algbw_bytes_per_s", "busbw_bytes_per_s",
        )
        .sort("instance")
    )  # fmt: skip


def _whole_message() -> pl.Expr:
    """S of the instance. An all-gather whose trace has the shard only is the members times that."""
    shard_only = (pl.col("collective") == "all_gather") & pl.col("out_elems").is_null() & pl.col("group_size").is_null()
    return (pl.col("msg_bytes") * pl.when(shard_only).then(pl.col("size")).otherwise(1)).max().alias("msg_bytes")


def _coverage(members: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Per (group, point to point or not): calls seen, calls in complete instances, their share."""
    key = ["group_id", "is_p2p"]
    whole = members.with_columns(pl.len().over("instance").alias("seen")).filter(pl.col("seen") == pl.col("size"))
    matched = whole.group_by(key).len("matched")
    control = pl.col("is_p2p") & pl.col("peer").is_null() & (pl.col("msg_bytes") <= CONTROL_BYTES)
    total = calls.filter(pl.col("group_id").is_not_null() & ~control.fill_null(value=False)).group_by(key).len("calls")
    return (
        total.join(matched, on=key, how="left").with_columns(pl.col("matched").fill_null(0))
        .with_columns((pl.col("matched") / pl.col("calls")).alias("matched_ratio")).sort(key)
    )  # fmt: skip
