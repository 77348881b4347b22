"""Records that cannot be true: dropped or cut, counted, never used as the start or the end of anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.store.rank_trace import Activities, Calls

Note = Callable[[str, str, int], None]
"""Takes kind, example and count of a problem."""

_DAY_NS = 86_400_000_000_000
_SYSTEMATIC_RATIO = 0.05
_SYSTEMATIC_RECORDS = 8
"""Damage hits a few records; where more of them overlap, steps lie on one another, and each is as long as it says."""

_SHORT_NS = 2_000

_LONGEST_NS = 1 << 60
"""36 years, so that an end still fits 64 bits."""

_IMPOSSIBLE_OVERLAP_NS = 100_000_000
"""Programmatic launches overlap by microseconds and replayed graphs by some more; a tenth of a second on one stream
is a record whose end was never written."""
_AFTER_PROFILE_NS = 1_000_000_000
"""The profiler waits for the device before it stops, so nothing ends a second after the last event of the host."""


class Reference(NamedTuple):
    """When the host's events are, on the file's own time: their middle, and the end of the last one."""

    middle_ns: int
    end_ns: int


def reference(host: Sequence[Calls]) -> Reference | None:
    """From the kind of host event there is most of; None for files without any."""
    largest = max(host, key=lambda calls: int((calls.start_ns > 0).sum()))
    known = largest.start_ns[(largest.start_ns != UNKNOWN) & (largest.start_ns >= 0)]
    if not len(known):
        return None
    middle = int(np.median(known[known > 0])) if (known > 0).any() else 0
    ends = [int(end.max()) for calls in host if len(end := _plausible_ends(calls, middle))]
    return Reference(middle, max(ends, default=middle))


def sound_activities(activities: Activities, base_ns: int, host: Reference | None, note: Note) -> Activities:
    """Activities that can be true, in absolute time.

    Records without time (0 or absent), with negative or absent duration, or more than a day from the host's events
    (from each other where there are none) are dropped; one that runs over its successor on the stream by more than
    0.1 s is cut there, one that lasts beyond the profile is cut at its end.
    """
    start, dur = activities.start_ns, activities.dur_ns
    lost = (start == UNKNOWN) | ((start <= 0) & (dur <= 0)) | (start < 0)
    unwritten = ~lost & (dur == UNKNOWN)
    negative = ~lost & ~unwritten & (dur < 0)
    _report(note, "device_record_without_time", lost, activities)
    _report(note, "impossible_duration", unwritten, activities)
    _report(note, "negative_duration", negative, activities)
    keep = ~(lost | unwritten | negative)
    if keep.any():
        middle = host.middle_ns if host else int(np.median(start[keep]))
        far = keep & ((np.abs(start - middle) > _DAY_NS) | (start == 0) & (middle > _DAY_NS))
        _report(note, "time_out_of_range", far, activities)
        keep &= ~far
    if not keep.all():
        activities = activities.take(keep)
    activities = _once(activities._replace(dur_ns=np.minimum(activities.dur_ns, _LONGEST_NS)), note)
    activities = _cut_impossible(activities, note)
    activities = _cut_after_profile(activities, host, note)
    return activities._replace(start_ns=activities.start_ns + base_ns)


def sound_calls(calls: Calls, base_ns: int, host: Reference | None, note: Note) -> Calls:
    """Host events near the others, in absolute time; an impossible duration becomes zero, counted."""
    start = calls.start_ns
    middle = host.middle_ns if host else 0
    lost = (start == UNKNOWN) | (start < 0)
    if len(start):
        far = ~lost & (np.abs(np.where(lost, middle, start) - middle) > _DAY_NS)
        clamped = far & (start == 0)
        if count := int((lost | clamped).sum()):
            note("host_event_without_time", "", count)
        if count := int((far & ~clamped).sum()):
            note("time_out_of_range", f"a host event at {int(start[far & ~clamped][0])} ns", count)
        lost |= far
    if lost.any():
        calls = calls.take(~lost)
    negative = (calls.dur_ns < 0) & (calls.dur_ns != UNKNOWN)
    if count := int(negative.sum()):
        note("negative_duration", f"a host event of {int(calls.dur_ns[negative][0])} ns", count)
    endless = (calls.dur_ns == UNKNOWN) | (calls.dur_ns > _DAY_NS)
    if count := int(endless.sum()):
        note("impossible_duration", "a host event", count)
    return calls._replace(start_ns=calls.start_ns + base_ns, dur_ns=np.where(negative | endless, 0, calls.dur_ns))


def _plausible_ends(calls: Calls, middle: int) -> NDArray[np.int64]:
    near = (calls.start_ns != UNKNOWN) & (np.abs(np.maximum(calls.start_ns, -_DAY_NS) - middle) <= _DAY_NS)
    near &= (calls.dur_ns >= 0) & (calls.dur_ns <= _DAY_NS)
    ends: NDArray[np.int64] = calls.start_ns[near] + calls.dur_ns[near]
    return ends


def _once(activities: Activities, note: Note) -> Activities:
    """Without records that repeat another in launch, stream, work and time; they stand side by side.

    Files in whole microseconds have different records that look alike when they are short, so those stay.
    """
    columns = (activities.start_ns, activities.dur_ns, activities.correlation, activities.stream, activities.device)
    again = np.zeros(len(activities.start_ns), bool)
    if len(again) > 1:
        same = [column[1:] == column[:-1] for column in (*columns, activities.signature)]
        again[1:] = (
            np.logical_and.reduce(same) & (activities.dur_ns[1:] > _SHORT_NS) & (activities.correlation[1:] >= 0)
        )
    if not again.any():
        return activities
    _report(note, "duplicate_record", again, activities)
    return activities.take(~again)


def _cut_impossible(activities: Activities, note: Note) -> Activities:
    if len(activities.start_ns) < 2:
        return activities
    order = np.lexsort((activities.start_ns, activities.stream, activities.device))
    start, dur = activities.start_ns[order], activities.dur_ns[order]
    stream, device = activities.stream[order], activities.device[order]
    same = (stream[1:] == stream[:-1]) & (device[1:] == device[:-1])
    over = np.zeros(len(start), bool)
    over[:-1] = same & (start[:-1] + dur[:-1] - start[1:] > _IMPOSSIBLE_OVERLAP_NS) & (start[1:] > start[:-1])
    if not over.any() or over.sum() > max(_SYSTEMATIC_RECORDS, _SYSTEMATIC_RATIO * len(over)):
        return activities
    cut = np.array(activities.dur_ns)
    places = np.flatnonzero(over)
    cut[order[places]] = start[places + 1] - start[places]
    note(
        "impossible_duration",
        f"{int(dur[places[0]])} ns, though its stream goes on after {int(cut[order[places[0]]])} ns",
        len(places),
    )
    return activities._replace(dur_ns=cut)


def _cut_after_profile(activities: Activities, host: Reference | None, note: Note) -> Activities:
    """The last record of a stream has no successor to be cut at: the end of the profile bounds it."""
    start, dur = activities.start_ns, activities.dur_ns
    if host is None:
        over = dur > _DAY_NS
        limit = np.zeros(len(dur), np.int64)
    else:
        over = (dur > _AFTER_PROFILE_NS) & (start + dur > host.end_ns + _AFTER_PROFILE_NS)
        limit = np.maximum(host.end_ns - start, 0)
    if not over.any():
        return activities
    first = int(np.flatnonzero(over)[0])
    note(
        "impossible_duration",
        f"{int(dur[first])} ns, beyond the last event of the host; cut to {int(limit[first])} ns",
        int(over.sum()),
    )
    return activities._replace(dur_ns=np.where(over, limit, dur))


def _report(note: Note, kind: str, mask: NDArray[np.bool_], activities: Activities) -> None:
    if count := int(mask.sum()):
        first = int(np.flatnonzero(mask)[0])
        dur = int(activities.dur_ns[first])
        note(
            kind,
            f"start {int(activities.start_ns[first])} ns, duration {'unreadable' if dur == UNKNOWN else f'{dur} ns'}",
            count,
        )
