"""Levels of a schedule's events: the longest chain of events that must come before each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diagnose.analysis.cross.schedule import ARRIVE, BLOCK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.cross.schedule import Schedule

    Integers = NDArray[np.int64]

_ROUNDS = 40
"""Ranks that do the same settle in a few rounds; a deep pipeline may need more than a walk over its events costs."""


def event_levels(schedule: Schedule, order: Integers) -> Integers:
    """The level of every event.

    An event comes after the event before it on its rank, a block after all arrivals of its instance, an arrival after all
    arrivals of the instance before it on its stream.

    Args:
        schedule: its events.
        order: the events rank by rank.
    """
    rank = schedule.rank[order]
    first = np.concatenate(([True], rank[1:] != rank[:-1]))
    place = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    kind, call = schedule.kind[order], schedule.call[order]
    arrive, before = np.flatnonzero(kind == ARRIVE), schedule.call_before[call]
    waiting = np.flatnonzero((kind == BLOCK) | ((kind == ARRIVE) & (before >= 0)))
    awaited = schedule.call_instance[np.where(kind == BLOCK, call, before)[waiting]]
    instance = schedule.call_instance[call[arrive]]
    by_instance = np.argsort(instance, kind="stable")
    arrive, starts = arrive[by_instance], np.flatnonzero(np.diff(instance[by_instance], prepend=-1))
    latest = np.full(int(schedule.call_instance.max(initial=0)) + 1, -1)
    level = place.copy()
    stride = 2 * len(order) + 1
    for _ in range(_ROUNDS):
        latest[instance[by_instance][starts]] = np.maximum.reduceat(level[arrive], starts) if len(starts) else 0
        ahead = np.zeros(len(order), np.int64)
        ahead[waiting] = np.maximum(latest[awaited] + 1 - place[waiting], 0)
        found = place + np.maximum.accumulate(ahead + rank * stride) - rank * stride
        if np.array_equal(found, level):
            break
        level = found
    else:
        return _walked(schedule)
    result = np.empty(len(order), np.int64)
    result[order] = level
    return result


def _walked(schedule: Schedule) -> Integers:
    """The same, event by event."""
    level_of_rank = [-1] * len(schedule.ranks)
    latest = [-1] * (int(schedule.call_instance.max(initial=0)) + 1)
    instance, before = schedule.call_instance.tolist(), schedule.call_before.tolist()
    levels = []
    for kind, rank, call in zip(schedule.kind.tolist(), schedule.rank.tolist(), schedule.call.tolist(), strict=True):
        level = level_of_rank[rank] + 1
        if kind == ARRIVE:
            if before[call] >= 0:
                level = max(level, latest[instance[before[call]]] + 1)
            latest[instance[call]] = max(latest[instance[call]], level)
        elif kind == BLOCK:
            level = max(level, latest[instance[call]] + 1)
        level_of_rank[rank] = level
        levels.append(level)
    return np.array(levels, np.int64)
