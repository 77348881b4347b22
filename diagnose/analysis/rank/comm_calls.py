"""Communication activities of one rank with what is known of them: kind, group, size, who issued them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from diagnose.comm_names import UNKNOWN_KIND, collective_kind, comm_span, dtype_bytes, is_transfer
from diagnose.store.rank_trace import UNKNOWN, CommArgs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.rank.launches import Launches
    from diagnose.store.rank_trace import RankTrace

_FULL_OUTPUT = frozenset({"all_gather"})
_UNEVEN = frozenset({"all_to_all", "all_to_allv"})
_P2P = frozenset({"send", "recv", "send_recv"})
_CANONICAL_TYPE = re.compile(r'"([^"]*)"')


class Enclosing(NamedTuple):
    """Host communication spans of one rank, ordered by start, to look up who issued an activity."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    name: NDArray[np.int32]
    ref: NDArray[np.int64]


def host_comm_spans(trace: RankTrace) -> Enclosing:
    """Operators and annotations that issue communication, with their arguments where traced."""
    is_comm = np.fromiter((comm_span(name) is not None for name in trace.names), bool, len(trace.names))
    parts = [
        (calls, np.flatnonzero(is_comm[calls.name]))
        for calls in (trace.operators, trace.annotations)
        if len(calls.name)
    ]
    if not parts:
        none = np.empty(0, np.int64)
        return Enclosing(none, none, none, np.empty(0, np.int32), none)
    picked = [calls.take(rows) for calls, rows in parts]
    start = np.concatenate([calls.start_ns for calls in picked])
    end = np.concatenate([calls.end_ns for calls in picked])
    thread = np.concatenate([calls.thread for calls in picked])
    name = np.concatenate([calls.name for calls in picked])
    ref = np.concatenate([calls.ref for calls in picked])
    order = np.lexsort((-end, start))
    return Enclosing(start[order], end[order], thread[order], name[order], ref[order])


def host_records(trace: RankTrace) -> int:
    """Communication that the host says it issued: its records without those that move nothing, else annotations."""
    record = np.fromiter((name == "record_param_comms" for name in trace.names), bool, len(trace.names))
    if len(trace.operators.name) and (rows := np.flatnonzero(record[trace.operators.name])).size:
        refs = trace.operators.ref[rows].tolist()
        return sum(
            ref < 0 or trace.comm_args[ref].collective is None or is_transfer(trace.comm_args[ref].collective)
            for ref in refs
        )
    library = np.fromiter(
        (name.startswith(("nccl:", "hccl:", "xccl:")) for name in trace.names), bool, len(trace.names)
    )
    return int(library[trace.annotations.name].sum()) if len(trace.annotations.name) else 0


def arguments(
    trace: RankTrace, activities: NDArray[np.int64], launches: Launches, spans: Enclosing
) -> list[tuple[str, CommArgs]]:
    """For each communication activity its operation name and arguments.

    The activity's own arguments win; else those of the innermost host span that holds its launch on its thread; else
    only the name is known.
    """
    result = []
    names = trace.names
    last = np.searchsorted(spans.start_ns, launches.start_ns[activities], side="right").tolist()
    for row, behind in zip(activities.tolist(), last, strict=True):
        own = trace.activities.args[row]
        name = names[trace.activities.name[row]]
        if own >= 0:
            args = trace.comm_args[own]
            result.append((args.collective or name, args))
            continue
        found = _holder(spans, behind, int(launches.start_ns[row]), int(launches.thread[row]))
        result.append(_from_holder(trace, spans, found, name))
    return result


def holder_args(trace: RankTrace, spans: Enclosing, time_ns: int, thread: int) -> CommArgs:
    """Arguments of the innermost operator around a time that names a peer; empty when there is none."""
    behind = int(np.searchsorted(spans.start_ns, time_ns, side="right"))
    for row in _holder(spans, behind, time_ns, thread):
        reference = int(spans.ref[row])
        if reference >= 0 and trace.comm_args[reference].peer is not None:
            return trace.comm_args[reference]
    return CommArgs()


