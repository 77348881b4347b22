"""Runs without a device: operators of the training threads are the compute, spans of the communication library the
communication. A rank that computes on its CPU gets the same split, with its host window as the step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diagnose.analysis.intervals import Merged, merge, subtract
from diagnose.analysis.rank.idle import loader_spans
from diagnose.analysis.rank.launches import matching
from diagnose.comm_names import comm_span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.store.rank_trace import Calls, RankTrace

_LIBRARY_SPAN = re.compile(r"^(?:gloo|mpi|ucc|hccl|xccl):")
_RECEIVE = re.compile(r"^c10d::recv", re.IGNORECASE)
_RECEIVE_SPAN = re.compile(r"^(?:gloo|mpi|ucc):i?recv", re.IGNORECASE)
_WIDE_RANGE = re.compile(
    r"^ProfilerStep#|^enumerate\(DataLoader\)|DataParallel|^FSDP|^Optimizer|^nccl:|^gloo:|^c10d", re.IGNORECASE
)
_BLOCKING_NS = 1_000_000
"""A host that does nothing for a millisecond right after posting a receive is waiting for it; one that goes on less than
a millisecond after a transfer ended was waiting for that."""


class CpuSpan(NamedTuple):
    """Communication spans as rows: where they start, how long, on which thread, and the row they come from."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    name: NDArray[np.int32]
    ref: NDArray[np.int64]
    issue_ns: NDArray[np.int64]


class CpuWork(NamedTuple):
    """Compute as disjoint intervals, communication as rows, time in the loader."""

    compute: Merged
    comm: CpuSpan
    loader: Merged


def cpu_work(trace: RankTrace) -> CpuWork:
    """Compute, communication and loader time of a trace without device activities."""
    is_comm = np.fromiter(
        (comm_span(name) is not None or name.startswith("_c10d_functional::") for name in trace.names),
        bool,
        len(trace.names),
    )
    operators = trace.operators
    comm_operator = is_comm[operators.name]
    loader = loader_spans(trace)
    spans = _library_spans(trace)
    compute = _without_waits(operators, comm_operator, spans)
    compute = subtract(
        subtract(compute, merge(operators.start_ns[comm_operator], operators.end_ns[comm_operator])), loader
    )
    compute = _with_parents(trace, compute, loader)
    return CpuWork(compute, _with_receives(trace, spans, compute), loader)


def _without_waits(operators: Calls, comm_operator: NDArray[np.bool_], spans: CpuSpan) -> Merged:
    """Operators that compute. One that posts communication and stays open waits for it where nothing inside it runs until
    a transfer ends: autograd functions that gather parameters or hand on gradients do so for most of their time.
    """
    holder = np.zeros(len(operators.start_ns), bool)
    for thread in np.unique(operators.thread[comm_operator]):
        mine = np.flatnonzero(operators.thread == thread)
        posts = np.sort(operators.start_ns[mine[comm_operator[mine]]])
        inside = np.searchsorted(posts, operators.end_ns[mine]) - np.searchsorted(posts, operators.start_ns[mine])
        holder[mine] = inside > 0
    holder &= ~comm_operator
    running = merge(operators.start_ns[~holder], operators.end_ns[~holder])
    still = subtract(merge(operators.start_ns[holder], operators.end_ns[holder]), running)
    ends = np.sort(spans.end_ns)
    last = np.searchsorted(ends, still.end_ns + _BLOCKING_NS, side="right") - 1  # a span may be closed after the wait
    freed = np.where(last >= 0, ends[np.maximum(last, 0)], -1) if len(ends) else np.full(len(still.end_ns), -1)
    waits = (freed > still.start_ns) & (still.end_ns - freed < _BLOCKING_NS)
    waits &= still.end_ns - still.start_ns >= _BLOCKING_NS
    compute = ~comm_operator & ~holder
    return merge(
        np.concatenate((operators.start_ns[compute], still.start_ns[~waits])),
        np.concatenate((operators.end_ns[compute], still.end_ns[~waits])),
    )


def _library_spans(trace: RankTrace) -> CpuSpan:
    calls = trace.annotations
    rows = (
        np.flatnonzero(matching(trace.names, _LIBRARY_SPAN)[calls.name]) if len(calls.name) else np.empty(0, np.int64)
    )
    return CpuSpan(
        calls.start_ns[rows],
        calls.end_ns[rows],
        calls.thread[rows],
        calls.name[rows],
        calls.ref[rows],
        calls.start_ns[rows],
    )


def _with_receives(trace: RankTrace, spans: CpuSpan, compute: Merged) -> CpuSpan:
    """Add the blocking receives that no library span shows: from the post to the next compute of any thread."""
    operators = trace.operators
    posts = (
        np.flatnonzero(matching(trace.names, _RECEIVE)[operators.name])
        if len(operators.name)
        else np.empty(0, np.int64)
    )
    shown = matching(trace.names, _RECEIVE_SPAN)[spans.name] if len(spans.name) else np.zeros(0, bool)
    if not len(posts) or not len(compute.start_ns) or shown.any():
        return spans
    begin = operators.end_ns[posts]
    following = np.searchsorted(compute.start_ns, begin, side="right")
    known = following < len(compute.start_ns)
    end = np.where(known, compute.start_ns[np.minimum(following, len(compute.start_ns) - 1)], begin)
    blocking = known & (end - begin >= _BLOCKING_NS)
    end = np.where(blocking, end, operators.end_ns[posts])
    return CpuSpan(
        np.concatenate((spans.start_ns, operators.start_ns[posts])),
        np.concatenate((spans.end_ns, end)),
        np.concatenate((spans.thread, operators.thread[posts])),
        np.concatenate((spans.name, operators.name[posts])),
        np.concatenate((spans.ref, operators.ref[posts])),
        np.concatenate((spans.issue_ns, operators.start_ns[posts])),
    )


def _with_parents(trace: RankTrace, compute: Merged, loader: Merged) -> Merged:
    """Compute also covers user ranges that hold no operator at all: work outside PyTorch, named by the user."""
    calls = trace.annotations
    names = trace.names
    rows = ~matching(names, _WIDE_RANGE)[calls.name] if len(calls.name) else np.zeros(0, bool)
    if not rows.any():
        return compute
    touched = np.searchsorted(trace.operators.start_ns, calls.end_ns[rows]) - np.searchsorted(
        trace.operators.start_ns, calls.start_ns[rows]
    )
    empty = touched == 0
    extra = merge(calls.start_ns[rows][empty], calls.end_ns[rows][empty])
    if not len(extra.start_ns):
        return compute
    extra = subtract(extra, loader)
    return merge(np.concatenate((compute.start_ns, extra.start_ns)), np.concatenate((compute.end_ns, extra.end_ns)))
