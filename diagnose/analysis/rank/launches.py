"""Device activities and the host calls that launched them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.store.rank_trace import RankTrace

_KERNEL_LAUNCH = re.compile(r"Launch(?!HostFunc)|^mtia|Enqueue.*Kernel|AppendLaunchKernel", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch", re.IGNORECASE)
_SYNC = re.compile(r"Synchronize|EventQuery|StreamWaitValue|^cudaMemcpy$|^hipMemcpy$|WaitEvent$", re.IGNORECASE)
_ALLOCATE = re.compile(
    r"^(?:cuda|hip|cu|ze|ur)\w*(?:Malloc|Free|MemCreate|MemMap|MemUnmap|MemRelease|HostAlloc|HostRegister)",
    re.IGNORECASE,
)
_NO_WAIT = re.compile(r"EventQuery|StreamWaitEvent", re.IGNORECASE)


class Launches(NamedTuple):
    """One value an activity: its launch's start, end and thread (UNKNOWN when outside the file), shared or not."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    shared: NDArray[np.bool_]
    lost: int
    """Launching calls without any device record."""
    total: int
    """Launching calls."""


def match_launches(trace: RankTrace) -> Launches:
    """Join by correlation; several activities may share a launch (graph replay), none is a state of its own."""
    activities, runtime = trace.activities, trace.runtime
    count = len(activities.start_ns)
    blank = np.full(count, UNKNOWN, np.int64)
    usable = np.flatnonzero(runtime.ref >= 0)
    if not len(usable):
        return Launches(blank, blank.copy(), blank.copy(), np.zeros(count, bool), 0, 0)
    order = usable[np.argsort(runtime.ref[usable], kind="stable")]
    keys = runtime.ref[order]
    place = np.minimum(np.searchsorted(keys, activities.correlation), len(keys) - 1)
    found = (activities.correlation >= 0) & (keys[place] == activities.correlation)
    call = order[place]
    start = np.where(found, runtime.start_ns[call], UNKNOWN)
    end = np.where(found, runtime.start_ns[call] + runtime.dur_ns[call], UNKNOWN)
    thread = np.where(found, runtime.thread[call], UNKNOWN)
    used, times = np.unique(activities.correlation[found], return_counts=True)
    shared = np.zeros(count, bool)
    shared[found] = times[np.searchsorted(used, activities.correlation[found])] > 1
    kernel_launch = matching(trace.names, _KERNEL_LAUNCH)[runtime.name[usable]]
    launched = runtime.ref[usable][kernel_launch]
    lost = int((~np.isin(launched, activities.correlation)).sum()) if len(launched) else 0
    return Launches(start, end, thread, shared, lost, len(launched))


def matching(names: Sequence[str], pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """For each name code, whether the pattern is found in it."""
    return np.fromiter((pattern.search(name) is not None for name in names), bool, len(names))


def sync_calls(trace: RankTrace) -> NDArray[np.bool_]:
    """Which runtime calls wait for the device."""
    waits = matching(trace.names, _SYNC) & ~matching(trace.names, _NO_WAIT)
    return waits[trace.runtime.name]


def allocator_calls(trace: RankTrace) -> NDArray[np.bool_]:
    """Which runtime calls allocate or free device memory."""
    return matching(trace.names, _ALLOCATE)[trace.runtime.name]


def graph_launches(trace: RankTrace) -> int:
    """Number of graph replays."""
    return int(matching(trace.names, _GRAPH_LAUNCH)[trace.runtime.name].sum())
