"""Steps of one rank: host windows from annotations or the optimizer, device work by who launched it.

Device work belongs to the step whose host window launched it, never to the one it happens to run in.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.rank.launches import matching
from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.store.rank_trace import RankTrace

_STEP = re.compile(r"^ProfilerStep#(\d+)")
_OPTIMIZER = re.compile(r"^Optimizer\.step#")
_MIN_OPTIMIZER_STEPS = 3
"""Two windows at least between optimizer steps, or the period is a guess."""


class HostWindows(NamedTuple):
    """Host windows in order; ``source`` is ProfilerStep, optimizer, period or none."""

    number: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: int | None
    source: str


def host_windows(trace: RankTrace) -> HostWindows:
    """The host windows of a trace; empty when nothing marks steps."""
    calls = trace.annotations
    numbers = {code: int(match[1]) for code, name in enumerate(trace.names) if (match := _STEP.match(name))}
    rows = np.flatnonzero(np.isin(calls.name, np.fromiter(numbers, np.int64, len(numbers))))
    if len(rows):
        number = np.array([numbers[int(code)] for code in calls.name[rows]], np.int64)
        order = np.lexsort((-calls.dur_ns[rows], calls.start_ns[rows]))
        rows, number = rows[order], number[order]
        first = np.unique(number, return_index=True)[1]
        rows, number = rows[np.sort(first)], number[np.sort(first)]
        return HostWindows(number, calls.start_ns[rows], calls.end_ns[rows], int(calls.thread[rows[0]]), "ProfilerStep")
    return _optimizer_windows(trace)


def _optimizer_windows(trace: RankTrace) -> HostWindows:
    calls = trace.annotations
    rows = np.flatnonzero(matching(trace.names, _OPTIMIZER)[calls.name]) if len(calls.name) else np.empty(0, np.int64)
    none = np.empty(0, np.int64)
    if len(rows) < _MIN_OPTIMIZER_STEPS:
        return HostWindows(none, none, none, None, "none")
    code = Counter(calls.name[rows].tolist()).most_common(1)[0][0]
    rows = rows[calls.name[rows] == code]
    if len(rows) < _MIN_OPTIMIZER_STEPS:
        return HostWindows(none, none, none, None, "none")
    ends = np.sort(calls.end_ns[rows])
    return HostWindows(np.arange(len(ends) - 1), ends[:-1], ends[1:], int(calls.thread[rows[0]]), "optimizer")


def period_windows(starts_ns: NDArray[np.int64], tokens: NDArray[np.int64]) -> HostWindows:
    """Windows from the period of the sequence of communication calls, when it repeats at least three times.

    match(k) = share of calls equal to the k-th after; the smallest k with match(k) >= 0.95 whose period contains the
    rarest recurring call wins, so that a micro-batch or a layer is not taken for a step.
    Source: Greyhound, USENIX ATC'25, with exact matching in place of autocorrelation.
    """
    none = np.empty(0, np.int64)
    count = len(tokens)
    values, inverse, times = np.unique(tokens, return_inverse=True, return_counts=True)
    if count < _MIN_OPTIMIZER_STEPS or len(values) == 0:
        return HostWindows(none, none, none, None, "none")
    recurring = times[times >= _MIN_OPTIMIZER_STEPS]
    if not len(recurring):
        return HostWindows(none, none, none, None, "none")
    rarest = int(recurring.min())
    anchor = int(np.flatnonzero(times == rarest)[-1])
    marks = np.flatnonzero(inverse == anchor)
    for stride in range(1, len(marks) // _MIN_OPTIMIZER_STEPS + 1):
        lag = int(marks[stride] - marks[0])
        if lag and np.mean(tokens[lag:] == tokens[:-lag]) >= 0.95:
            starts = starts_ns[marks[::stride]]
            return HostWindows(np.arange(len(starts) - 1), starts[:-1], starts[1:], None, "period")
    return HostWindows(none, none, none, None, "none")


def step_of(windows: HostWindows, time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the window each time lies in, -1 outside any (and for UNKNOWN)."""
    if not len(windows.start_ns):
        return np.full(len(time_ns), -1, np.int64)
    place = np.searchsorted(windows.start_ns, time_ns, side="right") - 1
    inside = (place >= 0) & (time_ns != UNKNOWN) & (time_ns < windows.end_ns[np.maximum(place, 0)])
    return np.where(inside, place, -1)


class StepTimes(NamedTuple):
    """One value a window that has work: device window and step time. ``index`` points into the host windows."""

    index: NDArray[np.int64]  # type: ignore[assignment]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    step_ns: NDArray[np.int64]
    activities: NDArray[np.int64]


_APART_RATIO = 0.5
"""A pause between two host windows of more than half a step lies outside both: evaluation, or another recording."""


def after_pause(windows: HostWindows) -> NDArray[np.bool_]:
    """Windows that do not follow the one before: the time between belongs to no step."""
    if not len(windows.number):
        return np.zeros(0, bool)
    pause = windows.start_ns[1:] - windows.end_ns[:-1]
    return np.append(False, pause > _APART_RATIO * float(np.median(windows.end_ns - windows.start_ns)))


def device_steps(
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    step: NDArray[np.int64],
    number: NDArray[np.int64],
    blind: NDArray[np.bool_],
) -> StepTimes:
    """First start to the later of the last end and the next step's first start; steps without work are left out.

    The step before one that is ``blind`` (its records are incomplete), has no work or does not follow in number ends
    with its own last activity: nothing says when the next one began.
    """
    windows = len(number)
    first = np.full(windows, np.iinfo(np.int64).max, np.int64)
    last = np.full(windows, np.iinfo(np.int64).min, np.int64)
    inside = step >= 0
    np.minimum.at(first, step[inside], start_ns[inside])
    np.maximum.at(last, step[inside], end_ns[inside])
    count = np.bincount(step[inside], minlength=windows)
    index = np.flatnonzero(count)
    follows = (index[1:] == index[:-1] + 1) & (number[index[1:]] == number[index[:-1]] + 1) & ~blind[index[1:]]
    first, last = first[index], last[index]
    following = np.append(np.where(follows, first[1:], last[:-1]), last[-1:])
    has_next = np.append(follows, np.zeros(len(last[-1:]), bool))
    end = np.maximum(last, following)
    return StepTimes(index, first, end, np.where(has_next, following - first, end - first), count[index])
