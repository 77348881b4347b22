"""Steps that lie on top of one another: traces put together from single steps, each with its own zero of time.

One thread cannot be in two steps at once. Where the windows of most steps overlap, the order of correlations may still
tell the steps apart: it grows while the time jumps back at each new step. Where the writer sorted by time as well,
the steps are told apart by what makes each activity start (see step_tracks). The steps are then laid one after
another, at multiples of a period that is the same on all ranks: a power of two so far above the longest step that the pause between two steps is
longer than a step, and no part of either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.rank.step_joins import tell_apart
from diagnose.analysis.rank.step_tracks import Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.store.rank_trace import RankTrace

_STEP = re.compile(r"^ProfilerStep#(\d+)")
_MIN_STEPS = 2
_OVERLAP = 0.5
_MAX_CALLS = 20_000
"""Telling steps apart by causes is a search: it is made for the short traces that are put together this way."""

_SPAN_RATIO = 0.02
"""A step's device work fills its window; where it does not, the division is wrong."""


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
    arguments = trace.comm_args
    segment = _segments(trace.runtime.start_ns, trace.runtime.ref)
    if segment is not None and segment.max() + 1 == len(rows):
        first = np.array([trace.runtime.start_ns[segment == place].min() for place in range(len(rows))])
        window_of = order[np.argsort(np.argsort(first))]  # segments and windows in the same order of starts
    else:
        segment = _by_causes(trace, start, end)
        window_of = np.arange(len(rows))
        arguments = [
            args._replace(seq=None) for args in arguments
        ]  # counted in the order of the file, through all steps
    if segment is None:
        return None
    period = 1 << int(np.ceil(np.log2(2.0 * float((end - start).max()) + 1)))
    rank_of_step = np.argsort(np.argsort(numbers))
    shift_of_window = rank_of_step * period
    shift_of_segment = shift_of_window[window_of]
    moved_calls = trace.runtime._replace(start_ns=trace.runtime.start_ns + shift_of_segment[segment])
    activity_shift = _by_correlation(trace, segment, shift_of_segment)
    windows, lengths = np.array(annotations.start_ns), np.array(annotations.dur_ns)
    launched = trace.runtime.start_ns
    for segment_number, row in enumerate(rows[window_of]):  # a window holds what its step launched
        mine = launched[segment == segment_number]
        begin, close = min(windows[row], mine.min()), max(windows[row] + lengths[row], mine.max() + 1)
        windows[row], lengths[row] = begin, close - begin
    windows[rows] += shift_of_window
    again = np.argsort(windows, kind="stable")
    moved_annotations = annotations._replace(start_ns=windows, dur_ns=lengths).take(again)
    activities = trace.activities._replace(start_ns=trace.activities.start_ns + activity_shift)
    by_start = np.lexsort((activities.dur_ns, activities.start_ns))
    calls_order = np.argsort(moved_calls.start_ns, kind="stable")
    return LaidOut(
        trace._replace(
            activities=activities.take(by_start),
            runtime=moved_calls.take(calls_order),
            annotations=moved_annotations,
            comm_args=arguments,
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


def _by_causes(trace: RankTrace, opens_ns: NDArray[np.int64], closes_ns: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Window of each call from what starts its device work; None unless all steps run one program and fill their windows."""
    runtime, activities = trace.runtime, trace.activities
    if (
        not 0 < len(runtime.ref) <= _MAX_CALLS
        or len(np.unique(runtime.ref)) != len(runtime.ref)
        or len(activities.start_ns) != len(runtime.ref)
    ):
        return None
    calls = np.argsort(runtime.ref, kind="stable")
    work = np.argsort(activities.correlation, kind="stable")
    if not np.array_equal(runtime.ref[calls], activities.correlation[work]):
        return None
    start, end = activities.start_ns[work], activities.start_ns[work] + activities.dur_ns[work]
    order = np.lexsort((end, start))
    stream = np.unique(np.stack([activities.device[work], activities.stream[work]]), axis=1, return_inverse=True)[1]
    said = [trace.comm_args[one] if one >= 0 else None for one in activities.args[work].tolist()]
    what = [None if args is None else (args.collective, args.group_name, args.src_rank, args.dst_rank) for args in said]
    code: dict[tuple[object, ...], int] = {}
    kind = np.array(
        [
            code.setdefault(one, len(code))
            for one in zip(activities.name[work].tolist(), stream.tolist(), what, strict=True)
        ]
    )
    by_open = np.argsort(opens_ns, kind="stable")
    table = Work(start[order], end[order], kind[order], stream[order])
    window = tell_apart(table, opens_ns[by_open].tolist(), closes_ns[by_open].tolist())
    if window is None:
        return None
    length = (closes_ns - opens_ns)[by_open]
    spans = np.array(
        [table.end_ns[window == one].max() - table.start_ns[window == one].min() for one in range(len(by_open))]
    )
    if (np.abs(spans - length) > _SPAN_RATIO * length).any():
        return None
    result = np.empty(len(calls), np.int64)
    result[calls[order]] = by_open[window]
    return result


def _by_correlation(trace: RankTrace, segment: NDArray[np.int64], shift: NDArray[np.int64]) -> NDArray[np.int64]:
    keys = trace.runtime.ref
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys[order], trace.activities.correlation), len(order) - 1)
    call = order[place]
    return np.where(keys[call] == trace.activities.correlation, shift[segment[call]], 0)
