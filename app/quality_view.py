"""The Data quality page's data: rows of the report as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import data
import polars as pl
from text import plain

from diagnose.units import format_bytes, format_count, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from catalog import Run

    from diagnose.report.document import Document
    from diagnose.store.table import Table

_HEAD = ("| kind | files | size | ranks | hosts |", "|---|---|---|---|---|")
_STATES = ("failed", "partial", "skipped", "ok")


def issues(document: Document) -> pl.DataFrame:
    """Problems, errors first."""
    order = {"error": 0, "warning": 1, "info": 2}
    return _frame(sorted(document.data_quality.issues, key=lambda row: (order.get(row.severity, 3), -row.count)))


def states(document: Document) -> list[str]:
    """Statuses that occur, worst first."""
    found = {row.status for row in document.data_quality.sources}
    return [name for name in _STATES if name in found]


def sources(document: Document, chosen: Sequence[str]) -> pl.DataFrame:
    """Files of these statuses, worst first."""
    rows = [row for row in document.data_quality.sources if row.status in chosen]
    frame = _frame(sorted(rows, key=lambda row: (_STATES.index(row.status), row.path)))
    return (
        frame
        if frame.is_empty()
        else frame.select("path", "status", "problem", "kind", "rank", "host", "rows", "bytes")
    )


def clocks(document: Document) -> pl.DataFrame:
    """Clocks of the hosts."""
    return _frame(document.clocks)


def covered(document: Document) -> str:
    """How much of the job the traces cover."""
    run = document.run
    seen = format_count(len(run.ranks))
    if not run.world_size:
        return f"Ranks with traces: {seen}; the size of the job is not known."
    return f"Ranks with traces: {seen} of {format_count(run.world_size)} ({format_ratio(len(run.ranks) / run.world_size)})."


def by_kind(run: Run) -> str:
    """What was read, as a table of Markdown: the first page should not load what draws larger ones."""
    lines = []
    for row in data.rows(run, "coverage").iter_rows(named=True):
        states = ", ".join(f"{format_count(row[name])} {name}" for name in _STATES[::-1] if row[name])
        counts = (format_count(row[name]) if row[name] else "not named" for name in ("ranks", "hosts"))
        lines.append(
            f"| {' | '.join(plain(cell) for cell in (row['kind'], states, format_bytes(row['bytes']), *counts))} |"
        )
    return "\n".join((*_HEAD, *lines)) if lines else "No file was read."


def columns(table: Table) -> pl.DataFrame:
    """Columns of a table with unit and meaning."""
    return pl.DataFrame([column._asdict() for column in table.columns])


def _frame(rows: Iterable[Any]) -> pl.DataFrame:
    return pl.DataFrame(
        [{name: getattr(row, name) for name in row.__struct_fields__} for row in rows], infer_schema_length=None
    )
