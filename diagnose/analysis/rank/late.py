"""Exposed communication that costs nothing: while it ran, the host had not launched what comes next anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.intervals import merge
from diagnose.analysis.rank.gaps import LONG_NS, gap_rows
from diagnose.analysis.rank.idle import idle_parts
from diagnose.analysis.rank.series import lists_by_row
from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.rank.idle import HostSpans


def with_late_launches(
    calls: pl.DataFrame, work_start_ns: NDArray[np.int64], launch_ns: NDArray[np.int64], spans: HostSpans
) -> pl.DataFrame:
    """Adds ``exposed_late_ns``: for each exposed stretch, the time after the call's start until which the host is why.

    A stretch is an idle gap of the compute streams like any other: of what lies before the launch of the work that ends
    it, the loader and the host account for all but the time in which the host itself waited for the device.

    Args:
        calls: comm_call rows with start_ns, exposed_from_ns, exposed_to_ns.
        work_start_ns: starts of compute and copies.
        launch_ns: launches of these, UNKNOWN outside the file.
        spans: what the host did.
    """
    pieces = (
        calls.with_row_index("row").select("row", "start_ns", "exposed_from_ns", "exposed_to_ns")
        .explode("exposed_from_ns", "exposed_to_ns").drop_nulls()
    )  # fmt: skip
    if pieces.is_empty() or not len(work_start_ns):
        return calls.with_columns(pl.col("exposed_from_ns").alias("exposed_late_ns"))
    start, low, high = (pieces.get_column(name).to_numpy() for name in ("start_ns", "exposed_from_ns", "exposed_to_ns"))
    order = np.argsort(work_start_ns, kind="stable")
    following = np.searchsorted(work_start_ns[order], start + high)
    known = following < len(order)
    launch = np.where(known, launch_ns[order[np.minimum(following, len(order) - 1)]], UNKNOWN)
    known &= launch != UNKNOWN
    parts = idle_parts(spans, start + low, start + high, np.where(known, launch, start + low))
    late = low + np.where(known, parts.input_ns + parts.host_ns, 0)
    row = pieces.get_column("row").to_numpy().astype(np.int64)
    return calls.with_columns(lists_by_row(row, late, len(calls)).alias("exposed_late_ns"))


def late_gaps(calls: pl.DataFrame, spans: HostSpans) -> pl.DataFrame:
    """Rows of ``host_gap`` for the long late parts: the device had only communication to do, as it has nothing in a gap.

    Args:
        calls: comm_call rows with exposed_late_ns.
        spans: what the host did.
    """
    start = pl.col("start_ns")
    pieces = (
        calls.select("step", "start_ns", "exposed_from_ns", "exposed_late_ns").explode("exposed_from_ns", "exposed_late_ns")
        .filter(pl.col("step").is_not_null() & (pl.col("exposed_late_ns") > pl.col("exposed_from_ns")))
        .select("step", (start + pl.col("exposed_from_ns")).alias("from"), (start + pl.col("exposed_late_ns")).alias("to"))
        .sort("from")
    )  # fmt: skip
    low = pieces.get_column("from").to_numpy()
    found = merge(low, pieces.get_column("to").to_numpy())  # calls that ran beside one another share the stretch
    long = found.end_ns - found.start_ns >= LONG_NS
    first, last = found.start_ns[long], found.end_ns[long]
    step = pieces.get_column("step").to_numpy()[np.searchsorted(low, first)]
    parts = idle_parts(spans, first, last, last)
    return gap_rows(step, first, last - first, parts, beside_comm=True)
