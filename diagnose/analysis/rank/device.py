"""A rank with a device: its activities, the steps that launched them, and where the time of each step went."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.intervals import COMM, COMPUTE, MEMCPY, covered_ns, merge, split
from diagnose.analysis.rank.capture import Capture, judge_capture
from diagnose.analysis.rank.comm_calls import arguments, describe, host_comm_spans, host_records
from diagnose.analysis.rank.comm_rows import CommSpans, comm_frame, ready_times, tokens
from diagnose.analysis.rank.gaps import gap_frame, step_idle, whole_idle
from diagnose.analysis.rank.idle import host_spans
from diagnose.analysis.rank.late import late_gaps, with_late_launches
from diagnose.analysis.rank.launches import Launches, match_launches
from diagnose.analysis.rank.reduced import WHOLE_TRACE, Note, Reduced
from diagnose.analysis.rank.series import step_numbers
from diagnose.analysis.rank.split_rows import IDLE, IDLE_CAUSES, WORK, blind_steps, breakdown_frame, step_frame, unknown
from diagnose.analysis.rank.stats import kernel_rows, kernel_stats
from diagnose.analysis.rank.steps import (
    HostWindows,
    StepTimes,
    after_pause,
    device_steps,
    host_windows,
    period_windows,
    step_of,
)
from diagnose.store.rank_trace import OVERHEAD, UNKNOWN, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.rank.comm_calls import Described
    from diagnose.analysis.rank.idle import HostSpans
    from diagnose.store.rank_trace import CommArgs

_SPLIT_CLASS = np.array([COMPUTE, COMM, MEMCPY, MEMCPY], np.int8)
_PROFILER_SHARE = 0.1
"""Below a tenth of the step the profiler's start changes no judgement that steps differ by."""


class _Work(NamedTuple):
    """The activities of one device, and who launched them."""

    trace: RankTrace
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    klass: NDArray[np.int8]
    launches: Launches
    comm: NDArray[np.int64]
    """Rows that are communication."""


class _Steps(NamedTuple):
    """``group`` is the step (place in ``times``) of each activity, -1 for none; ``number`` names each."""

    windows: HostWindows
    times: StepTimes
    group: NDArray[np.int64]
    number: NDArray[np.int64]
    capture: Capture


def reduce_device(whole: RankTrace, *, keep_kernels: bool) -> Reduced:
    """All tables of a trace with device activities."""
    trace = _one_device(whole)
    activities = trace.activities
    start, end = activities.start_ns, activities.start_ns + activities.dur_ns
    klass = _SPLIT_CLASS[activities.klass]
    work = _Work(trace, start, end, klass, match_launches(trace), np.flatnonzero(klass == COMM))
    named = arguments(trace, work.comm, work.launches, host_comm_spans(trace)) if len(work.comm) else []
    described = [describe(operation, args, trace.header.rank) for operation, args in named]
    steps = _steps(work, described)
    spans = host_spans(whole)
    frames = _step_frames(work, steps, spans)
    frames["kernel_stat"] = kernel_stats(
        trace, activities, steps.group, steps.number, merge(start[work.comm], end[work.comm])
    )
    gaps = gap_frame(start, end, work.launches, steps.group, steps.times, steps.number, spans)
    frames["comm_call"] = _comm(work, steps, spans, [args for _, args in named], described)
    frames["host_gap"] = pl.concat([gaps, late_gaps(frames["comm_call"], spans)]).sort("start_ns")
    if keep_kernels:
        frames["kernel"] = kernel_rows(trace, activities, work.launches, steps.group, steps.number)
    return Reduced(
        frames,
        steps.windows.source,
        steps.capture.rank,
        int(activities.device[0]),
        len(np.unique(whole.activities.device)),
        int(start.min()),
        int(end.max()),
        whole.events,
        tuple(_notes(work, steps)),
    )


