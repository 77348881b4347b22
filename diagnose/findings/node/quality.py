"""The quality of what was collected, bandwidth tests, and hosts that differ in no named way."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.node_metrics.outliers import find_outliers, host_matrix
from diagnose.findings.node.emit import Scope, Seen, emit
from diagnose.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.node.context import Context
    from diagnose.model import Finding

GAP_PERIODS = 5
MIN_GAP_NS = 60_000_000_000
SMALLEST_JUDGED_BYTES = 1_048_576


def check_quality(context: Context) -> Iterator[Finding]:
    """All rules of this module."""
    yield from _gaps(context)
    yield from _snapshots(context)
    yield from _bench(context)
    yield from _outliers(context)


def _gaps(context: Context) -> Iterator[Finding]:
    """Targets that were down, and series with holes of five periods and a minute."""
    text = "the scrape target was down for a part of the time: a gap, not a zero"
    seen = [Seen(row.host, row.entity, "info", text, 0.0, "bool") for row in context.rows("up") if row.low == 0]
    holes = context.facts.tables.query(
        "WITH t AS (SELECT DISTINCT host, format, t_ns FROM metric_sample "
        "WHERE t_ns IS NOT NULL AND kind <> 'event' AND metric NOT LIKE 'job.%'), "
        "d AS (SELECT host, format, t_ns - lag(t_ns) OVER (PARTITION BY host, format ORDER BY t_ns) AS gap FROM t), "
        "m AS (SELECT host, format, median(gap) AS period, max(gap) AS longest, count(gap) AS n FROM d GROUP BY ALL) "
        "SELECT host, format, period, longest FROM m "
        f"WHERE n >= 10 AND longest > {GAP_PERIODS} * period AND longest > {MIN_GAP_NS} ORDER BY ALL"
    )
    for host, format_name, period, longest in holes.iter_rows():
        name = context.aliases.get(host, host) if host else None
        text = f"{longest / 1e9:.0f} s without samples ({format_name}, usual period {period / 1e9:.3g} s)"
        seen.append(Seen(name, "node", "info", text, longest / 1e9, "s"))
    yield from emit(context, "DQ-04", seen, Scope(frozenset({item.host for item in seen}), intrinsic=True))


def _snapshots(context: Context) -> Iterator[Finding]:
    """Hosts all of whose counters were read once."""
    rows = context.summary
    if rows.is_empty():
        return
    counters = rows.filter((pl.col("kind") == "counter") & (pl.col("samples") > 0))
    grouped = counters.group_by("host").agg(pl.col("snapshot").all(), pl.len().alias("n")).filter(pl.col("snapshot"))
    seen = [
        Seen(host, "node", "info", f"{count} counters read once: totals since reset, no rates", float(count), "count")
        for host, count in grouped.sort("host", nulls_last=True).select("host", "n").iter_rows()
    ]
    yield from emit(context, "DQ-05", seen, Scope(frozenset({item.host for item in seen}), intrinsic=True))


def _bench(context: Context) -> Iterator[Finding]:
    """The largest fall of bus bandwidth from one size to the next, from a mebibyte on."""
    threshold = context.facts.rules["BENCH-01"].thresholds["drop_ratio"]
    curves: dict[tuple[str | None, str], dict[int, float]] = {}
    for row in context.rows("bench.busbw"):
        size, _, place = row.entity.removeprefix("size:").partition("/")
        if size.isdigit() and row.median is not None:
            curves.setdefault((row.host, place or "out_of_place"), {})[int(size)] = row.median
    seen = []
    for (host, place), curve in curves.items():
        sizes = sorted(size for size in curve if size >= SMALLEST_JUDGED_BYTES)
        drops = [(1 - curve[b] / curve[a], a, b) for a, b in pairwise(sizes) if curve[a]]
        if not drops:
            continue
        drop, smaller, larger = max(drops)
        severity = threshold.severity(drop)
        if severity:
            recovers = max(curve[size] for size in sizes if size >= larger) >= curve[smaller]
            note = ", and recovers at larger sizes" if recovers else ""
            text = f"bus bandwidth falls by {format_ratio(drop)} from {smaller} to {larger} bytes{note}"
            seen.append(Seen(host, f"bench:{place}", severity, text, drop, "ratio"))
    yield from emit(context, "BENCH-01", seen, Scope(frozenset(), intrinsic=True))


def _outliers(context: Context) -> Iterator[Finding]:
    matrix = host_matrix(context.summary)
    if matrix.is_empty():
        return
    seen = []
    for item in find_outliers(matrix):
        reasons = ", ".join(f"{name} {sigmas:+.0f} sigma" for name, sigmas in item.reasons[:3])
        seen.append(Seen(item.host, "node", "info", f"differs from all peers in {reasons}", item.score, "score"))
    yield from emit(context, "NODE-OUT-01", seen, Scope(frozenset(matrix.get_column("host").to_list())))
