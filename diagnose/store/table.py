"""What a table of the run store is: grain, key, columns with type, unit and meaning."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """One column: DuckDB type, unit of its numbers (None for names and flags), meaning in one sentence."""

    name: str
    type: str
    unit: str | None
    meaning: str


class Table(NamedTuple):
    """One table: ``grain`` says what one row is, ``key`` which columns name it."""

    name: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns in their stored order."""
        return tuple(column.name for column in self.columns)


def columns(text: str) -> tuple[Column, ...]:
    """Columns from a block of lines ``name | TYPE | unit | meaning`` (unit ``-`` for none)."""
    rows = []
    for line in filter(str.strip, text.splitlines()):
        name, type_, unit, meaning = (part.strip() for part in line.split("|", 3))
        rows.append(Column(name, type_, None if unit == "-" else unit, meaning))
    return tuple(rows)
