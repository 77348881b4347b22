"""Why the device was idle: the data loader, a late launch (with garbage collection and the allocator told apart),
a host that waited for the device, or something the trace does not show.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.intervals import Merged, covered_ns, gaps, merge
from diagnose.analysis.rank.launches import allocator_calls, matching, sync_calls
from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.store.rank_trace import RankTrace

_LOADER = re.compile(
    r"^enumerate\(DataLoader\)|DataLoader.*__next__|dataloader\.py.*__next__|^\[pl\].*fetch_next|get_train_batch|^dataload",
    re.IGNORECASE,
)
_COLLECT = re.compile(r"\bgc\.collect|gc\.py.*collect|built-in function collect", re.IGNORECASE)
GC_SILENCE_NS = 50_000_000
"""A process without any operator or runtime call for this long is not merely slow Python."""


class IdleParts(NamedTuple):
    """One value a gap, nanoseconds; the first four add up to its length, gc and allocator are parts of ``host``."""

    input_ns: NDArray[np.int64]
    host_ns: NDArray[np.int64]
    sync_ns: NDArray[np.int64]
    other_ns: NDArray[np.int64]
    gc_ns: NDArray[np.int64]
    allocator_ns: NDArray[np.int64]


class HostSpans(NamedTuple):
    """Merged spans of the host that explain idle time."""

    loader: Merged
    allocator: Merged
    sync: Merged
    silent: Merged


def host_spans(trace: RankTrace) -> HostSpans:
    """Spans of one trace; ``silent`` are stretches in which no thread has an event."""
    loader = loader_spans(trace)
    runtime = trace.runtime
    allocator, sync = allocator_calls(trace), sync_calls(trace)
    return HostSpans(
        loader,
        merge(runtime.start_ns[allocator], runtime.end_ns[allocator]),
        merge(runtime.start_ns[sync], runtime.end_ns[sync]),
        _collecting(trace),
    )


def loader_spans(trace: RankTrace) -> Merged:
    """Time inside the data loader's next."""
    is_loader = matching(trace.names, _LOADER)
    spans = [
        (calls.start_ns[pick], calls.end_ns[pick])
        for calls in (trace.annotations, trace.python_calls)
        if len(pick := is_loader[calls.name])
    ]
    if not spans:
        return merge(np.empty(0, np.int64), np.empty(0, np.int64))
    return merge(np.concatenate([start for start, _ in spans]), np.concatenate([end for _, end in spans]))


def idle_parts(
    spans: HostSpans, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], launch_ns: NDArray[np.int64]
) -> IdleParts:
    """Divide gaps of the device; ``launch_ns`` is the launch of the activity that ends each gap.

    Only what lies before that launch can be the host's doing: a kernel that was launched before its gap began waits
    for something else. Precedence: input, allocator, silence, sync, late launch.
    """
    late = np.clip(np.where(launch_ns == UNKNOWN, start_ns, launch_ns), start_ns, end_ns)
    length = late - start_ns
    inside = covered_ns(spans.loader, start_ns, late)
    allocator = np.minimum(covered_ns(spans.allocator, start_ns, late), length - inside)
    silent = np.minimum(covered_ns(spans.silent, start_ns, late), length - inside - allocator)
    sync = np.minimum(covered_ns(spans.sync, start_ns, late), length - inside - allocator - silent)
    return IdleParts(inside, length - inside - sync, sync, end_ns - late, silent, allocator)


def long_silence(busy: Merged) -> Merged:
    """Stretches of at least GC_SILENCE_NS between busy ones."""
    if len(busy.start_ns) < 2:
        return merge(np.empty(0, np.int64), np.empty(0, np.int64))
    free = gaps(busy, int(busy.start_ns[0]), int(busy.end_ns[-1]))
    long = free.end_ns - free.start_ns >= GC_SILENCE_NS
    return Merged(free.start_ns[long], free.end_ns[long])


def _collecting(trace: RankTrace) -> Merged:
    """Garbage collection: Python frames that say so, and stretches in which the host is silent."""
    # Each by itself first: nested operators leave few spans, and millions of them need not be held twice.
    parts = [merge(calls.start_ns, calls.end_ns) for calls in (trace.runtime, trace.operators)]
    busy = merge(np.concatenate([one.start_ns for one in parts]), np.concatenate([one.end_ns for one in parts]))
    silent = long_silence(busy)
    frames = matching(trace.names, _COLLECT)[trace.python_calls.name]
    start = np.concatenate((silent.start_ns, trace.python_calls.start_ns[frames]))
    return merge(start, np.concatenate((silent.end_ns, trace.python_calls.end_ns[frames])))
