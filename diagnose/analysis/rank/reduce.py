"""One rank's trace to rows of the store: the whole map step after decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.intervals import (
    COMM,
    COMPUTE,
    MEMCPY,
    Merged,
    covered_ns,
    gaps,
    intersect,
    merge,
    split,
    subtract,
)
from diagnose.analysis.rank.comm_calls import Described, arguments, describe, holder_args, host_comm_spans, is_p2p
from diagnose.analysis.rank.cpu_work import CpuWork, cpu_work
from diagnose.analysis.rank.idle import GC_SILENCE_NS, IdleParts, host_spans, idle_parts
from diagnose.analysis.rank.launches import Launches, graph_launches, match_launches
from diagnose.analysis.rank.stats import kernel_rows, kernel_stats, operator_stats
from diagnose.analysis.rank.steps import HostWindows, StepTimes, device_steps, host_windows, period_windows, step_of
from diagnose.store.rank_trace import UNKNOWN, CommArgs, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE_TRACE = -1
_SPLIT_CLASS = np.array([COMPUTE, COMM, MEMCPY, MEMCPY], np.int8)
_GAP_NS = 50_000
_LOST_RATIO = 0.5
"""Graph replays and child launches leave some launches without record; half of them is a capture that failed."""


class Reduced(NamedTuple):
    """Frames by table (without the rank, which the run decides), and what the run needs to know of the trace."""

    frames: dict[str, pl.DataFrame]
    step_source: str
    lost_capture: str | None
    device: int | None
    devices: int
    start_ns: int | None
    end_ns: int | None
    rows: int


def reduce_rank(trace: RankTrace, *, keep_kernels: bool) -> Reduced:
    """All tables one trace gives. Grain and units as in store/tables/trace.py."""
    if trace.has_device_work:
        return _reduce_device(_one_device(trace), trace, keep_kernels=keep_kernels)
    return _reduce_cpu(trace)


def _one_device(trace: RankTrace) -> RankTrace:
    """The busiest device: a step is split on one device, several in one trace are several timelines."""
    devices, counts = np.unique(trace.activities.device, return_counts=True)
    if len(devices) == 1:
        return trace
    chosen = trace.activities.device == devices[np.argmax(counts)]
    return trace._replace(activities=type(trace.activities)(*(column[chosen] for column in trace.activities)))


def _reduce_device(trace: RankTrace, whole: RankTrace, *, keep_kernels: bool) -> Reduced:
    activities = trace.activities
    start, end = activities.start_ns, activities.start_ns + activities.dur_ns
    klass = _SPLIT_CLASS[activities.klass]
    launches = match_launches(trace)
    lost = _lost_capture(trace, launches)
    is_comm = klass == COMM
    comm_rows = np.flatnonzero(is_comm)
    named = arguments(trace, comm_rows, launches, host_comm_spans(trace)) if len(comm_rows) else []
    described = [describe(operation, args, trace.header.rank) for operation, args in named]
    windows = host_windows(trace)
    if windows.source == "none" and len(comm_rows):
        windows = period_windows(start[comm_rows], _tokens(described))
    marks = launches.start_ns if windows.source != "period" else start
    step = step_of(windows, marks)
    times = device_steps(start, end, step, len(windows.number))
    slot = np.full(len(windows.number) + 1, -1, np.int64)
    slot[times.index] = np.arange(len(times.index))
    group = slot[step]
    inside = group >= 0
    steps = split(start[inside], end[inside], klass[inside], group[inside], len(times.index))
    total = split(start, end, klass, np.zeros(len(start), np.int64), 1)
    compute = merge(start[klass == COMPUTE], end[klass == COMPUTE])
    spans = host_spans(whole)
    idle, gap_frame = _device_idle(start, end, launches, group, times, spans, windows)
    first, last = int(start.min()), int(end.max())
    whole_idle = _gap_parts(merge(start, end), start, launches, spans, first, last)
    number = windows.number[times.index]
    frames = {
        "step": _step_frame(windows, times, number),
        "breakdown": pl.concat(
            [
                _breakdown(number, times.end_ns - times.start_ns, steps, idle),
                _breakdown(np.array([WHOLE_TRACE]), np.array([last - first]), total, whole_idle),
            ]
        ),
        "kernel_stat": kernel_stats(trace, activities, group, number),
        "host_gap": gap_frame,
        "comm_call": _comm_frame(
            [trace.names[code] for code in activities.name[comm_rows]],
            start[comm_rows], end[comm_rows], activities.stream[comm_rows],
            np.where(launches.start_ns[comm_rows] == UNKNOWN, start[comm_rows], launches.start_ns[comm_rows]),
            _step_numbers(group[comm_rows], number), compute, named, described,
        ),
    }  # fmt: skip
    if keep_kernels:
        frames["kernel"] = kernel_rows(trace, activities, launches, group, number)
    return Reduced(
        frames,
        windows.source,
        lost,
        int(activities.device[0]),
        len(np.unique(whole.activities.device)),
        first,
        last,
        whole.events,
    )


def _reduce_cpu(trace: RankTrace) -> Reduced:
    work = cpu_work(trace)
    windows = host_windows(trace)
    comm = work.comm
    bounds = _time_bounds(trace)
    lost = "no device activity was captured though kernels were launched" if match_launches(trace).total else None
    frames: dict[str, pl.DataFrame] = {}
    named = _cpu_named(trace, work)
    described = [describe(operation, args, trace.header.rank) for operation, args in named]
    if windows.source == "none" and len(comm.start_ns):
        order = np.argsort(comm.start_ns, kind="stable")
        windows = period_windows(comm.start_ns[order], _tokens([described[row] for row in order]))
    if len(windows.number) or len(work.compute.start_ns) or len(comm.start_ns):
        frames |= _cpu_frames(trace, work, windows, bounds, lost)
    if len(comm.start_ns):
        numbers = _step_numbers(step_of(windows, comm.start_ns), windows.number)
        frames["comm_call"] = _comm_frame(
            [trace.names[code] for code in comm.name.tolist()],
            comm.start_ns, comm.end_ns, comm.thread, comm.issue_ns, numbers, work.compute, named, described,
        )  # fmt: skip
    frames["kernel_stat"] = operator_stats(trace, windows)
    start, end = bounds if bounds is not None else (None, None)
    return Reduced(frames, windows.source, lost, None, 0, start, end, trace.events)


def _cpu_named(trace: RankTrace, work: CpuWork) -> list[tuple[str, CommArgs]]:
    """Operation and arguments of each span; the operator that posted a send or receive names its peer."""
    comm, spans = work.comm, host_comm_spans(trace)
    named = []
    for code, ref, start, thread in zip(
        comm.name.tolist(), comm.ref.tolist(), comm.start_ns.tolist(), comm.thread.tolist(), strict=True
    ):
        args = trace.comm_args[ref] if ref >= 0 else CommArgs()
        if args.peer is None and is_p2p(trace.names[code]):
            args = args._replace(peer=holder_args(trace, spans, start, thread).peer)
        named.append((trace.names[code], args))
    return named


def _cpu_frames(
    trace: RankTrace, work: CpuWork, windows: HostWindows, bounds: tuple[int, int] | None, lost: str | None
) -> dict[str, pl.DataFrame]:
    """Split of the host windows; where kernels were launched and none recorded, every part stays unknown."""
    starts, ends = windows.start_ns, windows.end_ns
    comm = merge(work.comm.start_ns, work.comm.end_ns)
    frames = {}
    if len(starts):
        times = StepTimes(
            np.arange(len(starts)), starts, np.maximum(ends, np.concatenate((starts[1:], ends[-1:]))),
            np.concatenate((np.diff(starts), [ends[-1] - starts[-1]])), np.zeros(len(starts), np.int64),
        )  # fmt: skip
        label = "lost_capture" if lost else "normal"
        frames["step"] = _step_frame(windows, times, windows.number).with_columns(
            pl.lit(label).alias("label"), pl.lit(lost).alias("why")
        )
        if lost is None:
            frames["breakdown"] = _cpu_breakdown(windows.number, times.start_ns, times.end_ns, work, comm)
    if lost is None and bounds is not None:
        whole = _cpu_breakdown(np.array([WHOLE_TRACE]), np.array([bounds[0]]), np.array([bounds[1]]), work, comm)
        frames["breakdown"] = pl.concat([frames["breakdown"], whole]) if "breakdown" in frames else whole
    del trace
    return frames


def _cpu_breakdown(
    number: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], work: CpuWork, comm: Merged
) -> pl.DataFrame:
    exposed = subtract(comm, work.compute)
    span = end - start
    compute = covered_ns(work.compute, start, end)
    exposed_comm = covered_ns(exposed, start, end)
    overlapped = covered_ns(intersect(comm, work.compute), start, end)
    loader = covered_ns(subtract(subtract(work.loader, comm), work.compute), start, end)
    idle = span - compute - exposed_comm
    zero = np.zeros(len(span), np.int64)
    busy = merge(
        np.concatenate((work.compute.start_ns, comm.start_ns, work.loader.start_ns)),
        np.concatenate((work.compute.end_ns, comm.end_ns, work.loader.end_ns)),
    )
    silent_start, silent_end = np.empty(0, np.int64), np.empty(0, np.int64)
    if len(busy.start_ns):
        free = gaps(busy, int(busy.start_ns[0]), int(busy.end_ns[-1]))
        long = free.end_ns - free.start_ns >= GC_SILENCE_NS
        silent_start, silent_end = free.start_ns[long], free.end_ns[long]
    silent = covered_ns(Merged(silent_start, silent_end), start, end)
    return pl.DataFrame(
        {
            "step": number, "span_ns": span, "compute_ns": compute, "exposed_comm_ns": exposed_comm,
            "overlapped_comm_ns": overlapped, "exposed_memcpy_ns": zero, "idle_ns": idle, "idle_input_ns": loader,
            "idle_host_ns": idle - loader, "idle_sync_ns": zero, "idle_bubble_ns": zero, "idle_other_ns": zero,
            "idle_gc_ns": np.minimum(silent, idle - loader), "idle_allocator_ns": zero,
            "local_work_ns": span - exposed_comm, "memcpy_ns": zero, "comm_ns": covered_ns(comm, start, end),
        }
    )  # fmt: skip


def _device_idle(
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    launches: Launches,
    group: NDArray[np.int64],
    times: StepTimes,
    spans: object,
    windows: HostWindows,
) -> tuple[IdleParts, pl.DataFrame]:
    """Idle parts of every step, and its long gaps as rows. A step's window sees only its own activities."""
    parts: list[NDArray[np.int64]] = [np.zeros(len(times.index), np.int64) for _ in IdleParts._fields]
    rows: list[pl.DataFrame] = []
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(times.index) + 1))
    for place in range(len(times.index)):
        chosen = np.sort(order[bounds[place] : bounds[place + 1]])
        following = int(np.searchsorted(start, times.end_ns[place]))
        nxt = launches.start_ns[following] if place + 1 < len(times.index) and following < len(start) else UNKNOWN
        gap, launch = _gaps_with_launch(
            merge(start[chosen], end[chosen]),
            start[chosen],
            launches.start_ns[chosen],
            int(times.start_ns[place]),
            int(times.end_ns[place]),
            int(nxt),
        )
        divided = idle_parts(spans, gap.start_ns, gap.end_ns, launch)  # type: ignore[arg-type]
        for total, column in zip(parts, divided, strict=True):
            total[place] = column.sum()
        rows.append(_gap_rows(gap, divided, int(windows.number[times.index[place]])))
    frame = (
        pl.concat(rows)
        if rows
        else _gap_rows(
            Merged(np.empty(0, np.int64), np.empty(0, np.int64)), IdleParts(*(np.empty(0, np.int64),) * 6), 0
        )
    )
    return IdleParts(*parts), frame


