"""Rows of communication tables, collected as tuples and handed on as frames of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.ingest.base import Batch
from diagnose.store.tables.comm_log import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BATCH_ROWS = 32_768
"""Rows kept as tuples before they become a frame: some 15 MB of Python objects at most."""

_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "VARCHAR": pl.String,
    "BIGINT": pl.Int64,
    "INTEGER": pl.Int32,
    "DOUBLE": pl.Float64,
    "BOOLEAN": pl.Boolean,
    "INTEGER[]": pl.List(pl.Int32),
}


def schema(name: str) -> dict[str, pl.DataType | type[pl.DataType]]:
    """Polars types of a communication table, in its column order."""
    (table,) = (item for item in TABLES if item.name == name)
    return {column.name: _TYPES[column.type] for column in table.columns}


class Rows:
    """Rows of all communication tables of one source."""

    def __init__(self) -> None:
        self._schemas = {item.name: schema(item.name) for item in TABLES}
        self._places = {
            name: {column: place for place, column in enumerate(types)} for name, types in self._schemas.items()
        }
        self._rows: dict[str, list[tuple[object, ...]]] = {item.name: [] for item in TABLES}
        self.count = 0

    def add(self, name: str, values: Mapping[str, object]) -> None:
        """Keep one row; columns that are not given are null.

        Raises:
            KeyError: a value has no column of its name.
        """
        places = self._places[name]
        row: list[object] = [None] * len(places)
        for column, value in values.items():
            row[places[column]] = value
        self._rows[name].append(tuple(row))
        self.count += 1

    def add_tuple(self, name: str, values: tuple[object, ...]) -> None:
        """Keep one complete row in the table's column order."""
        self._rows[name].append(values)
        self.count += 1

    def full(self) -> Iterator[Batch]:
        """Batches of the tables that are full."""
        for name, rows in self._rows.items():
            if len(rows) >= BATCH_ROWS:
                yield self._take(name)

    def rest(self) -> Iterator[Batch]:
        """Batches of everything that is left."""
        for name, rows in self._rows.items():
            if rows:
                yield self._take(name)

    def _take(self, name: str) -> Batch:
        types = self._schemas[name]  # a number of a torn line may exceed its type: it becomes null
        columns = zip(*self._rows[name], strict=True)
        frame = pl.DataFrame(
            [
                pl.Series(column, values, types[column], strict=False)
                for column, values in zip(types, columns, strict=True)
            ]
        )
        self._rows[name] = []
        return Batch(name, frame)
