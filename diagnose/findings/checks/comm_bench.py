"""Bandwidth tests: a collapse at large sizes. Wrong results are errors (comm_errors)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, NotChecked

FEWEST_ROWS = 3
"""A peak, and two sizes that stay below it: one row may be an outlier."""


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Tables whose largest sizes fall below what smaller ones reached."""
    rows = facts.tables.query(
        "SELECT path, test, collective, size_bytes, line, max(busbw_bytes_per_s) AS busbw FROM bandwidth_reference"
        " WHERE tool = 'nccl-tests' AND size_bytes > 0 GROUP BY path, test, collective, size_bytes, line"
        " ORDER BY path, test, size_bytes"
    )
    for table in rows.partition_by("path", "test", maintain_order=True):
        yield from _drop(facts, table)


def _drop(facts: Facts, table: pl.DataFrame) -> Iterable[Finding]:
    rule = facts.rules["COM-BENCH-DROP"]
    rows = list(table.filter(table["size_bytes"] >= rule.limit("size")).iter_rows(named=True))
    if len(rows) < FEWEST_ROWS:
        return
    peak = max(rows, key=lambda row: row["busbw"])
    after = [row for row in rows if row["size_bytes"] > peak["size_bytes"]]
    low = [row for row in after if rule.thresholds["ratio"].severity(row["busbw"] / peak["busbw"]) is not None]
    if len(low) < 2 or low[-1] is not rows[-1] or after[after.index(low[0]) :] != low:
        return
    yield rule.finding(
        rule.thresholds["ratio"].severity(low[-1]["busbw"] / peak["busbw"]),
        fields={
            "collective": peak["collective"] or "the test",
            "peak_bytes_per_s": peak["busbw"],
            "peak_size": peak["size_bytes"],
            "low_bytes_per_s": low[0]["busbw"],
            "low_size": low[0]["size_bytes"],
        },
        confidence=0.85,
        evidence=[
            Evidence(f"busbw at {row['size_bytes']} bytes", row["busbw"], "bytes/s", f"{row['path']}:{row['line']}")
            for row in (peak, low[0], low[-1])
        ],
    )
