"""Device records that cannot be true: dropped or cut, counted, never used as the start of anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diagnose.store.rank_trace import UNKNOWN, Activities, Calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_DAY_NS = 86_400_000_000_000
_IMPOSSIBLE_OVERLAP_NS = 100_000_000
"""Programmatic launches overlap by microseconds and replayed graphs by some more; a tenth of a second on one stream
is a record whose end was never written."""


def sound_activities(activities: Activities, base_ns: int, note: Callable[[str, str, int], None]) -> Activities:
    """Activities that can be true, in absolute time.

    ``note`` gets (kind, example, count). Records without time (0 or absent), with negative or absent duration, more
    than a day from the others, are dropped; one that runs over its successor on the stream by more than 0.1 s is cut
    there.
    """
    start, dur = activities.start_ns, activities.dur_ns
    lost = (start == UNKNOWN) | ((start <= 0) & (dur <= 0)) | (start < 0)
    negative = ~lost & (dur < 0)
    _report(note, "device_record_without_time", lost, activities)
    _report(note, "negative_duration", negative, activities)
    keep = ~(lost | negative)
    if keep.any():
        middle = np.median(start[keep])
        far = keep & (np.abs(start - middle) > _DAY_NS)
        _report(note, "time_out_of_range", far, activities)
        keep &= ~far
    if not keep.all():
        activities = Activities(*(column[keep] for column in activities))
    activities = activities._replace(start_ns=activities.start_ns + base_ns)
    return _cut_impossible(activities, note)


def sound_calls(calls: Calls, base_ns: int, note: Callable[[str, str, int], None]) -> Calls:
    """Host events with a time, in absolute time; a negative duration becomes zero, counted."""
    lost = (calls.start_ns == UNKNOWN) | (calls.start_ns < 0) | ((calls.start_ns == 0) & (base_ns == 0))
    if count := int(lost.sum()):
        note("host_event_without_time", "", count)
        calls = Calls(*(column[~lost] for column in calls))
    negative = calls.dur_ns < 0
    if count := int(negative.sum()):
        note("negative_duration", f"a host event of {int(calls.dur_ns[negative][0])} ns", count)
    return calls._replace(start_ns=calls.start_ns + base_ns, dur_ns=np.maximum(calls.dur_ns, 0))


def _cut_impossible(activities: Activities, note: Callable[[str, str, int], None]) -> Activities:
    if len(activities.start_ns) < 2:
        return activities
    order = np.lexsort((activities.start_ns, activities.stream, activities.device))
    start, dur = activities.start_ns[order], activities.dur_ns[order]
    stream, device = activities.stream[order], activities.device[order]
    same = (stream[1:] == stream[:-1]) & (device[1:] == device[:-1])
    over = np.zeros(len(start), bool)
    over[:-1] = same & (start[:-1] + dur[:-1] - start[1:] > _IMPOSSIBLE_OVERLAP_NS) & (start[1:] > start[:-1])
    if not over.any():
        return activities
    cut = np.array(activities.dur_ns)
    places = np.flatnonzero(over)
    cut[order[places]] = start[places + 1] - start[places]
    raw = int(dur[places[0]])
    note(
        "impossible_duration",
        f"{raw} ns, though the next activity of its stream starts after {int(cut[order[places[0]]])} ns; cut there",
        len(places),
    )
    return activities._replace(dur_ns=cut)


def _report(note: Callable[[str, str, int], None], kind: str, mask: NDArray[np.bool_], activities: Activities) -> None:
    if count := int(mask.sum()):
        first = int(np.flatnonzero(mask)[0])
        note(kind, f"start {int(activities.start_ns[first])} ns, duration {int(activities.dur_ns[first])} ns", count)
