"""Device work of steps that lie on top of one another, told apart by what makes each activity start.

Within a step an activity starts when something else of that step starts or ends: a kernel when the receive before it
ends, a send when its forward does. So every activity is given, in order of start, to the step in which something has
just happened, and doubtful choices are kept side by side until what follows decides (a beam search). All steps run one
program: the activities of a stream come in the same order in each of them, and never two at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

TIGHT_NS = 10_000
"""Clocks and launches blur the start behind its cause by microseconds; below this nothing is told apart."""

_WIDTH, _MARGIN = 64, 10.0
"""Hypotheses kept: so many, and none whose cost is further above the best."""

_AMID = 6.0
"""Cost of a start amid other work of the step, where that is unusual: as that of a delay of milliseconds."""


class Work(NamedTuple):
    """Activities: ``kind`` says what is the same thing in each step, ``stream`` counts from 0."""

    start_ns: Integers
    end_ns: Integers
    kind: Integers
    stream: Integers


class Usual(NamedTuple):
    """How one place of the program usually starts: delay after the last event of its step, its spread, amid other work."""

    delay_ns: float
    spread_ns: float
    amid: bool


class Track(NamedTuple):
    """A step so far: place on each stream, what runs (stream, end, start), the last start or end."""

    place: tuple[int, ...]
    running: tuple[tuple[int, int, int], ...]
    event_ns: int


class _Guess(NamedTuple):
    """One hypothesis. ``chosen`` links back through the tracks chosen."""

    cost: float
    tracks: tuple[Track, ...]
    program: int
    chosen: tuple[object, int] | None


Learned = dict[tuple[int, int], Usual]


class _Programs:
    """What streams run in order, as far as hypotheses have come: each is a number, each kind has its share of places."""

    def __init__(self, streams: int, quota: dict[int, int]) -> None:
        start: tuple[tuple[int, ...], ...] = tuple(() for _ in range(streams))
        self._quota = quota
        self._all = [start]
        self._number = {start: 0}

    def with_kind(self, number: int, stream: int, place: int, kind: int) -> int | None:
        """The program in which this kind is at this place of a stream: the same one, a longer one, or none."""
        program = self._all[number]
        order = program[stream]
        if place < len(order):
            return number if order[place] == kind else None
        if order.count(kind) >= self._quota[kind]:
            return None
        longer = (*program[:stream], (*order, kind), *program[stream + 1 :])
        found = self._number.setdefault(longer, len(self._all))
        if found == len(self._all):
            self._all.append(longer)
        return found


def follow(work: Work, opens_ns: Sequence[int], usual: Learned) -> Integers | None:
    """Track of each activity. Tracks are numbered as they open; a track opens when a window does."""
    steps = len(opens_ns)
    streams = int(work.stream.max()) + 1
    kinds, counts = np.unique(work.kind, return_counts=True)
    programs = _Programs(streams, dict(zip(kinds.tolist(), (counts // steps).tolist(), strict=True)))
    lead = int(work.start_ns[0]) - opens_ns[0]
    unopened = Track((0,) * streams, (), 0)
    guesses = [_Guess(0.0, (), 0, None)]
    for start, end, kind, stream in zip(*(column.tolist() for column in work), strict=True):
        found: dict[tuple[int, tuple[Track, ...]], _Guess] = {}
        for guess in guesses:
            tracks = [advanced(track, start) for track in guess.tracks]
            opened = len(tracks)
            if opened < steps and start >= opens_ns[opened]:
                tracks.append(unopened)
            for track in dict.fromkeys(tracks):  # equal tracks are one choice
                program = programs.with_kind(guess.program, stream, track.place[stream], kind)
                if program is None or any(busy == stream for busy, _, _ in track.running):
                    continue
                if track is unopened:
                    cost = guess.cost + excess(abs(start - opens_ns[opened] - lead), 0)
                else:
                    cost = guess.cost + start_cost(track, start, usual.get((stream, track.place[stream])))
                taken = tracks.index(track)
                kept = tracks if track is unopened or tracks[-1] is not unopened else tracks[:-1]
                after = (*kept[:taken], grow(track, stream, start, end), *kept[taken + 1 :])
                key = (program, tuple(sorted(after)))
                if key not in found or cost < found[key].cost:
                    found[key] = _Guess(cost, after, program, (guess.chosen, taken))
        if not found:
            return None
        limit = min(guess.cost for guess in found.values()) + _MARGIN
        guesses = sorted((guess for guess in found.values() if guess.cost <= limit), key=lambda guess: guess.cost)[
            :_WIDTH
        ]
    best = guesses[0]
    return _unlinked(best.chosen, len(work.start_ns)) if len(best.tracks) == steps else None


def grow(track: Track, stream: int, start: int, end: int) -> Track:
    """The track with one more activity."""
    place = (*track.place[:stream], track.place[stream] + 1, *track.place[stream + 1 :])
    return Track(place, (*track.running, (stream, end, start)), start)


def advanced(track: Track, now: int) -> Track:
    """The track at a time: what has ended by then is its last event."""
    ended = [end for _, end, _ in track.running if end <= now + TIGHT_NS]
    if not ended:
        return track
    running = tuple(one for one in track.running if one[1] > now + TIGHT_NS)
    return track._replace(running=running, event_ns=max(track.event_ns, *ended))


def start_cost(track: Track, start: int, usual: Usual | None) -> float:
    """How badly an activity that starts now fits this step: its delay, and a start amid other work."""
    delay = max(start - track.event_ns, 0)
    amid = any(began < start - TIGHT_NS for _, _, began in track.running)
    if usual is None:
        return excess(delay, 0) + (_AMID if amid else 0.0)
    return excess(abs(delay - usual.delay_ns), usual.spread_ns) + (_AMID if amid != usual.amid else 0.0)


def excess(delay_ns: float, spread_ns: float) -> float:
    """Cost of a deviation: none within the spread, then the logarithm of how far it lies beyond."""
    scale = max(spread_ns, TIGHT_NS)
    return math.log(delay_ns / scale) if delay_ns > scale else 0.0


def _unlinked(chosen: tuple[object, int] | None, length: int) -> Integers:
    result = np.empty(length, np.int64)
    link: object = chosen
    for place in range(length - 1, -1, -1):
        link, result[place] = link  # type: ignore[misc]
    return result