def _one_device(trace: RankTrace) -> RankTrace:
    """The busiest device: a step is split on one device, several in one trace are several timelines."""
    devices, counts = np.unique(trace.activities.device, return_counts=True)
    if len(devices) == 1:
        return trace
    chosen = trace.activities.device == devices[np.argmax(counts)]
    return trace._replace(activities=trace.activities.take(chosen))


def _steps(work: _Work, described: list[Described]) -> _Steps:
    windows = host_windows(work.trace)
    if len(work.comm) and (windows.source == "none" or not work.launches.known.any()):
        by_period = period_windows(work.start[work.comm], tokens(described))
        windows = by_period if by_period.source == "period" else windows
    if windows.source == "period":
        step, capture = step_of(windows, work.start), _capture_by_device_time(work.launches)
    else:
        step, capture = step_of(windows, work.launches.start_ns), judge_capture(work.launches, windows)
    blind = np.array([why is not None for why in capture.steps] or [False] * len(windows.number), bool)
    times = device_steps(work.start, work.end, step, windows.number, blind | after_pause(windows))
    slot = np.full(len(windows.number) + 1, -1, np.int64)
    slot[times.index] = np.arange(len(times.index))
    return _Steps(windows, times, slot[step], windows.number[times.index], capture)


def _capture_by_device_time(launches: Launches) -> Capture:
    """Windows that come from device records say nothing of what was not recorded: only the whole can be judged."""
    none = np.empty(0, np.int64)
    return judge_capture(launches, HostWindows(none, none, none, None, "period"))


def _step_frames(work: _Work, steps: _Steps, spans: HostSpans) -> dict[str, pl.DataFrame]:
    """``step`` and ``breakdown`` with the whole trace; what the capture lost is null."""
    times, capture = steps.times, steps.capture
    inside = steps.group >= 0
    parts = split(work.start[inside], work.end[inside], work.klass[inside], steps.group[inside], len(times.index))
    idle = step_idle(work.start, work.end, work.launches, steps.group, times, spans)
    of_steps = breakdown_frame(steps.number, times.end_ns - times.start_ns, parts, idle)
    total = split(work.start, work.end, work.klass, np.zeros(len(work.start), np.int64), 1)
    span = np.array([work.end.max() - work.start.min()])
    of_trace = breakdown_frame(
        np.array([WHOLE_TRACE]), span, total, whole_idle(work.start, work.end, work.launches, spans)
    )
    if not work.launches.known.any():
        of_steps, of_trace = (_without_causes(frame) for frame in (of_steps, of_trace))
    if capture.rank is not None:
        of_trace = unknown(of_trace, (*WORK, *IDLE))
    elif capture.whole is not None:
        of_trace = unknown(of_trace, IDLE)
    step = step_frame(steps.windows, times, steps.number)
    lost = {int(steps.windows.number[place]): why for place, why in enumerate(capture.steps) if why is not None}
    if lost:
        is_lost = pl.col("step").is_in(list(lost))
        of_steps = unknown(of_steps, (*WORK, *IDLE), is_lost)
        why = pl.col("step").replace_strict(lost, default=None, return_dtype=pl.String)
        step = step.with_columns(
            pl.when(is_lost).then(pl.lit("lost_capture")).otherwise(pl.col("label")).alias("label"), why.alias("why")
        )
    reason = (
        "nothing was launched on the device in it"
        if work.launches.known.any()
        else "what it launched is not in the file"
    )
    frames_of = [(_started_profiler(step, work.trace), of_steps), *_unseen(steps, lost, reason)]
    return {
        "step": pl.concat([frame for frame, _ in frames_of]).sort("host_start_ns"),
        "breakdown": pl.concat([*(frame for _, frame in frames_of), of_trace], how="diagonal"),
    }


def _unseen(steps: _Steps, lost: dict[int, str], reason: str) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """Steps without any device activity: lost, or without device work for this reason."""
    unseen = np.setdiff1d(np.arange(len(steps.windows.number)), steps.times.index)
    is_lost = np.array([int(number) in lost for number in steps.windows.number[unseen]], bool)
    found = []
    for label, chosen in (("lost_capture", unseen[is_lost]), ("no_device_work", unseen[~is_lost])):
        if len(chosen):
            why = [lost.get(int(number), reason) for number in steps.windows.number[chosen]]
            found.append(blind_steps(steps.windows, chosen, label, why))
    return found


