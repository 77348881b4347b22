"""Unions of intervals, exactly, in n log n: merged intervals, their overlap, and the split of a window by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_FAR = 2**62
"""No axis may be longer: times are 64-bit numbers."""


class Merged(NamedTuple):
    """Disjoint intervals in order; touching ones are one."""

    start_ns: Ints
    end_ns: Ints

    @property
    def length_ns(self) -> int:
        """Total length."""
        return int((self.end_ns - self.start_ns).sum())


def merge(start_ns: Ints, end_ns: Ints) -> Merged:
    """The union of intervals as disjoint ones. Empty and negative ones vanish."""
    keep = end_ns > start_ns
    start, end = start_ns[keep], end_ns[keep]
    if not len(start):
        return Merged(np.empty(0, np.int64), np.empty(0, np.int64))
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    places = np.flatnonzero(first)
    last = np.concatenate((places[1:] - 1, [len(start) - 1]))
    return Merged(start[places], reach[last])


def gaps(merged: Merged, window_start_ns: int, window_end_ns: int) -> Merged:
    """What of the window the intervals leave free."""
    start = np.concatenate(([window_start_ns], merged.end_ns))
    end = np.concatenate((merged.start_ns, [window_end_ns]))
    start, end = np.maximum(start, window_start_ns), np.minimum(end, window_end_ns)
    keep = end > start
    return Merged(start[keep], end[keep])


def covered_ns(merged: Merged, start_ns: Ints, end_ns: Ints) -> Ints:
    """How much of each interval the merged intervals cover."""
    if not len(merged.start_ns):
        return np.zeros(len(start_ns), np.int64)
    lengths = merged.end_ns - merged.start_ns
    before = np.concatenate(([0], np.cumsum(lengths)))

    def until(points: Ints) -> Ints:
        index = np.searchsorted(merged.start_ns, points, side="right")
        inside = np.minimum(points, merged.end_ns[np.maximum(index - 1, 0)]) - merged.start_ns[np.maximum(index - 1, 0)]
        total: Ints = before[np.maximum(index - 1, 0)] + np.where(
            index > 0, np.minimum(inside, lengths[np.maximum(index - 1, 0)]), 0
        )
        return np.where(index > 0, total, 0)

    result: Ints = np.maximum(until(end_ns) - until(start_ns), 0)
    return result


def subtract(merged: Merged, other: Merged) -> Merged:
    """The parts of ``merged`` outside ``other``."""
    if not len(merged.start_ns) or not len(other.start_ns):
        return merged
    low = int(min(merged.start_ns[0], other.start_ns[0]))
    high = int(max(merged.end_ns[-1], other.end_ns[-1]))
    free = gaps(other, low, high)
    return intersect(merged, free)


def intersect(left: Merged, right: Merged) -> Merged:
    """The instants in both."""
    if not len(left.start_ns) or not len(right.start_ns):
        return Merged(np.empty(0, np.int64), np.empty(0, np.int64))
    times = np.concatenate((left.start_ns, left.end_ns, right.start_ns, right.end_ns))
    delta = np.concatenate(
        (
            np.ones(len(left.start_ns)),
            -np.ones(len(left.end_ns)),
            np.ones(len(right.start_ns)),
            -np.ones(len(right.end_ns)),
        )
    ).astype(np.int64)
    order = np.lexsort((delta, times))
    times, depth = times[order], np.cumsum(delta[order])
    both = np.flatnonzero(depth[:-1] == 2)
    keep = times[both + 1] > times[both]
    return merge(times[both][keep], times[both + 1][keep])


class Split(NamedTuple):
    """Lengths in nanoseconds, one value a group (step). The window's idle time is window minus ``busy_ns``."""

    compute_ns: Ints
    comm_ns: Ints
    memcpy_ns: Ints
    exposed_comm_ns: Ints
    overlapped_comm_ns: Ints
    exposed_memcpy_ns: Ints
    busy_ns: Ints


COMPUTE, COMM, MEMCPY = 0, 1, 2


def split(start_ns: Ints, end_ns: Ints, klass: NDArray[np.int8], group: Ints, groups: int) -> Split:
    r"""Unions per group of the classes compute (0), communication (1), copies (2).

    exposed_comm = |M \ C|, overlapped_comm = |M n C|, exposed_memcpy = |Y \ (C u M)|; groups do not see each other.
    """
    count = len(start_ns)
    times = np.concatenate((start_ns, end_ns))
    owner = np.concatenate((group, group))
    order = np.lexsort((times, owner))
    times, owner = times[order], owner[order]
    depth = []
    for kind in (COMPUTE, COMM, MEMCPY):
        mark = (klass == kind).astype(np.int32)
        delta = np.concatenate((mark, -mark))[order]
        depth.append(np.cumsum(delta) > 0)
    length = np.zeros(2 * count, np.int64)
    if count:
        length[:-1] = np.where(owner[1:] == owner[:-1], times[1:] - times[:-1], 0)
    compute, comm, memcpy = depth

    def total(mask: NDArray[np.bool_]) -> Ints:
        if not mask.any():
            return np.zeros(groups, np.int64)
        return np.bincount(owner[mask], length[mask], groups).astype(np.int64)  # exact below 2^53 ns

    return Split(
        compute_ns=total(compute),
        comm_ns=total(comm),
        memcpy_ns=total(memcpy),
        exposed_comm_ns=total(comm & ~compute),
        overlapped_comm_ns=total(comm & compute),
        exposed_memcpy_ns=total(memcpy & ~comm & ~compute),
        busy_ns=total(compute | comm | memcpy),
    )


def union_ns(start_ns: Ints, end_ns: Ints, owner: Ints, owners: int) -> Ints:
    """Length of the union of each owner's intervals; owners do not see each other. None may end before it starts."""
    if not len(start_ns):
        return np.zeros(owners, np.int64)
    base = int(start_ns.min())
    stride = int(end_ns.max()) - base + 1
    if owners * stride >= _FAR:
        return split(start_ns, end_ns, np.full(len(start_ns), COMM, np.int8), owner, owners).comm_ns
    place = owner * stride - base  # a stretch of one axis for each owner
    low, high = start_ns + place, end_ns + place
    if np.any(low[1:] < low[:-1]):
        order = np.argsort(low, kind="stable")
        low, high, owner = low[order], high[order], owner[order]
    reach = np.maximum.accumulate(high)
    high = high - low
    high[1:] -= np.maximum(reach[:-1] - low[1:], 0)
    return np.bincount(owner, np.maximum(high, 0), owners).astype(np.int64)  # exact below 2^53 ns