def _holder(spans: Enclosing, last: int, time_ns: int, thread: int) -> list[int]:
    """Spans around a time on a thread, innermost first; nesting deeper than 16 is not looked through.

    ``last`` is the place of the first span that starts after the time.
    """
    if time_ns == UNKNOWN:
        return []
    return [
        row
        for row in range(last - 1, max(last - 17, -1), -1)
        if spans.end_ns[row] >= time_ns and spans.thread[row] == thread
    ]


def _from_holder(trace: RankTrace, spans: Enclosing, rows: list[int], name: str) -> tuple[str, CommArgs]:
    operation, merged = name, CommArgs()
    for row in rows:
        span_name = trace.names[spans.name[row]]
        if operation == name and collective_kind(span_name) != UNKNOWN_KIND:
            operation = span_name  # a SendRecv kernel is any of five collectives; the span says which
        if spans.ref[row] >= 0:
            args = trace.comm_args[spans.ref[row]]
            if args.collective is not None:
                return args.collective, args
            if merged.input_dims is None and args.input_dims is not None:
                merged = args
    return operation, merged


def is_p2p(name: str) -> bool:
    """Whether a span of this name is point to point."""
    return collective_kind(name) in _P2P


class Described(NamedTuple):
    """One call in the store's words."""

    kind: str
    is_p2p: bool
    peer: int | None
    dtype: str | None
    in_elems: int | None
    out_elems: int | None
    msg_bytes: int | None


def describe(operation: str, args: CommArgs, rank: int | None) -> Described:
    """Kind, sizes and peer. ``msg_bytes`` is S of nccl-tests: the whole message of the collective seen by this rank."""
    kind = collective_kind(operation)
    dtype = args.dtype or _input_type(args)
    in_elems, out_elems = args.in_elems, args.out_elems
    if in_elems is None and args.input_dims is not None:
        in_elems = elements(args.input_dims)
    size = dtype_bytes(dtype)
    whole = in_elems
    if kind in _FULL_OUTPUT:
        whole = (
            out_elems
            if out_elems is not None
            else in_elems * args.group_size
            if in_elems and args.group_size
            else in_elems
        )
    elif kind in _P2P or kind in _UNEVEN or kind in ("broadcast", "scatter"):
        whole = max(in_elems or 0, out_elems or 0) or None
    peer = _peer(kind, args, rank)
    return Described(
        kind, kind in _P2P, peer, dtype, in_elems, out_elems, None if size is None or whole is None else whole * size
    )


def _peer(kind: str, args: CommArgs, rank: int | None) -> int | None:
    """Global rank of the other end. Traces give ends as positions in the group; where they are global, both agree."""
    far, near = {"send": (args.dst_rank, args.src_rank), "recv": (args.src_rank, args.dst_rank)}.get(kind, (None, None))
    if far is None:
        return args.peer if kind in _P2P else None
    ranks = args.group_ranks
    if ranks is None or rank not in ranks or near is None or not 0 <= far < len(ranks):
        return far
    local = ranks.index(rank) == near and (near != rank or far not in ranks)
    return ranks[far] if local else far


def elements(dims: str) -> int | None:
    """Elements of the tensors in the first argument that has any, from ``Input Dims`` text."""
    try:
        value = msgspec.json.decode(dims)
    except msgspec.DecodeError:
        return None
    for argument in value if isinstance(value, list) else []:
        if (count := _count(argument)) is not None:
            return count
    return None


def _count(value: object) -> int | None:
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(item, int) for item in value):
        return int(np.prod([int(item) for item in value], dtype=np.int64))
    counts = [count for item in value if (count := _count(item)) is not None]
    return sum(counts) if counts else None


def _input_type(args: CommArgs) -> str | None:
    if args.input_type is None:
        return None
    for word in _CANONICAL_TYPE.findall(args.input_type):
        if dtype_bytes(word) is not None:
            return str(word)
    return None
