"""Matching over all ranks within a memory budget: calls are read by rank, matched by group, and split by rank again.

A job of thousands of ranks has tens of millions of calls; only their numbers are held at once, and the stretches of
exposed time one part of the ranks at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.clocks import aligned_ranks, clock_samples, fit_clocks
from diagnose.analysis.cross.exposed import UNMATCHED, Waited, call_exposure, divide_exposed, mark_handshakes
from diagnose.analysis.cross.groups import GROUP_SCHEMA, GroupConfig, resolve_groups
from diagnose.analysis.cross.match import match_calls
from diagnose.analysis.cross.stretches import stretches_of
from diagnose.analysis.cross.waits import MATCHED_RATIO, split_waits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

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
_MEMBER = (
    "row", "instance", "rank", "step", "call", "start_ns", "dur_ns", "collective", "group_id", "group_size", "size", "seq", "is_p2p", "dtype",
    "out_elems", "msg_bytes", "match_method", "token",
)  # fmt: skip
_CALL = ("row", "group_id", "is_p2p", "peer", "msg_bytes")


class _Part(NamedTuple):
    """Ranks from ``low`` to ``high``; their calls, in order of rank and call, are the rows ``first`` to ``until`` of all."""

    low: int
    high: int
    first: int
    until: int

    @property
    def where(self) -> str:
        """The end of a statement that reads its rows."""
        return f"WHERE rank BETWEEN {self.low} AND {self.high} ORDER BY rank"


class _Results(NamedTuple):
    """What matching found for every call, by row; UNMATCHED where nothing."""

    instance: NDArray[np.int64]
    wait_ns: NDArray[np.int64]
    certain: NDArray[np.bool_]

    @classmethod
    def empty(cls, rows: int) -> _Results:
        """Nothing matched."""
        return cls(np.full(rows, UNMATCHED), np.full(rows, UNMATCHED), np.zeros(rows, np.bool_))

    def of(self, part: _Part) -> _Results:
        """The rows of one part."""
        return _Results(*(values[part.first : part.until] for values in self))


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
    matched, kept, samples = [], [], []
    number = 0
    while batches:
        one = match_calls(batches.pop(0), groups, config, hosts, world)
        groups = one.groups
        kept.append(
            one.calls.filter(pl.col("is_p2p") | pl.col("collective").is_in(list(_UNEVEN)) | pl.col("handshake")).drop("row")
        )
        if not one.members.is_empty():
            numbered = one.members.with_columns(pl.col("instance") + number)
            number = int(numbered.get_column("instance").max() or 0) + 1  # type: ignore[arg-type]
            one = one._replace(members=numbered)
        samples.append(clock_samples(one.members))
        matched.append((one.members.select(_MEMBER), one.calls.select(_CALL)))
    writer.insert("process_group", groups)
    clocks = fit_clocks(pl.concat(samples, how="diagonal_relaxed"), who.clocks)
    writer.insert("clock", clocks.table)
    alone = groups.filter(pl.col("size") == 1).get_column("group_id").to_list()
    results = _Results.empty(parts[-1].until)
    while matched:
        _split(writer, *matched.pop(0), clocks, who, alone, results)
    _divide(writer, results, parts, clocks, who)
    return pl.concat(kept, how="diagonal_relaxed")


def _parts(writer: StoreWriter) -> Iterator[_Part]:
    """Ranges of ranks with about PART_ROWS calls each; one range holds ranks without any call."""
    counts = writer.query("SELECT rank, count(*) AS calls FROM comm_call GROUP BY rank ORDER BY rank")
    if counts.is_empty():
        yield _Part(-(2**31), 2**31 - 1, 0, 0)
        return
    ranks, total = counts.get_column("rank").to_numpy(), counts.get_column("calls").cum_sum().to_numpy()
    place = np.flatnonzero(np.diff(total // PART_ROWS) > 0)
    lows, firsts = [-(2**31), *ranks[place + 1].tolist()], [0, *total[place].tolist()]
    highs, untils = [*(low - 1 for low in lows[1:]), 2**31 - 1], [*firsts[1:], int(total[-1])]
    yield from map(_Part, lows, highs, firsts, untils)


def _by_group(writer: StoreWriter, parts: list[_Part], who: _Who) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """All groups, and the calls in batches of whole groups. One part is one batch, whatever its groups."""
    pieces, tables = [], []
    for part in parts:
        calls = writer.query(f"SELECT {_NUMBERS} FROM comm_call {part.where}, call")
        resolved = resolve_groups(mark_handshakes(calls), who.config, who.hosts, who.world)
        text = [pl.col(name).cast(pl.Categorical) for name in ("collective", "dtype")]
        row = pl.int_range(part.first, part.until, dtype=pl.Int64).alias("row")
        pieces.append(resolved.calls.drop(*_GROUP_COLUMNS).with_columns(row, *text))
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
        placed = pieces.pop(0).join(place, on="group_id", nulls_equal=True, how="left", maintain_order="left")
        for (number,), share in placed.partition_by("batch", as_dict=True, include_key=False).items():
            shares.setdefault(int(number), []).append(share)
    return groups, [pl.concat(shares.pop(number)) for number in sorted(shares)]


def _split(
    writer: StoreWriter,
    members: pl.DataFrame,
    calls: pl.DataFrame,
    clocks: Clocks,
    who: _Who,
    alone: list[int],
    results: _Results,
) -> None:
    """Waits of one batch: its instances are stored, what is known of its calls goes into ``results``."""
    if not members.is_empty():
        waits = split_waits(members, calls, clocks, who.clocks)
        writer.insert("collective", waits.collective.drop("is_p2p").with_columns(pl.col("dtype").cast(pl.String)))
        sure = waits.coverage.filter(pl.col("matched_ratio") >= MATCHED_RATIO).select(
            "group_id", "is_p2p", sure=pl.lit(value=True)
        )
        believed = waits.collective.join(sure, on=["group_id", "is_p2p"], how="left", maintain_order="left").select(
            pl.col("transfer_ns").is_not_null() & pl.col("sure").fill_null(value=False)
        )
        row, size = members.get_column("row").to_numpy(), members.get_column("instance").rle().struct.field("len")
        results.instance[row] = members.get_column("instance").to_numpy()
        results.wait_ns[row] = waits.collective_rank.get_column("wait_ns").to_numpy()
        results.certain[row] = np.repeat(believed.to_series().to_numpy(), size.to_numpy())
    own = calls.filter(pl.col("group_id").is_in(alone)).get_column("row").to_numpy()
    results.instance[own], results.wait_ns[own], results.certain[own] = UNMATCHED, 0, True


def _divide(writer: StoreWriter, results: _Results, parts: list[_Part], clocks: Clocks, who: _Who) -> None:
    """Exposed time of every call and step, one part of the ranks at a time."""
    divided = []
    for part in parts:
        calls = mark_handshakes(writer.query(f"SELECT {_STRETCHES} FROM comm_call {part.where}, call"))
        stretches = stretches_of(calls)
        mine = results.of(part)
        held = mine.instance != UNMATCHED
        if held.any():
            exposed = calls.get_column("exposed_ns").fill_null(0).to_numpy()
            wait, transfer = call_exposure(exposed, stretches, mine.wait_ns)
            start, _ = aligned_ranks(
                calls.get_column("start_ns").to_numpy(), calls.get_column("rank").to_numpy(), who.clocks, clocks
            )
            table = calls.select(
                pl.Series("instance", mine.instance), "rank", "step", "call", pl.Series("start_ns", start), "dur_ns",
                pl.Series("wait_ns", mine.wait_ns), pl.Series("exposed_wait_ns", wait), pl.Series("exposed_transfer_ns", transfer),
            )  # fmt: skip
            writer.insert("collective_rank", table if held.all() else table.filter(pl.Series(held)))
        breakdown = writer.query(f"SELECT * FROM breakdown {part.where}, step").drop(*_DIVIDED)
        divided.append(divide_exposed(breakdown, calls, stretches, Waited(mine.wait_ns, mine.certain)))
    writer.replace("breakdown", pl.concat(divided))


def _fields(group: Group) -> tuple[str, str | None, tuple[int, ...] | None, int | None]:
    return group.name, group.description, group.ranks, group.size