def _gap_parts(
    busy: Merged, start: NDArray[np.int64], launches: Launches, spans: object, first: int, last: int
) -> IdleParts:
    gap, launch = _gaps_with_launch(busy, start, launches.start_ns, first, last, UNKNOWN)
    return IdleParts(*(np.array([column.sum()]) for column in idle_parts(spans, gap.start_ns, gap.end_ns, launch)))  # type: ignore[arg-type]


def _gaps_with_launch(
    busy: Merged, start: NDArray[np.int64], launch: NDArray[np.int64], first: int, last: int, next_launch: int
) -> tuple[Merged, NDArray[np.int64]]:
    gap = gaps(busy, first, last)
    place = np.searchsorted(start, gap.end_ns)
    known = place < len(start)
    return gap, np.where(known, launch[np.minimum(place, len(launch) - 1)], next_launch)


def _gap_rows(gap: Merged, parts: IdleParts, step: int) -> pl.DataFrame:
    long = gap.end_ns - gap.start_ns >= _GAP_NS
    table = np.stack([column[long] for column in parts[:4]]) if long.any() else np.empty((4, 0), np.int64)
    cause = np.array(["input", "host", "sync", "other"])[np.argmax(table, axis=0)] if table.size else np.empty(0, "U5")
    detail = np.where(parts.gc_ns[long] > 0, "gc", np.where(parts.allocator_ns[long] > 0, "allocator", ""))
    return pl.DataFrame(
        {
            "step": np.full(int(long.sum()), step, np.int64),
            "start_ns": gap.start_ns[long],
            "dur_ns": (gap.end_ns - gap.start_ns)[long],
            "cause": cause.tolist(),
            "detail": [text or None for text in detail.tolist()],
        },
        schema={"step": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, "cause": pl.String, "detail": pl.String},
    )