def _started_profiler(step: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Label the first step when the profiler's own start takes a good part of it, and other steps remain."""
    calls = trace.python_calls
    own = np.fromiter((name.startswith(OVERHEAD) for name in trace.names), bool, len(trace.names))[calls.name]
    if not own.any() or len(step) < 2:
        return step
    first = step.row(int(step.get_column("host_start_ns").arg_min() or 0), named=True)
    start, end = np.array([first["host_start_ns"]]), np.array([first["host_end_ns"]])
    spent = int(covered_ns(merge(calls.start_ns[own], calls.end_ns[own]), start, end)[0])
    if first["label"] != "normal" or spent < _PROFILER_SHARE * (first["host_end_ns"] - first["host_start_ns"]):
        return step
    chosen = pl.col("step") == first["step"]
    why = f"the profiler itself took {spent / 1e6:.1f} ms of it"
    return step.with_columns(
        pl.when(chosen).then(pl.lit("profiler_start")).otherwise(pl.col("label")).alias("label"),
        pl.when(chosen).then(pl.lit(why)).otherwise(pl.col("why")).alias("why"),
    )


def _without_causes(frame: pl.DataFrame) -> pl.DataFrame:
    """Without launches nobody can say why the device was idle: all of it is ``other``, the rest unknown."""
    work = (pl.col("compute_ns") + pl.col("exposed_memcpy_ns")).alias("local_work_ns")
    return unknown(frame, IDLE_CAUSES).with_columns(pl.col("idle_ns").alias("idle_other_ns"), work)


def _comm(
    work: _Work, steps: _Steps, host: HostSpans, args: list[CommArgs], described: list[Described]
) -> pl.DataFrame:
    rows = work.comm
    issue = work.launches.start_ns[rows]
    compute = work.klass == COMPUTE
    spans = CommSpans(
        names=[work.trace.names[code] for code in work.trace.activities.name[rows]],
        start_ns=work.start[rows],
        end_ns=work.end[rows],
        stream=work.trace.activities.stream[rows],
        issue_ns=np.where(issue == UNKNOWN, work.start[rows], issue),
        step=step_numbers(steps.group[rows], steps.number),
        ready_ns=ready_times(rows, work.start, work.end, work.klass != COMM, work.launches),
    )
    frame = comm_frame(spans, merge(work.start[compute], work.end[compute]), args, described)
    if not len(work.trace.operators.name) and not len(work.trace.python_calls.name):
        # Nothing of the host but its launches is in the file: whether one came late because the host was busy, or because
        # it waited for the communication, cannot be told.
        return frame.with_columns(pl.col("exposed_from_ns").alias("exposed_late_ns"))
    own = work.klass != COMM
    return with_late_launches(frame, work.start[own], work.launches.start_ns[own], host)


def _notes(work: _Work, steps: _Steps) -> list[Note]:
    """What a reader of the numbers should know."""
    notes = []
    count, known = len(work.start), int(work.launches.known.sum())
    if not known:
        text = "no launches are in the file: which steps device work belongs to and why it was idle is not available"
        notes.append(Note("no_launches", "info", count, text))
    elif known < count and steps.windows.source != "period":
        text = f"{count - known} of {count} device activities have no launch in the file: they belong to no step"
        notes.append(Note("launched_outside", "info", count - known, text))
    if steps.capture.rank is None and steps.capture.whole is not None:
        text = f"{steps.capture.whole}: there device time is unknown, not idle"
        notes.append(Note("lost_capture", "warning", 1, text))
    records = host_records(work.trace)
    if len(work.comm) and records and records != len(work.comm):
        text = (
            f"{len(work.comm)} communication activities on the device, {records} on the host: those of the device count"
        )
        notes.append(Note("comm_records_differ", "info", 1, text))
    return notes
