"""Which head of a step belongs to which tail: the doubtful joints of tracks, settled all steps at once.

Where a step pauses, what follows can be taken for another step's. At each such place of the program every head is
weighed with every tail by the usual delays and by the windows of the steps, and joined at the least total cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.rank.step_tracks import TIGHT_NS, Track, Usual, advanced, excess, follow, grow, start_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.analysis.rank.step_tracks import Integers, Learned, Work

_SWEEPS = 3
_BUDGET = 4_000_000
"""Activities weighed in one sweep over the doubtful places; above, the most doubtful ones only."""


class _Windows(NamedTuple):
    """Windows in order of their begin; ``lead`` and ``lag``: how far the first start and the last end lie from them."""

    opens_ns: Integers
    closes_ns: Integers
    lead_ns: int
    lag_ns: int


def tell_apart(work: Work, opens_ns: Sequence[int], closes_ns: Sequence[int]) -> Integers | None:
    """Window of each activity, as the position in ``opens_ns``; None where no consistent division was found.

    Args:
        work: activities in order of start; each kind occurs equally often in every step.
        opens_ns: when the steps' windows begin, ascending.
        closes_ns: when these windows end.
    """
    steps = len(opens_ns)
    count = np.unique(work.kind, return_counts=True)[1]
    if not len(count) or (count % steps).any():
        return None
    track = follow(work, opens_ns, {})
    if track is None:
        return None
    again = follow(work, opens_ns, _learn(work, track, steps))
    track = track if again is None else again
    opens, closes = np.asarray(opens_ns), np.asarray(closes_ns)
    windows = _Windows(opens, closes, int(work.start_ns.min() - opens.min()), int(work.end_ns.max() - closes.max()))
    window = _named(work, track, windows)
    for _ in range(_SWEEPS):
        joined = _join(work, window.copy(), windows)
        if np.array_equal(joined, window):
            break
        window = joined
    return window


def _learn(work: Work, track: Integers, steps: int) -> Learned:
    """How each place of the program starts in most steps."""
    seen: dict[tuple[int, int], list[tuple[int, bool]]] = {}
    for one in range(steps):
        for stream, place, state, start in _walk(work, np.flatnonzero(track == one)):
            if any(state.place):
                amid = any(began < start - TIGHT_NS for _, _, began in state.running)
                seen.setdefault((stream, place), []).append((max(start - state.event_ns, 0), amid))
    learned = {}
    for key, values in seen.items():
        delay = np.array([value for value, _ in values], np.float64)
        middle = float(np.median(delay))
        learned[key] = Usual(
            middle, float(np.median(np.abs(delay - middle))), bool(np.mean([amid for _, amid in values]) > 0.5)
        )
    return learned


def _walk(work: Work, rows: Integers) -> list[tuple[int, int, Track, int]]:
    """(stream, place on it, the step's state before it, start) of the activities of one step, in order."""
    state = Track((0,) * (int(work.stream.max()) + 1), (), 0)
    result = []
    for start, end, stream in zip(
        work.start_ns[rows].tolist(), work.end_ns[rows].tolist(), work.stream[rows].tolist(), strict=True
    ):
        state = advanced(state, start)
        place = state.place[stream]
        result.append((stream, place, state, start))
        state = grow(state, stream, start, end)
    return result


def _weight(work: Work, rows: Integers, usual: Learned) -> float:
    """Cost of one step: how unusual its starts are; two at once on a stream is out of the question."""
    total = 0.0
    for stream, place, state, start in _walk(work, rows):
        if any(busy == stream for busy, _, _ in state.running):
            return np.inf
        if any(state.place):
            total += start_cost(state, start, usual.get((stream, place)))
    return total


def _named(work: Work, track: Integers, windows: _Windows) -> Integers:
    """Tracks by the window that begins and ends with them."""
    from scipy.optimize import linear_sum_assignment

    steps = len(windows.opens_ns)
    first = np.array([work.start_ns[track == one].min() for one in range(steps)])
    last = np.array([work.end_ns[track == one].max() for one in range(steps)])
    cost = _far(first[:, None] - windows.opens_ns - windows.lead_ns) + _far(
        last[:, None] - windows.closes_ns - windows.lag_ns
    )
    name = np.empty(steps, np.int64)
    rows, columns = linear_sum_assignment(cost)
    name[rows] = columns
    return name[track]


def _join(work: Work, window: Integers, windows: _Windows) -> Integers:
    """Heads and tails joined anew at each doubtful place of the program, in the order of the program."""
    from scipy.optimize import linear_sum_assignment

    steps = len(windows.opens_ns)
    usual = _learn(work, window, steps)
    place = np.empty(len(window), np.int64)
    for one in range(steps):
        rows = np.flatnonzero(window == one)
        place[rows] = [at for _, at, _, _ in _walk(work, rows)]
    for stream, at in _doubtful(work, window, usual, steps):
        cuts = np.array(
            [np.flatnonzero((window == one) & (work.stream == stream) & (place == at))[0] for one in range(steps)]
        )
        before = [np.flatnonzero((window == one) & (np.arange(len(window)) < cuts[one])) for one in range(steps)]
        after = [np.flatnonzero((window == one) & (np.arange(len(window)) >= cuts[one])) for one in range(steps)]
        if len({tuple(np.bincount(work.kind[rows], minlength=int(work.kind.max()) + 1)) for rows in before}) > 1:
            continue  # the steps differ in what lies before: no common joint
        cost = np.full((steps, steps), np.inf)
        for head in range(steps):
            lead = _far(work.start_ns[before[head][:1]] - windows.opens_ns[:, None] - windows.lead_ns).sum(axis=1)
            for tail in range(steps):
                rows = np.concatenate((before[head], after[tail]))
                if (np.diff(rows) > 0).all():
                    cost[head, tail] = _weight(work, rows, usual) + lead[tail]
        cost = np.where(np.isfinite(cost), cost, 1e6)
        heads, tails = linear_sum_assignment(cost)
        if cost[heads, tails].sum() < np.trace(cost) - 1e-6:
            for head, tail in zip(heads.tolist(), tails.tolist(), strict=True):
                window[before[head]] = tail
    return window


def _doubtful(work: Work, window: Integers, usual: Learned, steps: int) -> list[tuple[int, int]]:
    """Places of the program where at least two steps start late, in order of the program."""
    late: dict[tuple[int, int], int] = {}
    at: dict[tuple[int, int], int] = {}
    for one in range(steps):
        for stream, place, state, start in _walk(work, np.flatnonzero(window == one)):
            if any(state.place):
                late[stream, place] = late.get((stream, place), 0) + (excess(max(start - state.event_ns, 0), 0) > 0)
                at[stream, place] = max(at.get((stream, place), 0), start)
    allowed = max(_BUDGET // (steps * len(window)), 1)
    chosen = sorted((key for key, count in late.items() if count > 1), key=lambda key: -usual[key].spread_ns)[:allowed]
    return sorted(chosen, key=lambda key: at[key])


def _far(distance: Integers) -> NDArray[np.float64]:
    return np.log(np.maximum(np.abs(distance), TIGHT_NS) / TIGHT_NS)