def _breakdown(number: NDArray[np.int64], span: NDArray[np.int64], parts: object, idle: IdleParts) -> pl.DataFrame:
    s = parts  # a Split
    return pl.DataFrame(
        {
            "step": number.astype(np.int64), "span_ns": span.astype(np.int64), "compute_ns": s.compute_ns,  # type: ignore[attr-defined]
            "exposed_comm_ns": s.exposed_comm_ns, "overlapped_comm_ns": s.overlapped_comm_ns,  # type: ignore[attr-defined]
            "exposed_memcpy_ns": s.exposed_memcpy_ns, "idle_ns": span - s.busy_ns, "idle_input_ns": idle.input_ns,  # type: ignore[attr-defined]
            "idle_host_ns": idle.host_ns, "idle_sync_ns": idle.sync_ns, "idle_bubble_ns": np.zeros(len(span), np.int64),
            "idle_other_ns": idle.other_ns, "idle_gc_ns": idle.gc_ns, "idle_allocator_ns": idle.allocator_ns,
            "local_work_ns": s.compute_ns + s.exposed_memcpy_ns + idle.input_ns + idle.host_ns,  # type: ignore[attr-defined]
            "memcpy_ns": s.memcpy_ns, "comm_ns": s.comm_ns,  # type: ignore[attr-defined]
        }
    )  # fmt: skip


