"""Idle time of the device: its gaps, each with the launch that ended it, summed per step and listed when long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.intervals import Merged, gaps, merge
from diagnose.analysis.rank.idle import HostSpans, IdleParts, idle_parts
from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.rank.launches import Launches
    from diagnose.analysis.rank.steps import StepTimes

LONG_NS = 50_000
_CAUSES = np.array(["input", "host", "sync", "other"])


def step_idle(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    launches: Launches,
    group: NDArray[np.int64],
    times: StepTimes,
    spans: HostSpans,
) -> IdleParts:
    """Idle parts of every step. A step's window sees only its own activities; what ends it is the next step's first."""
    parts: list[NDArray[np.int64]] = [np.zeros(len(times.index), np.int64) for _ in IdleParts._fields]
    for place, (gap, launch) in enumerate(_step_gaps(start, end, launches, group, times)):
        for total, column in zip(parts, idle_parts(spans, gap.start_ns, gap.end_ns, launch), strict=True):
            total[place] = column.sum()
    return IdleParts(*parts)


def whole_idle(start: NDArray[np.int64], end: NDArray[np.int64], launches: Launches, spans: HostSpans) -> IdleParts:
    """Idle parts from the first to the last activity."""
    gap, launch = _with_launch(merge(start, end), start, launches.start_ns, int(start.min()), int(end.max()), UNKNOWN)
    return IdleParts(*(np.array([column.sum()]) for column in idle_parts(spans, gap.start_ns, gap.end_ns, launch)))


def gap_frame(
    start: NDArray[np.int64], end: NDArray[np.int64], launches: Launches, group: NDArray[np.int64], times: StepTimes,
    number: NDArray[np.int64], spans: HostSpans,
) -> pl.DataFrame:  # fmt: skip
    """The long gaps of every step as rows of ``host_gap``."""
    columns: list[tuple[NDArray[np.int64], ...]] = []
    for place, (gap, launch) in enumerate(_step_gaps(start, end, launches, group, times)):
        long = gap.end_ns - gap.start_ns >= LONG_NS
        if long.any():
            parts = idle_parts(spans, gap.start_ns[long], gap.end_ns[long], launch[long])
            step = np.full(int(long.sum()), number[place], np.int64)
            columns.append((step, gap.start_ns[long], (gap.end_ns - gap.start_ns)[long], *parts))
    joined = (
        [np.concatenate(column) for column in zip(*columns, strict=True)] if columns else [np.empty(0, np.int64)] * 9
    )
    step, first, length, *rest = joined
    return gap_rows(step, first, length, IdleParts(*rest), beside_comm=False)


def gap_rows(
    step: NDArray[np.int64],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    parts: IdleParts,
    *,
    beside_comm: bool,
) -> pl.DataFrame:
    """Rows of ``host_gap``: the largest part names the cause; what most of the host's is, garbage collection or the
    allocator, is the detail.
    """
    first = np.argmax(np.stack(parts[:4]), axis=0)
    is_host = _CAUSES[first] == "host"
    collects, allocates = (is_host & (2 * part >= parts.host_ns) for part in (parts.gc_ns, parts.allocator_ns))
    detail = np.where(collects, "gc", np.where(allocates, "allocator", ""))
    largest = np.max(np.stack(parts[:4]), axis=0) if len(step) else length
    return pl.DataFrame(
        {
            "step": step,
            "start_ns": start,
            "dur_ns": length,
            "cause": _CAUSES[first].tolist(),
            "detail": [text or None for text in detail.tolist()],
            "cause_ns": np.where(collects, parts.gc_ns, np.where(allocates, parts.allocator_ns, largest)),
            "beside_comm": beside_comm,
        },
        schema={
            "step": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, "cause": pl.String, "detail": pl.String,
            "cause_ns": pl.Int64, "beside_comm": pl.Boolean,
        },
    )  # fmt: skip


def _step_gaps(
    start: NDArray[np.int64], end: NDArray[np.int64], launches: Launches, group: NDArray[np.int64], times: StepTimes
) -> list[tuple[Merged, NDArray[np.int64]]]:
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(times.index) + 1))
    found = []
    for place in range(len(times.index)):
        chosen = np.sort(order[bounds[place] : bounds[place + 1]])
        first, last = int(times.start_ns[place]), int(times.end_ns[place])
        following = int(np.searchsorted(start, last))
        closing = launches.start_ns[following] if following < len(start) and start[following] == last else UNKNOWN
        found.append(
            _with_launch(
                merge(start[chosen], end[chosen]), start[chosen], launches.start_ns[chosen], first, last, int(closing)
            )
        )
    return found


def _with_launch(
    busy: Merged, start: NDArray[np.int64], launch: NDArray[np.int64], first: int, last: int, next_launch: int
) -> tuple[Merged, NDArray[np.int64]]:
    gap = gaps(busy, first, last)
    place = np.searchsorted(start, gap.end_ns)
    known = place < len(start)
    return gap, np.where(known, launch[np.minimum(place, len(launch) - 1)], next_launch)
