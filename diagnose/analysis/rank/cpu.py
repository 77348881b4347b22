"""A rank without a device: operators against communication threads, with the host window as the step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.intervals import Merged, covered_ns, intersect, merge, subtract
from diagnose.analysis.rank.comm_calls import describe, holder_args, host_comm_spans, is_p2p
from diagnose.analysis.rank.comm_rows import CommSpans, comm_frame, tokens
from diagnose.analysis.rank.cpu_work import CpuWork, cpu_work
from diagnose.analysis.rank.idle import long_silence
from diagnose.analysis.rank.launches import match_launches
from diagnose.analysis.rank.reduced import WHOLE_TRACE, Reduced
from diagnose.analysis.rank.series import step_numbers
from diagnose.analysis.rank.split_rows import blind_steps, step_frame
from diagnose.analysis.rank.stats import operator_stats
from diagnose.analysis.rank.steps import HostWindows, StepTimes, host_windows, period_windows, step_of
from diagnose.store.rank_trace import CommArgs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.store.rank_trace import RankTrace

_HOST_BACKEND = re.compile(r"gloo|mpi|ucc", re.IGNORECASE)


def reduce_cpu(trace: RankTrace) -> Reduced:
    """All tables of a trace without device activities; where a device was used all the same, every part is unknown."""
    work = cpu_work(trace)
    windows = host_windows(trace)
    comm = work.comm
    bounds = _time_bounds(trace)
    lost = _lost_capture(trace)
    named = _named(trace, work)
    described = [describe(operation, args, trace.header.rank) for operation, args in named]
    if windows.source == "none" and len(comm.start_ns):
        order = np.argsort(comm.start_ns, kind="stable")
        windows = period_windows(comm.start_ns[order], tokens([described[row] for row in order]))
    frames: dict[str, pl.DataFrame] = {}
    if lost is not None:
        if len(windows.number):
            why = [lost] * len(windows.number)
            frames["step"], _ = blind_steps(windows, np.arange(len(windows.number)), "lost_capture", why)
    elif bounds is not None and (len(windows.number) or len(work.compute.start_ns) or len(comm.start_ns)):
        frames |= _split_frames(work, windows, bounds)
    if len(comm.start_ns):
        numbers = step_numbers(step_of(windows, comm.start_ns), windows.number)
        names = [trace.names[code] for code in comm.name.tolist()]
        spans = CommSpans(names, comm.start_ns, comm.end_ns, comm.thread, comm.issue_ns, numbers)
        frames["comm_call"] = comm_frame(spans, work.compute, [args for _, args in named], described)
    frames["kernel_stat"] = operator_stats(trace, windows)
    start, end = bounds if bounds is not None else (None, None)
    return Reduced(frames, windows.source, lost, None, 0, start, end, trace.events)


def _lost_capture(trace: RankTrace) -> str | None:
    """A host that launches kernels, talks NCCL or lists accelerators had a device: its records are missing.

    Jobs that say they communicate on the host (gloo, MPI) compute there.
    """
    total = len(match_launches(trace).call_ns)
    if total:
        return f"none of {total} kernel launches has a device record"
    backend = trace.header.backend or ""
    if "nccl" in backend and "gloo" not in backend:
        return "only host activities were profiled, though the job communicates on a device"
    if trace.header.devices and not _HOST_BACKEND.search(backend):
        return f"only host activities were profiled, on a machine with {trace.header.devices[0] or 'accelerators'}"
    return None


def _named(trace: RankTrace, work: CpuWork) -> list[tuple[str, CommArgs]]:
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


def _split_frames(work: CpuWork, windows: HostWindows, bounds: tuple[int, int]) -> dict[str, pl.DataFrame]:
    """Split of the host windows and of the whole trace."""
    starts, ends = windows.start_ns, windows.end_ns
    comm = merge(work.comm.start_ns, work.comm.end_ns)
    whole = _breakdown(np.array([WHOLE_TRACE]), np.array([bounds[0]]), np.array([bounds[1]]), work, comm)
    if not len(starts):
        return {"breakdown": whole}
    times = StepTimes(
        np.arange(len(starts)),
        starts,
        np.maximum(ends, np.concatenate((starts[1:], ends[-1:]))),
        np.concatenate((np.diff(starts), [ends[-1] - starts[-1]])),
        np.zeros(len(starts), np.int64),
    )
    of_steps = _breakdown(windows.number, times.start_ns, times.end_ns, work, comm)
    return {"step": step_frame(windows, times, windows.number), "breakdown": pl.concat([of_steps, whole])}


def _breakdown(
    number: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], work: CpuWork, comm: Merged
) -> pl.DataFrame:
    span = end - start
    compute = covered_ns(work.compute, start, end)
    exposed_comm = covered_ns(subtract(comm, work.compute), start, end)
    overlapped = covered_ns(intersect(comm, work.compute), start, end)
    loader = covered_ns(subtract(subtract(work.loader, comm), work.compute), start, end)
    idle = span - compute - exposed_comm
    zero = np.zeros(len(span), np.int64)
    parts = (work.compute, comm, work.loader)
    busy = merge(np.concatenate([part.start_ns for part in parts]), np.concatenate([part.end_ns for part in parts]))
    silent = covered_ns(long_silence(busy), start, end)
    return pl.DataFrame(
        {
            "step": number, "span_ns": span, "compute_ns": compute, "exposed_comm_ns": exposed_comm,
            "overlapped_comm_ns": overlapped, "exposed_memcpy_ns": zero, "idle_ns": idle, "idle_input_ns": loader,
            "idle_host_ns": idle - loader, "idle_sync_ns": zero, "idle_bubble_ns": zero, "idle_other_ns": zero,
            "idle_gc_ns": np.minimum(silent, idle - loader), "idle_allocator_ns": zero,
            "local_work_ns": span - exposed_comm, "memcpy_ns": zero, "comm_ns": covered_ns(comm, start, end),
        }
    )  # fmt: skip


def _time_bounds(trace: RankTrace) -> tuple[int, int] | None:
    parts = [calls for calls in (trace.operators, trace.annotations, trace.runtime) if len(calls.start_ns)]
    if not parts:
        return None
    return int(min(calls.start_ns.min() for calls in parts)), int(max(calls.end_ns.max() for calls in parts))