def _step_frame(windows: HostWindows, times: StepTimes, number: NDArray[np.int64]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "step": number,
            "host_start_ns": windows.start_ns[times.index],
            "host_end_ns": windows.end_ns[times.index],
            "start_ns": times.start_ns,
            "end_ns": times.end_ns,
            "window_ns": times.end_ns - times.start_ns,
            "step_ns": times.step_ns,
            "label": ["normal"] * len(number),
            "why": pl.Series([None] * len(number), dtype=pl.String),
            "activities": times.activities,
        }
    )


def _comm_frame(
    names: list[str], start: NDArray[np.int64], end: NDArray[np.int64], stream: NDArray[np.int64], issue: NDArray[np.int64],
    step: pl.Series, compute: Merged, named: list[tuple[str, CommArgs]], described: list[Described],
) -> pl.DataFrame:  # fmt: skip
    order = np.lexsort((end, start))
    exposed = (end - start) - covered_ns(compute, start, end)
    lows, highs = _exposed_stretches(start, end, exposed, compute)
    args = [item for _, item in named]
    frame = pl.DataFrame(
        {
            "step": step, "stream": stream, "start_ns": start, "dur_ns": end - start, "issue_ns": issue, "exposed_ns": exposed,
            "exposed_from_ns": lows, "exposed_to_ns": highs,
            "collective": [item.kind for item in described],
            "group_name": [item.group_name for item in args], "group_desc": [item.group_desc for item in args],
            "group_ranks": [None if item.group_ranks is None else list(item.group_ranks) for item in args],
            "group_size": [item.group_size for item in args], "seq": [item.seq for item in args],
            "is_p2p": [item.is_p2p for item in described], "peer": [item.peer for item in described],
            "dtype": [item.dtype for item in described], "in_elems": [item.in_elems for item in described],
            "out_elems": [item.out_elems for item in described], "in_split": [item.in_split for item in args],
            "out_split": [item.out_split for item in args], "msg_bytes": [item.msg_bytes for item in described], "name": names,
        },
        schema_overrides={
            "exposed_from_ns": pl.List(pl.Int64), "exposed_to_ns": pl.List(pl.Int64), "group_name": pl.String, "group_desc": pl.String,
            "group_ranks": pl.List(pl.Int32), "group_size": pl.Int32, "seq": pl.Int64, "is_p2p": pl.Boolean, "peer": pl.Int32,
            "dtype": pl.String, "in_elems": pl.Int64, "out_elems": pl.Int64, "in_split": pl.String, "out_split": pl.String,
            "msg_bytes": pl.Int64, "collective": pl.String, "name": pl.String,
        },
    )  # fmt: skip
    return frame[order].with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))


