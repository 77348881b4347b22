"""Matching over all ranks within a memory budget: calls are read by rank, matched by group, and split by rank again.

A job of thousands of ranks has tens of millions of calls; only their numbers are held at once, and the stretches of
exposed time one part of the ranks at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.clocks import clock_samples, fit_clocks
from diagnose.analysis.cross.exposed import call_exposure, divide_exposed, mark_handshakes
from diagnose.analysis.cross.groups import GROUP_SCHEMA, GroupConfig, resolve_groups
from diagnose.analysis.cross.match import match_calls
from diagnose.analysis.cross.message_clocks import message_delays, tie_clocks
from diagnose.analysis.cross.waits import MATCHED_RATIO, split_waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diagnose.analysis.cross.clocks import Clocks
    from diagnose.pipeline.identify import Member
    from diagnose.pipeline.result import Group
    from diagnose.store.writer import StoreWriter

PART_ROWS = 2_000_000
"""Calls worked on at a time: some hundred megabytes."""

_NUMBERS = (
    "rank, call, step, start_ns, dur_ns, collective, group_name, group_desc, group_ranks, group_size, seq, is_p2p, peer, dtype, "
    "out_elems, msg_bytes"
)
_STRETCHES = "rank, call, step, start_ns, dur_ns, collective, is_p2p, peer, msg_bytes, exposed_ns, exposed_from_ns, exposed_to_ns, exposed_late_ns"
_DIVIDED = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_transfer_max_ns", "late_comm_ns", "blocking_transfer_ns")
_GROUP_COLUMNS = ("group_name", "group_desc", "group_ranks")
_UNEVEN = ("all_to_all", "all_to_allv")
_RANK_ROWS = pl.Schema(
    {"instance": pl.Int64(), "rank": pl.Int32(), "step": pl.Int64(), "call": pl.Int64(), "start_ns": pl.Int64(), "dur_ns": pl.Int64(), "wait_ns": pl.Int64(),
     "certain": pl.Boolean()}
)  # fmt: skip


class _Who(NamedTuple):
    """Places and groups of the ranks."""

    world: Sequence[int]
    hosts: dict[int, str | None]
    clocks: dict[int, str]
    config: dict[int, list[GroupConfig]]


def match_ranks(writer: StoreWriter, members: Sequence[Member], world: Sequence[int]) -> pl.DataFrame:
    """Groups, instances, clocks, waits, and the split of exposed communication.

    Returns the calls that later analyses look at: point to point, all-to-all and hand-shakes, with ``group_id``.
    """
    hosts = {member.rank: member.host for member in members if member.rank >= 0}
    config = {
        member.rank: [GroupConfig(*_fields(group)) for group in member.result.trace.groups]
        for member in members
        if member.rank >= 0 and member.result.trace
    }
    who = _Who(
        world, hosts, {rank: host if host is not None else f"rank{rank}" for rank, host in hosts.items()}, config
    )
    parts = list(_parts(writer))
    groups, batches = _by_group(writer, parts, who)
    matched, kept = [], []
    number = 0
    for batch in batches:
        one = match_calls(batch, groups, config, hosts, world)
        groups = one.groups
        kept.append(
            one.calls.filter(pl.col("is_p2p") | pl.col("collective").is_in(list(_UNEVEN)) | pl.col("handshake"))
        )
        if one.members.is_empty():
            matched.append((one.members, one.calls))
            continue
        numbered = one.members.with_columns(pl.col("instance") + number)
        number = int(numbered.get_column("instance").max() or 0) + 1  # type: ignore[arg-type]
        matched.append((numbered, one.calls.select("rank", "call", "group_id", "is_p2p", "peer", "msg_bytes")))
    del batches
    writer.insert("process_group", groups)
    clocks = fit_clocks(pl.concat([clock_samples(found) for found, _ in matched], how="diagonal_relaxed"), who.clocks)
    clocks = tie_clocks(clocks, pl.concat([message_delays(found) for found, _ in matched]), who.clocks)
    writer.insert("clock", clocks.table)
    alone = groups.filter(pl.col("size") == 1).get_column("group_id").to_list()
    rows = [_split(writer, *matched.pop(0), clocks, who, alone) for _ in range(len(matched))]
    _divide(writer, pl.concat(rows).sort("rank", "call"), parts)
    return pl.concat(kept, how="diagonal_relaxed")


def _parts(writer: StoreWriter) -> Iterator[tuple[int, int]]:
    """Ranges of ranks with about PART_ROWS calls each; one range holds ranks without any call."""
    counts = writer.query("SELECT rank, count(*) AS calls FROM comm_call GROUP BY rank ORDER BY rank")
    if counts.is_empty():
        yield -(2**31), 2**31 - 1
        return
    ranks, part = counts.get_column("rank").to_numpy(), counts.get_column("calls").cum_sum().to_numpy() // PART_ROWS
    starts = [-(2**31), *(int(rank) for rank, new in zip(ranks[1:], np.diff(part) > 0, strict=True) if new)]
    yield from zip(starts, [*(start - 1 for start in starts[1:]), 2**31 - 1], strict=True)


def _by_group(writer: StoreWriter, parts: list[tuple[int, int]], who: _Who) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """All groups, and the calls in batches of whole groups. One part is one batch, whatever its groups."""
    pieces, tables = [], []
    for low, high in parts:
        calls = writer.query(
            f"SELECT {_NUMBERS} FROM comm_call WHERE rank BETWEEN {low} AND {high} ORDER BY rank, call"
        )
        resolved = resolve_groups(mark_handshakes(calls), who.config, who.hosts, who.world)
        text = [pl.col(name).cast(pl.Categorical) for name in ("collective", "dtype")]
        pieces.append(resolved.calls.drop(*_GROUP_COLUMNS).with_columns(text))
        tables.append(resolved.groups)
    groups = pl.concat(tables).unique("group_id").sort("group_id") if tables else pl.DataFrame(schema=GROUP_SCHEMA)
    if len(pieces) == 1:
        return groups, pieces
    sizes = (
        pl.concat([piece.group_by("group_id").len() for piece in pieces])
        .group_by("group_id")
        .agg(pl.col("len").sum())
        .sort("group_id")
    )
    batch = (sizes.get_column("len").cum_sum() // PART_ROWS).alias("batch")
    place = sizes.select("group_id", batch.cast(pl.Int32))
    shares: dict[int, list[pl.DataFrame]] = {}
    while pieces:
        placed = pieces.pop(0).join(place, on="group_id", nulls_equal=True)
        for (number,), share in placed.partition_by("batch", as_dict=True, include_key=False).items():
            shares.setdefault(int(number), []).append(share)
    return groups, [pl.concat(shares.pop(number)) for number in sorted(shares)]


def _split(
    writer: StoreWriter, members: pl.DataFrame, calls: pl.DataFrame, clocks: Clocks, who: _Who, alone: list[int]
) -> pl.DataFrame:
    """Waits of one batch: its instances are stored, its rows by rank returned, with what can be believed."""
    own = calls.filter(pl.col("group_id").is_in(alone)).select(
        pl.lit(None, pl.Int64).alias("instance"),
        "rank",
        "call",
        pl.lit(0, pl.Int64).alias("wait_ns"),
        pl.lit(value=True).alias("certain"),
    )
    if members.is_empty():
        return pl.concat([pl.DataFrame(schema=_RANK_ROWS), own], how="diagonal_relaxed")
    waits = split_waits(members, calls, clocks, who.clocks)
    writer.insert("collective", waits.collective.drop("is_p2p").with_columns(pl.col("dtype").cast(pl.String)))
    sure = waits.coverage.filter(pl.col("matched_ratio") >= MATCHED_RATIO).select(
        "group_id", "is_p2p", sure=pl.lit(value=True)
    )
    whole = pl.col("transfer_ns").is_not_null() & pl.col("sure").fill_null(value=False)
    certain = waits.collective.join(sure, on=["group_id", "is_p2p"], how="left").select(
        "instance", whole.alias("certain")
    )
    rows = waits.collective_rank.join(certain, on="instance").select(list(_RANK_ROWS))
    if own.is_empty():
        return rows
    return pl.concat([rows.join(own, on=["rank", "call"], how="anti"), own], how="diagonal_relaxed")


def _divide(writer: StoreWriter, rows: pl.DataFrame, parts: list[tuple[int, int]]) -> None:
    """Exposed time of every call and step, one part of the ranks at a time; rows are ordered by rank."""
    ranks = rows.get_column("rank").to_numpy()
    divided = []
    for low, high in parts:
        where = f"WHERE rank BETWEEN {low} AND {high} ORDER BY rank"
        calls = mark_handshakes(writer.query(f"SELECT {_STRETCHES} FROM comm_call {where}, call"))
        first, last = np.searchsorted(ranks, [low, high + 1])
        mine = rows.slice(int(first), int(last - first))
        matched = mine.filter(pl.col("instance").is_not_null()).drop("certain")
        if len(matched):
            exposure = call_exposure(calls, matched)
            writer.insert("collective_rank", matched.join(exposure, on=["instance", "rank"], how="left"))
        breakdown = writer.query(f"SELECT * FROM breakdown {where}, step").drop(*_DIVIDED)
        divided.append(divide_exposed(breakdown, calls, mine.select("rank", "call", "wait_ns", "certain")))
    writer.replace("breakdown", pl.concat(divided))


def _fields(group: Group) -> tuple[str, str | None, tuple[int, ...] | None, int | None]:
    return group.name, group.description, group.ranks, group.size
