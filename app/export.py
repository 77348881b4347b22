"""Tables as files: CSV that no spreadsheet takes for formulas, and Parquet."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import data
import polars as pl
import polars.selectors as cs

from diagnose.store.schema import TABLES, table

if TYPE_CHECKING:
    from catalog import Run

    from diagnose.store.table import Table

MOST_ROWS = 5_000_000
NAMES = tuple(item.name for item in TABLES)
_DANGEROUS = r"^[=+\-@\t\r]"


def described(name: str) -> Table:
    """Grain and columns of a table, from the schema."""
    return table(name)


def preview(run: Run, name: str, rows: int = 100) -> pl.DataFrame:
    """The first rows of a table, lists as text."""
    return _flat(data.store(run).query(f'SELECT * FROM run.main."{table(name).name}" LIMIT {int(rows)}'))


def csv(run: Run, name: str) -> bytes:
    """A table as CSV; text cells that a spreadsheet would run get an apostrophe."""
    frame = _flat(_whole(run, name))
    text = frame.select(cs.string()).columns
    guarded = [
        pl.when(pl.col(column).str.contains(_DANGEROUS))
        .then("'" + pl.col(column))
        .otherwise(pl.col(column))
        .alias(column)
        for column in text
    ]
    return frame.with_columns(guarded).write_csv().encode()


def parquet(run: Run, name: str) -> bytes:
    """A table as Parquet."""
    buffer = io.BytesIO()
    _whole(run, name).write_parquet(buffer)
    return buffer.getvalue()


def _whole(run: Run, name: str) -> pl.DataFrame:
    item = table(name)
    order = f" ORDER BY {', '.join(item.key)}" if item.key else ""
    return data.store(run).query(f'SELECT * FROM run.main."{item.name}"{order} LIMIT {MOST_ROWS}')


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name, kind in frame.schema.items() if kind == pl.List]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)
