"""Communication of one rank as rows of the table ``comm_call``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.intervals import Merged, covered_ns, gaps
from diagnose.analysis.rank.series import lists_by_row, nullable
from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.analysis.rank.comm_calls import Described
    from diagnose.analysis.rank.launches import Launches
    from diagnose.store.rank_trace import CommArgs

_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "ready_ns": pl.Int64,
    "exposed_from_ns": pl.List(pl.Int64),
    "exposed_to_ns": pl.List(pl.Int64),
    "group_name": pl.String,
    "group_desc": pl.String,
    "group_ranks": pl.List(pl.Int32),
    "group_size": pl.Int32,
    "seq": pl.Int64,
    "is_p2p": pl.Boolean,
    "peer": pl.Int32,
    "dtype": pl.String,
    "in_elems": pl.Int64,
    "out_elems": pl.Int64,
    "in_split": pl.String,
    "out_split": pl.String,
    "msg_bytes": pl.Int64,
    "collective": pl.String,
    "name": pl.String,
}


class CommSpans(NamedTuple):
    """Where the calls are, one value each; ``issue_ns`` is the start of the call that issued it, ``ready_ns`` when it could
    have run, UNKNOWN where nothing tells.
    """

    names: list[str]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    stream: NDArray[np.int64]
    issue_ns: NDArray[np.int64]
    step: pl.Series
    ready_ns: NDArray[np.int64] | None = None


def comm_frame(
    spans: CommSpans, compute: Merged, args: Sequence[CommArgs], described: Sequence[Described]
) -> pl.DataFrame:
    """One row a call, numbered in the order of starts; exposed is what no compute of this rank hides."""
    start, end = spans.start_ns, spans.end_ns
    exposed = (end - start) - covered_ns(compute, start, end)
    lows, highs = _exposed_stretches(start, end, exposed, compute)
    frame = pl.DataFrame(
        {
            "step": spans.step,
            "stream": spans.stream,
            "start_ns": start,
            "dur_ns": end - start,
            "issue_ns": spans.issue_ns,
            "ready_ns": None if spans.ready_ns is None else nullable(spans.ready_ns, UNKNOWN),
            "exposed_ns": exposed,
            "exposed_from_ns": lows,
            "exposed_to_ns": highs,
            "collective": [item.kind for item in described],
            "group_name": [item.group_name for item in args],
            "group_desc": [item.group_desc for item in args],
            "group_ranks": _shared_lists([item.group_ranks for item in args]),
            "group_size": [item.group_size for item in args],
            "seq": [item.seq for item in args],
            "is_p2p": [item.is_p2p for item in described],
            "peer": [item.peer for item in described],
            "dtype": [item.dtype for item in described],
            "in_elems": [item.in_elems for item in described],
            "out_elems": [item.out_elems for item in described],
            "in_split": [item.in_split for item in args],
            "out_split": [item.out_split for item in args],
            "msg_bytes": [item.msg_bytes for item in described],
            "name": spans.names,
        },
        schema_overrides=_SCHEMA,
    )
    order = np.lexsort((end, start))
    return frame[order].with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))


def ready_times(
    rows: NDArray[np.int64],
    start_ns: NDArray[np.int64],
    end_ns: NDArray[np.int64],
    own: NDArray[np.bool_],
    launches: Launches,
) -> NDArray[np.int64]:
    """When each call could have run: once issued, and once the work launched before it was done, which its stream waits for.

    That stream may have been busy with another call until later. Never after its start; UNKNOWN without a launch of its own.

    Args:
        rows: the calls among all activities.
        start_ns: starts of all activities.
        end_ns: their ends.
        own: which of them are work and no communication.
        launches: their launches.
    """
    work = np.flatnonzero(own & launches.known)
    work = work[np.argsort(launches.start_ns[work], kind="stable")]
    done = np.maximum.accumulate(end_ns[work]) if len(work) else np.empty(0, np.int64)
    issue = launches.start_ns[rows]
    place = np.searchsorted(launches.start_ns[work], issue)
    before = np.where(place > 0, done[np.maximum(place - 1, 0)], issue) if len(work) else issue
    sure = launches.known[rows] & ~launches.shared[rows]
    return np.where(sure, np.minimum(np.maximum(issue, before), start_ns[rows]), UNKNOWN)


def tokens(described: Sequence[Described]) -> NDArray[np.int64]:
    """Calls as codes: equal for the same kind, type and size."""
    codes: dict[tuple[object, ...], int] = {}
    return np.array(
        [codes.setdefault((item.kind, item.dtype, item.msg_bytes), len(codes)) for item in described], np.int64
    )


def _exposed_stretches(
    start: NDArray[np.int64], end: NDArray[np.int64], exposed: NDArray[np.int64], compute: Merged
) -> tuple[pl.Series, pl.Series]:
    """Exposed stretches of each call relative to its start, as lists; whole and hidden calls need no search."""
    length = end - start
    whole = np.flatnonzero((exposed == length) & (length >= 0))
    rows, lows, highs = [whole], [np.zeros(len(whole), np.int64)], [length[whole]]
    for row in np.flatnonzero((exposed > 0) & (exposed != length)).tolist():
        low = max(int(np.searchsorted(compute.end_ns, start[row])) - 1, 0)
        high = int(np.searchsorted(compute.start_ns, end[row])) + 1
        free = gaps(Merged(compute.start_ns[low:high], compute.end_ns[low:high]), int(start[row]), int(end[row]))
        rows.append(np.full(len(free.start_ns), row))
        lows.append(free.start_ns - start[row])
        highs.append(free.end_ns - start[row])
    of = np.concatenate(rows)
    return lists_by_row(of, np.concatenate(lows), len(start)), lists_by_row(of, np.concatenate(highs), len(start))


def _shared_lists(values: Sequence[tuple[int, ...] | None]) -> pl.Series:
    """Few different rank lists, for many calls."""
    places: dict[tuple[int, ...] | None, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    distinct = pl.Series([None if value is None else list(value) for value in places], dtype=pl.List(pl.Int32))
    return distinct.gather(codes)
