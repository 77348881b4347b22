"""A table as cells of text, and tables of free-form objects whose keys carry their unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.report.view import clean, ranges, shorten
from diagnose.units import format_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME_LENGTH = 60


class Column(NamedTuple):
    """Heading; ``number`` aligns right; ``wide`` is left out where there are only 80 columns; ``name`` is foreign."""

    title: str
    number: bool = False
    wide: bool = False
    name: bool = False


class Sheet(NamedTuple):
    """A table ready to print; ``left`` rows were cut from its end."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 0
    note: str = ""

    def narrow(self) -> Sheet:
        """Without the wide columns."""
        keep = [index for index, column in enumerate(self.columns) if not column.wide]
        rows = tuple(tuple(row[index] for index in keep) for row in self.rows)
        return self._replace(columns=tuple(self.columns[index] for index in keep), rows=rows)


def sheet(
    title: str, columns: tuple[Column, ...], rows: Sequence[tuple[str, ...]], limit: int, note: str = ""
) -> Sheet:
    """The first ``limit`` rows."""
    return Sheet(title, columns, tuple(rows[:limit]), max(0, len(rows) - limit), note)


def objects(title: str, value: Any, limit: int) -> Sheet:  # noqa: ANN401 - free-form JSON
    """A table of a list of objects, columns in order of appearance; series are for drawing and left out."""
    rows: Sequence[Mapping[str, Any]] = (
        [row for row in value if isinstance(row, dict)] if isinstance(value, (list, tuple)) else []
    )
    series = {key for row in rows for key in row if is_series(key, row[key])}
    keys = list(dict.fromkeys(key for row in rows for key in row if key not in series))[:12]
    numeric = {key for key in keys if any(isinstance(row.get(key), int | float) for row in rows)}
    columns = tuple(
        Column(clean(key).replace("_", " "), number=key in numeric, name=key not in numeric) for key in keys
    )
    return sheet(title, columns, [tuple(_cell(row.get(key), key) for key in keys) for row in rows], limit)


def mapping(title: str, value: Mapping[str, Any], limit: int) -> Sheet:
    """A free-form object as two columns."""
    rows = [(shorten(key, NAME_LENGTH), _cell(item, key)) for key, item in sorted(value.items())]
    return sheet(title, (Column("name", name=True), Column("value", name=True)), rows, limit)


def _cell(value: Any, key: str) -> str:  # noqa: ANN401 - free-form JSON
    if value is None:
        return "n/a"
    if isinstance(value, list | tuple):
        if key.endswith("ranks") and all(isinstance(item, int) for item in value):
            return ranges(value)
        return shorten(", ".join(clean(item) for item in value[:20]), NAME_LENGTH)
    for suffix, unit in (
        ("_ns", "ns"),
        ("_bytes_per_s", "bytes/s"),
        ("_bytes", "bytes"),
        ("_ratio", "ratio"),
        ("_count", "count"),
    ):
        if key.endswith(suffix):
            return format_value(value, unit)
    if isinstance(value, float):
        return format_value(round(value, 3), None)
    return shorten(value, NAME_LENGTH)


def is_series(key: str, value: object) -> bool:
    """Whether a value of a free-form row is a list of numbers over time."""
    if not isinstance(value, list | tuple) or len(value) < 3 or key.endswith("ranks"):
        return False
    return all(isinstance(item, int | float) for item in value)
