"""Matching over all ranks within a memory budget: calls are read by rank, matched by group, and split by rank again.

A job of thousands of ranks has tens of millions of calls; only their numbers are held at once, and the stretches of
exposed time one part of the ranks at a time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.clocks import aligned_ranks, clock_samples, fit_clocks
from diagnose.analysis.cross.exposed import UNMATCHED, Waited, call_exposure, divide_exposed, mark_handshakes
from diagnose.analysis.cross.groups import GroupConfig
from diagnose.analysis.cross.instances import gather
from diagnose.analysis.cross.match import match_calls
from diagnose.analysis.cross.message_clocks import message_delays, tie_clocks
from diagnose.analysis.cross.stretches import stretches_of
from diagnose.analysis.cross.waits import MATCHED_RATIO, split_waits
from diagnose.pipeline.call_batches import Who, call_batches, parts_of
from diagnose.pipeline.overlap import overlapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.analysis.cross.clocks import Clocks
    from diagnose.analysis.cross.instances import Instances
    from diagnose.analysis.cross.match import Matched
    from diagnose.analysis.cross.waits import Waits
    from diagnose.pipeline.call_batches import Part
    from diagnose.pipeline.identify import Member
    from diagnose.pipeline.result import Group
    from diagnose.store.writer import StoreWriter

_STRETCHES = "rank, call, step, start_ns, dur_ns, collective, is_p2p, peer, msg_bytes, exposed_ns, exposed_from_ns, exposed_to_ns, exposed_late_ns"
_DIVIDED = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_transfer_max_ns", "late_comm_ns", "blocking_transfer_ns")
_UNEVEN = ("all_to_all", "all_to_allv")


class _Results(NamedTuple):
    """What matching found for every call, by row; UNMATCHED where nothing."""

    instance: NDArray[np.int64]
    wait_ns: NDArray[np.int64]
    certain: NDArray[np.bool_]

    @classmethod
    def empty(cls, rows: int) -> _Results:
        """Nothing matched."""
        return cls(np.full(rows, UNMATCHED), np.full(rows, UNMATCHED), np.zeros(rows, np.bool_))

    def of(self, part: Part) -> _Results:
        """The rows of one part."""
        rows = slice(part.first, part.until)
        return _Results(self.instance[rows], self.wait_ns[rows], self.certain[rows])


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
    clocks_of = {rank: host if host is not None else f"rank{rank}" for rank, host in hosts.items()}
    who = Who(world, hosts, clocks_of, config)
    parts = list(parts_of(writer))
    found: list[Instances] = []
    kept, samples, delays, alone = [], [], [], []
    number = 0
    with tempfile.TemporaryDirectory(prefix=".diagnose-", dir=writer.temporary.parent) as scratch:
        groups, batches = call_batches(writer, parts, who, Path(scratch))

        def match(batch: pl.DataFrame) -> Matched:
            nonlocal groups
            one = match_calls(batch, groups, config, hosts, world)
            groups = one.groups
            return one

        for one in overlapped(match, batches):
            later = pl.col("is_p2p") | pl.col("collective").is_in(list(_UNEVEN)) | pl.col("handshake")
            kept.append(one.calls.filter(later).drop("row"))
            lone = one.groups.filter(pl.col("size") == 1).get_column("group_id").to_list()
            alone.append(one.calls.filter(pl.col("group_id").is_in(lone)).get_column("row").to_numpy())
            numbered = one.members.with_columns(pl.col("instance") + number)
            samples.append(clock_samples(numbered))
            delays.append(message_delays(numbered))
            if not numbered.is_empty():
                number = int(numbered.get_column("instance").max() or 0) + 1  # type: ignore[arg-type]
                found.append(gather(numbered, one.calls))
    writer.insert("process_group", groups)
    clocks = fit_clocks(pl.concat(samples, how="diagonal_relaxed"), clocks_of)
    clocks = tie_clocks(clocks, pl.concat(delays), clocks_of)
    writer.insert("clock", clocks.table)
    results = _Results.empty(parts[-1].until)
    sure = _sure([one.coverage for one in found])

    def split(instances: Instances) -> tuple[Instances, Waits]:
        return instances, split_waits(instances, clocks, who.clocks)

    for instances, waits in overlapped(split, (found.pop(0) for _ in range(len(found)))):
        writer.insert("collective", waits.collective.drop("is_p2p"))
        _note(results, instances, waits, sure)
    own = np.concatenate(alone)
    results.instance[own], results.wait_ns[own], results.certain[own] = UNMATCHED, 0, True
    _divide(writer, results, parts, clocks, who)
    return pl.concat(kept, how="diagonal_relaxed")


def _sure(coverage: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Groups (group_id, is_p2p) of which enough is matched to claim something."""
    key = ["group_id", "is_p2p"]
    if not coverage:
        return pl.DataFrame(schema={"group_id": pl.Int64, "is_p2p": pl.Boolean, "sure": pl.Boolean})
    total = pl.concat(coverage).group_by(key).agg(pl.col("calls", "matched").sum())
    return total.filter(pl.col("matched") >= MATCHED_RATIO * pl.col("calls")).select(*key, sure=pl.lit(value=True))