def _exposed_stretches(
    start: NDArray[np.int64], end: NDArray[np.int64], exposed: NDArray[np.int64], compute: Merged
) -> tuple[list[list[int]], list[list[int]]]:
    """Exposed stretches of each call relative to its start; whole and hidden calls need no search."""
    lows: list[list[int]] = []
    highs: list[list[int]] = []
    length = end - start
    for row in range(len(start)):
        if exposed[row] == length[row]:
            lows.append([0])
            highs.append([int(length[row])])
        elif exposed[row] <= 0:
            lows.append([])
            highs.append([])
        else:
            low = max(int(np.searchsorted(compute.end_ns, start[row])) - 1, 0)
            high = int(np.searchsorted(compute.start_ns, end[row])) + 1
            free = gaps(Merged(compute.start_ns[low:high], compute.end_ns[low:high]), int(start[row]), int(end[row]))
            lows.append((free.start_ns - start[row]).tolist())
            highs.append((free.end_ns - start[row]).tolist())
    return lows, highs


def _step_numbers(group: NDArray[np.int64], number: NDArray[np.int64]) -> pl.Series:
    """Step number of each row, null outside any step."""
    values = number[np.maximum(group, 0)] if len(number) else np.zeros(len(group), np.int64)
    return (
        pl.Series(values, dtype=pl.Int64).zip_with(
            pl.Series(group >= 0), pl.Series([None] * len(group), dtype=pl.Int64)
        )
        if len(group)
        else pl.Series([], dtype=pl.Int64)
    )


def _tokens(described: list[Described]) -> NDArray[np.int64]:
    codes: dict[tuple[object, ...], int] = {}
    return np.array(
        [codes.setdefault((item.kind, item.dtype, item.msg_bytes), len(codes)) for item in described], np.int64
    )


def _lost_capture(trace: RankTrace, launches: Launches) -> str | None:
    if launches.total and launches.lost > _LOST_RATIO * launches.total:
        return f"{launches.lost} of {launches.total} kernel launches have no device record"
    replays = graph_launches(trace)
    if replays and launches.shared.sum() < replays:
        return f"{replays} graph replays, but only {int(launches.shared.sum())} of their activities were recorded"
    return None


def _time_bounds(trace: RankTrace) -> tuple[int, int] | None:
    parts = [calls for calls in (trace.operators, trace.annotations, trace.runtime) if len(calls.start_ns)]
    if not parts:
        return None
    return int(min(calls.start_ns.min() for calls in parts)), int(max(calls.end_ns.max() for calls in parts))
