"""What-if by replay: the schedule once more, with local work and transfers changed.

Replaying the unmodified schedule gives the method's own error. Few ranks are replayed event by event; many ranks level
by level, where a level holds events that depend on none of each other. Source: algorithms, what-if.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.cross.levels import event_levels
from diagnose.analysis.cross.schedule import ARRIVE, BLOCK, READY, Schedule, build_schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["Change", "Levels", "Removal", "Schedule", "build_schedule", "levels_of", "replay"]

_WIDE = 64
"""Events a level from which arrays are faster than a loop."""


class Removal(NamedTuple):
    """Stretches of local time to take out: rank, start and end on its clock, and which share of them."""

    rank: Integers
    start_ns: Integers
    end_ns: Integers
    share: Floats


class Change(NamedTuple):
    """What is different. ``scale`` [rank, step] on local progress; ``transfer`` from (transfer_ns, size_bytes) of all calls;
    ``typical``: every kernel as long as those of its name are on average.
    """

    scale: Floats | None = None
    removal: Removal | None = None
    transfer: Callable[[Floats, Floats], Floats] | None = None
    typical: bool = False


class Levels(NamedTuple):
    """Events by level: ``order`` lists them, ``bounds`` cut it; within a level arrivals come first, then blocks."""

    order: Integers
    bounds: Integers
    arrivals: Integers
    blocks: Integers


def replay(schedule: Schedule, change: Change | None = None, levels: Levels | None = None) -> float:
    """Span of the replayed steps in nanoseconds: from the first start to the last end over all ranks' own spans."""
    change = change or Change()
    length = (
        schedule.transfer_ns if change.transfer is None else change.transfer(schedule.transfer_ns, schedule.size_bytes)
    )
    work = _work(schedule, change)
    if levels is None:
        return _by_event(schedule, work, length)
    return _by_level(schedule, work, length, levels)


def levels_of(schedule: Schedule) -> Levels | None:
    """Levels of the events; None where a loop over events is faster."""
    if len(schedule.ranks) < _WIDE:  # a level holds one event of a rank
        return None
    level = event_levels(schedule, np.argsort(schedule.rank, kind="stable"))
    count = int(level.max(initial=-1)) + 1
    if len(level) < _WIDE * count:
        return None
    order = np.lexsort((schedule.kind, level))
    bounds = np.searchsorted(level[order], np.arange(count + 1))
    arrivals = np.bincount(level[schedule.kind == ARRIVE], minlength=count)
    blocks = np.bincount(level[schedule.kind == BLOCK], minlength=count)
    return Levels(order, bounds, arrivals, blocks)


def _work(schedule: Schedule, change: Change) -> Floats:
    """Local work between each event and the one before it on its rank."""
    progress = schedule.typical if change.typical else schedule.progress
    if change.removal is not None and len(change.removal.rank):
        progress = progress - _removed(schedule, change.removal)
    order = np.argsort(schedule.rank, kind="stable")
    rank, sorted_progress = schedule.rank[order], progress[order]
    stride = float(np.abs(sorted_progress).max(initial=0.0)) * 2 + 1
    reached = np.maximum.accumulate(sorted_progress + rank * stride) - rank * stride
    first = np.concatenate(([True], rank[1:] != rank[:-1]))
    work = np.empty(len(order))
    work[order] = np.where(first, reached, np.diff(reached, prepend=0.0))
    work = np.maximum(work, 0.0)
    return work if change.scale is None else work * change.scale[schedule.rank, schedule.step]


def _removed(schedule: Schedule, removal: Removal) -> Floats:
    """Time taken out before each event."""
    result = np.zeros(len(schedule.rank))
    order = np.lexsort((removal.start_ns, removal.rank))
    events = np.argsort(schedule.rank, kind="stable")
    bounds = np.searchsorted(schedule.rank[events], np.arange(len(schedule.ranks) + 1))
    for rank in np.unique(removal.rank).tolist():
        mine = order[removal.rank[order] == rank]
        start, end = removal.start_ns[mine], np.maximum.accumulate(removal.end_ns[mine])
        points = np.stack((start, np.maximum(end, start)), axis=1).ravel()
        taken = np.cumsum(np.stack((np.zeros(len(mine)), (end - start) * removal.share[mine]), axis=1).ravel())
        chosen = events[bounds[rank] : bounds[rank + 1]]
        result[chosen] = np.interp(schedule.local_ns[chosen], np.maximum.accumulate(points), taken, left=0.0)
    return result


def _by_event(schedule: Schedule, work: Floats, length: Floats) -> float:
    clock, base = schedule.base_ns.tolist(), schedule.base_ns.tolist()
    latest = [-1.0] * (int(schedule.call_instance.max(initial=0)) + 1)
    lengths, instance_of, before_of = length.tolist(), schedule.call_instance.tolist(), schedule.call_before.tolist()
    queued, ready = schedule.call_queued.tolist(), [0.0] * len(lengths)
    span = 0.0
    for kind, rank, call, own in zip(
        schedule.kind.tolist(), schedule.rank.tolist(), schedule.call.tolist(), work.tolist(), strict=True
    ):
        now = clock[rank] + own
        if kind == ARRIVE:
            instance, arrival = instance_of[call], now
            if before_of[call] >= 0:
                before = before_of[call]
                arrival = max(ready[call] if queued[call] else now, latest[instance_of[before]] + lengths[before])
            latest[instance] = max(latest[instance], arrival)
        elif kind == BLOCK:
            now = max(now, latest[instance_of[call]] + lengths[call])
        elif kind == READY:
            ready[call] = now
        else:
            span = max(span, now - base[rank])
        clock[rank] = now
    return span


def _by_level(schedule: Schedule, work: Floats, length: Floats, levels: Levels) -> float:
    clock = schedule.base_ns.copy()
    latest = np.full(int(schedule.call_instance.max(initial=0)) + 1, -1.0)
    ready = np.zeros(len(length))
    span = 0.0
    for place in range(len(levels.bounds) - 1):
        events = levels.order[levels.bounds[place] : levels.bounds[place + 1]]
        rank, call = schedule.rank[events], schedule.call[events]
        now = clock[rank] + work[events]
        arrivals, until = int(levels.arrivals[place]), int(levels.arrivals[place] + levels.blocks[place])
        if arrivals:
            mine = call[:arrivals]
            arrival = np.where(schedule.call_queued[mine], ready[mine], now[:arrivals])
            before = schedule.call_before[mine]
            done = latest[schedule.call_instance[before]] + length[before]
            np.maximum.at(
                latest, schedule.call_instance[mine], np.where(before >= 0, np.maximum(arrival, done), arrival)
            )
        if until > arrivals:
            mine = call[arrivals:until]
            now[arrivals:until] = np.maximum(now[arrivals:until], latest[schedule.call_instance[mine]] + length[mine])
        rest = schedule.kind[events[until:]] == READY
        ready[call[until:][rest]] = now[until:][rest]
        if not rest.all():
            span = max(span, float((now[until:] - schedule.base_ns[rank[until:]])[~rest].max()))
        clock[rank] = now
    return span