def _note(results: _Results, instances: Instances, waits: Waits, sure: pl.DataFrame) -> None:
    """What is known of the calls of one batch."""
    believed = waits.collective.join(sure, on=["group_id", "is_p2p"], how="left", maintain_order="left").select(
        pl.col("transfer_ns").is_not_null() & pl.col("sure").fill_null(value=False)
    )
    seen = waits.collective.get_column("seen").to_numpy()
    results.instance[instances.row] = np.repeat(waits.collective.get_column("instance").to_numpy(), seen)
    results.wait_ns[instances.row] = waits.wait_ns
    results.certain[instances.row] = np.repeat(believed.to_series().to_numpy(), seen)


class _Read(NamedTuple):
    """One part of the ranks: what is stored, and what matching found."""

    calls: pl.DataFrame
    breakdown: pl.DataFrame
    mine: _Results


def _divide(writer: StoreWriter, results: _Results, parts: Sequence[Part], clocks: Clocks, who: Who) -> None:
    """Exposed time of every call and step, one part of the ranks at a time."""

    def read(part: Part) -> _Read:
        calls = writer.query(f"SELECT {_STRETCHES} FROM comm_call {part.where}, call")
        return _Read(
            calls, writer.query(f"SELECT * FROM breakdown {part.where}, step").drop(*_DIVIDED), results.of(part)
        )

    divided = []
    for breakdown, members in overlapped(lambda one: _divided(one, clocks, who), map(read, parts)):
        writer.insert("collective_rank", members)
        divided.append(breakdown)
    writer.replace("breakdown", pl.concat(divided))


def _divided(part: _Read, clocks: Clocks, who: Who) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows of the tables breakdown and collective_rank."""
    calls, mine = mark_handshakes(part.calls), part.mine
    stretches = stretches_of(calls)
    exposed = calls.get_column("exposed_ns").fill_null(0).to_numpy()
    wait, transfer = call_exposure(exposed, stretches, mine.wait_ns)
    start, _ = aligned_ranks(
        calls.get_column("start_ns").to_numpy(), calls.get_column("rank").to_numpy(), who.clocks, clocks
    )
    members = calls.select(
        pl.Series("instance", mine.instance), "rank", "step", "call", pl.Series("start_ns", start), "dur_ns",
        pl.Series("wait_ns", mine.wait_ns), pl.Series("exposed_wait_ns", wait), pl.Series("exposed_transfer_ns", transfer),
    )  # fmt: skip
    held = mine.instance != UNMATCHED
    breakdown = divide_exposed(part.breakdown, calls, stretches, Waited(mine.wait_ns, mine.certain))
    return breakdown, members if held.all() else members.filter(pl.Series(held))


def _fields(group: Group) -> tuple[str, str | None, tuple[int, ...] | None, int | None]:
    return group.name, group.description, group.ranks, group.size
