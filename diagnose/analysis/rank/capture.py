"""Did the profiler record what was launched? What it lost is unknown time, never idle time.

A launch without device record is lost; a replayed graph without any record of its kernels is, however many kernels
it holds. Child launches leave some launches without record in sound traces, so a share of them is tolerated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.rank.steps import step_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.rank.launches import Launches
    from diagnose.analysis.rank.steps import HostWindows

_LOST_LAUNCHES = 0.5
"""Child launches leave launches without record in sound traces; half of them is a capture that failed."""
_LOST_REPLAYS = 0.1
"""One replay stands for hundreds of kernels: a tenth of them missing already falsifies idle time."""


class Capture(NamedTuple):
    """``steps`` says for each host window why its device time is unknown (None: it is known); ``rank`` for the whole
    trace, when no step is known; ``whole`` for the trace's idle time.
    """

    rank: str | None
    whole: str | None
    steps: list[str | None]


def judge_capture(launches: Launches, windows: HostWindows) -> Capture:
    """What was lost, over the trace and in each host window."""
    whole = _why(launches.recorded, launches.is_graph)
    place = step_of(windows, launches.call_ns)
    steps = [
        _why(launches.recorded[chosen], launches.is_graph[chosen]) for chosen in _by_window(place, len(windows.number))
    ]
    lost = sum(why is not None for why in steps)
    if not steps:
        return Capture(whole, whole, steps)
    if lost == len(steps):
        return Capture(whole or steps[0], whole or steps[0], steps)
    return Capture(None, f"{lost} of {len(steps)} steps lost their device records" if lost else whole, steps)


def _why(recorded: NDArray[np.bool_], is_graph: NDArray[np.bool_]) -> str | None:
    total = len(recorded)
    if not total:
        return None
    missing = int((~recorded).sum())
    replays, lost_replays = int(is_graph.sum()), int((is_graph & ~recorded).sum())
    if missing == total:
        return f"none of {total} kernel launches has a device record"
    if replays and lost_replays > _LOST_REPLAYS * replays:
        return f"{lost_replays} of {replays} graph replays have no device record"
    if missing > _LOST_LAUNCHES * total:
        return f"{missing} of {total} kernel launches have no device record"
    return None


def _by_window(place: NDArray[np.int64], windows: int) -> list[NDArray[np.int64]]:
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(windows + 1))
    return [order[bounds[window] : bounds[window + 1]] for window in range(windows)]
