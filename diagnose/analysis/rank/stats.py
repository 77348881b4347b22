"""Device activities as rows, and statistics per signature: the same work on every rank can then be compared."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.intervals import covered_ns
from diagnose.analysis.rank.series import nullable, step_numbers
from diagnose.analysis.rank.steps import HostWindows, step_of
from diagnose.comm_names import comm_span
from diagnose.store.rank_trace import CLASS_NAMES, NO_CORRELATION, NO_SHAPE, UNKNOWN, Activities, RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.intervals import Merged
    from diagnose.analysis.rank.launches import Launches

_BESIDE_RATIO = 0.9
"""An execution that communication covers this much of ran beside it."""


def kernel_rows(
    trace: RankTrace, activities: Activities, launches: Launches, group: NDArray[np.int64], number: NDArray[np.int64]
) -> pl.DataFrame:
    """One row an activity; names as a dictionary so that the shard stays small."""
    names = pl.Series(trace.names, dtype=pl.String)
    return pl.DataFrame(
        {
            "device": activities.device,
            "stream": activities.stream,
            "start_ns": activities.start_ns,
            "dur_ns": activities.dur_ns,
            "class": pl.Series(CLASS_NAMES)[activities.klass.astype(np.int64)],
            "name": names[activities.name.astype(np.int64)],
            "correlation": nullable(activities.correlation, NO_CORRELATION),
            "launch_ns": nullable(launches.start_ns, UNKNOWN),
            "step": step_numbers(group, number),
            "graph": launches.shared,
        }
    )


def kernel_stats(
    trace: RankTrace, activities: Activities, group: NDArray[np.int64], number: NDArray[np.int64], comm: Merged
) -> pl.DataFrame:
    """One row a (step, signature). ``comm`` is when communication ran: executions beside it and alone are told apart."""
    length = activities.dur_ns
    beside = covered_ns(comm, activities.start_ns, activities.start_ns + length)
    frame = pl.DataFrame(
        {
            "step": step_numbers(group, number),
            "klass": activities.klass.astype(np.int64),
            "code": activities.name.astype(np.int64),
            "signature": activities.signature,
            "dur_ns": activities.dur_ns,
            "size": nullable(activities.size_bytes, UNKNOWN),
            "alone": (beside == 0).astype(np.int64),
            "beside": (beside >= _BESIDE_RATIO * length).astype(np.int64),
        }
    )
    return _summarise(frame, trace.names)


def operator_stats(trace: RankTrace, windows: HostWindows) -> pl.DataFrame:
    """Outermost operators of CPU runs as if they were kernels, class cpu_op; communication spans are left out.

    The signature tells equal operators on other shapes apart, where the trace records shapes.
    """
    calls = trace.operators
    is_comm = np.fromiter((comm_span(name) is not None for name in trace.names), bool, len(trace.names))
    keep = (
        outermost(calls.start_ns, calls.end_ns, calls.thread) & ~is_comm[calls.name]
        if len(calls.name)
        else np.zeros(0, bool)
    )
    codes = calls.name[keep].astype(np.int64)
    signatures = _signatures(trace.names, codes, calls.ref[keep])
    step = step_of(windows, calls.start_ns[keep])
    frame = pl.DataFrame(
        {
            "step": step_numbers(step, windows.number),
            "klass": np.full(len(codes), len(CLASS_NAMES), np.int64),
            "code": codes,
            "signature": signatures,
            "dur_ns": calls.dur_ns[keep],
            "size": pl.Series([None] * len(codes), dtype=pl.Int64),
            "alone": pl.Series([None] * len(codes), dtype=pl.Int64),
            "beside": pl.Series([None] * len(codes), dtype=pl.Int64),
        }
    )
    return _summarise(frame, trace.names)


def outermost(start: NDArray[np.int64], end: NDArray[np.int64], thread: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Events that lie in no earlier event of their thread; rows are ordered by start, longer first among equals."""
    result = np.zeros(len(start), bool)
    for one in np.unique(thread):
        rows = np.flatnonzero(thread == one)
        reach = np.maximum.accumulate(end[rows])
        result[rows] = np.concatenate(([True], start[rows][1:] >= reach[:-1]))
    return result


def _summarise(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    stats = frame.group_by("step", "klass", "code", "signature").agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("dur_ns").sum().alias("total_ns"),
        pl.col("dur_ns").median().round().cast(pl.Int64).alias("median_ns"),
        pl.when(pl.col("size").is_not_null().any()).then(pl.col("size").sum()).alias("bytes"),
        *(pl.col(name).sum().alias(f"{name}_count") for name in ("alone", "beside")),
        *((pl.col(name) * pl.col("dur_ns")).sum().alias(f"{name}_ns") for name in ("alone", "beside")),
    )
    classes = pl.Series([*CLASS_NAMES, "cpu_op"])
    return stats.select(
        "step",
        classes[stats["klass"]].alias("class"),
        pl.Series(names, dtype=pl.String)[stats["code"]].alias("name")
        if len(stats)
        else pl.lit(None, pl.String).alias("name"),
        "signature",
        "count",
        "total_ns",
        "median_ns",
        "bytes",
        "alone_count",
        "alone_ns",
        "beside_count",
        "beside_ns",
    ).sort("step", "class", "signature")


def _signatures(names: list[str], codes: NDArray[np.int64], shapes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hash of name and shapes of each operator; references into comm_args (0 and above) are no shapes."""
    known = np.minimum(shapes, NO_SHAPE)
    pairs, place = np.unique(np.stack((codes, known), axis=1), axis=0, return_inverse=True)
    hashes = np.array([_signature(names[code], shape) for code, shape in pairs.tolist()], np.int64)
    return hashes[place.reshape(-1)] if len(codes) else np.empty(0, np.int64)


def _signature(name: str, shape: int) -> int:
    text = name.encode("utf-8", "replace") + (b"" if shape == NO_SHAPE else b"\0%d" % shape)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)
