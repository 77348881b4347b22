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
    """One value an activity: its launch's start, end and thread (UNKNOWN when outside the file), shared or not.

    The ``call`` columns have one value a launching call: its start, whether any device record has its correlation,
    and whether it replays a graph.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    shared: NDArray[np.bool_]
    call_ns: NDArray[np.int64]
    recorded: NDArray[np.bool_]
    is_graph: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which activities have their launch in the file."""
        known: NDArray[np.bool_] = self.start_ns != UNKNOWN
        return known


def match_launches(trace: RankTrace) -> Launches:
    """Join by correlation; several activities may share a launch (graph replay), none is a state of its own.

    Replays count as recorded when no replay of the file has records with its correlation but there are activities
    without launch: some versions of the profiler do not link replayed kernels.
    """
    activities, runtime = trace.activities, trace.runtime
    count = len(activities.start_ns)
    blank = np.full(count, UNKNOWN, np.int64)
    usable = np.flatnonzero(runtime.ref >= 0)
    if not len(usable):
        none = np.zeros(0, bool)
        return Launches(blank, blank.copy(), blank.copy(), np.zeros(count, bool), np.empty(0, np.int64), none, none)
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
    launching = usable[matching(trace.names, _KERNEL_LAUNCH)[runtime.name[usable]]]
    recorded = np.isin(runtime.ref[launching], used)
    is_graph = matching(trace.names, _GRAPH_LAUNCH)[runtime.name[launching]]
    if is_graph.any() and not recorded[is_graph].any() and not found.all():
        recorded = recorded | is_graph
    return Launches(start, end, thread, shared, runtime.start_ns[launching], recorded, is_graph)


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
