"""Steps that lie on top of one another: traces put together from single steps, each with its own zero of time.

One thread cannot be in two steps at once. Where the windows of most steps overlap, the order of correlations may still
tell the steps apart: it grows while the time jumps back at each new step. Where the writer sorted by time as well,
the steps are told apart by their equal programs: of n steps, the first n launches of an activity are its first
execution in each, in the order in which the steps began. The steps are then laid one after another, at multiples of a
period that is the same on all ranks (a power of two above the longest step).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.store.rank_trace import RankTrace

_STEP = re.compile(r"^ProfilerStep#(\d+)")
_MIN_STEPS = 2
_OVERLAP = 0.5


class LaidOut(NamedTuple):
    """The trace with its steps in sequence, and how many there were."""

    trace: RankTrace
    steps: int


def lay_out_steps(trace: RankTrace) -> LaidOut | None:
    """The trace with overlapping steps laid one after another; None for a trace whose steps do not overlap.

    Also None where the launches cannot be told apart: then nothing is moved.
    """
    annotations = trace.annotations
    number_of = {code: int(match[1]) for code, name in enumerate(trace.names) if (match := _STEP.match(name))}
    rows = np.flatnonzero(np.isin(annotations.name, list(number_of)))
    if len(rows) < _MIN_STEPS:
        return None
    numbers = np.array([number_of[int(code)] for code in annotations.name[rows]])
    start, end = annotations.start_ns[rows], annotations.end_ns[rows]
    order = np.argsort(start, kind="stable")
    shared = np.minimum(end[order][:-1], end[order][1:]) - start[order][1:]
    shorter = np.minimum((end - start)[order][:-1], (end - start)[order][1:])
    if np.mean(shared > _OVERLAP * shorter) < _OVERLAP or len(np.unique(numbers)) != len(numbers):
        return None
    segment = _segments(trace.runtime.start_ns, trace.runtime.ref)
    if segment is None or segment.max() + 1 != len(rows):
        segment = _by_program(trace, len(rows))
    if segment is None:
        return None
    first = np.array([trace.runtime.start_ns[segment == place].min() for place in range(len(rows))])
    window_of = order[np.argsort(np.argsort(first))]  # segments and windows in the same order of starts
    period = 1 << int(np.ceil(np.log2(float((end - start).max()) + 1)))
    rank_of_step = np.argsort(np.argsort(numbers))
    shift_of_window = rank_of_step * period
    shift_of_segment = shift_of_window[window_of]
    moved_calls = trace.runtime._replace(start_ns=trace.runtime.start_ns + shift_of_segment[segment])
    activity_shift = _by_correlation(trace, segment, shift_of_segment)
    windows = np.array(annotations.start_ns)
    windows[rows] += shift_of_window
    again = np.argsort(windows, kind="stable")
    moved_annotations = annotations._replace(start_ns=windows).take(again)
    activities = trace.activities._replace(start_ns=trace.activities.start_ns + activity_shift)
    by_start = np.lexsort((activities.dur_ns, activities.start_ns))
    calls_order = np.argsort(moved_calls.start_ns, kind="stable")
    return LaidOut(
        trace._replace(
            activities=activities.take(by_start),
            runtime=moved_calls.take(calls_order),
            annotations=moved_annotations,
        ),
        len(rows),
    )


def _segments(start: NDArray[np.int64], correlation: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Step of each call: in correlation order, a new one begins where time jumps back by half of the whole."""
    if not len(start) or (correlation < 0).any():
        return None
    order = np.lexsort((start, correlation))
    ordered = start[order]
    jump = np.diff(ordered) < -0.5 * float(ordered.max() - ordered.min())
    segment = np.empty(len(start), np.int64)
    segment[order] = np.concatenate(([0], np.cumsum(jump)))
    return segment


def _by_program(trace: RankTrace, steps: int) -> NDArray[np.int64] | None:
    """Step of each call from equal programs; None unless every activity runs equally often in each step."""
    runtime, activities = trace.runtime, trace.activities
    if (
        not len(runtime.ref)
        or len(np.unique(runtime.ref)) != len(runtime.ref)
        or len(activities.start_ns) != len(runtime.ref)
    ):
        return None
    calls = np.argsort(runtime.ref, kind="stable")
    work = np.argsort(activities.correlation, kind="stable")
    if not np.array_equal(runtime.ref[calls], activities.correlation[work]):
        return None
    kind = np.unique(np.stack([activities.name[work], activities.stream[work]]), axis=1, return_inverse=True)[1]
    segment = np.full(len(calls), -1, np.int64)
    for one in np.unique(kind):
        mine = calls[kind == one]
        if len(mine) % steps:
            return None
        segment[mine[np.argsort(runtime.start_ns[mine], kind="stable")]] = np.arange(len(mine)) % steps
    return segment


def _by_correlation(trace: RankTrace, segment: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.int64]:
    keys = trace.runtime.ref
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], trace.activities.correlation), len(order) - 1)
    call = order[place]
    return np.where(keys[call] == trace.activities.correlation, shift[segment[call]], 0)
