"""Reading scaling tables: CSV in its many spellings, and YAML (or JSON). Every error says what, where, and what to do.

Grain: one row per size and repeat. Numbers stay in the unit named; parts and step times become nanoseconds.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from diagnose.errors import SourceError
from diagnose.ingest import scaling_columns as words
from diagnose.ingest.scaling_header import EXAMPLE, Columns, find_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from diagnose.ingest.scaling_columns import Unit

MAX_BYTES = 10_000_000
"""A scaling table is a few lines; anything above 10 MB is another kind of file."""


class ScalingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. ``place`` is for messages: file and line."""

    place: str
    gpus: int
    value: float
    repeat: str | None = None
    hosts: int | None = None
    model: str | None = None
    global_batch: float | None = None
    local_batch: float | None = None
    step_ns: float | None = None
    noise_ratio: float | None = None
    parts_ns: dict[str, float] = {}


class ScalingTable(NamedTuple):
    """A table as read: rows in file order, the unit, whether sizes are GPUs or nodes, a type the file states, notes."""

    rows: tuple[ScalingRow, ...]
    unit: Unit
    scale: Literal["gpus", "nodes"]
    stated_type: Literal["weak", "strong", "unknown"]
    notes: tuple[str, ...]


class Cell(NamedTuple):
    """The cells of one row by column, and where it stands."""

    place: str
    cells: dict[str, str]


def read_table(path: Path, *, table: str | None = None) -> ScalingTable:
    """Read a table file; ``table`` chooses one of several in a YAML file by its id.

    Raises:
        SourceError: the file cannot be read, or a line of it not understood.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SourceError(
                f"{path} is larger than {MAX_BYTES // 1_000_000} MB: this is no scaling table; expected a few "
                f"lines, {EXAMPLE}"
            )
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}; give a CSV or YAML table, or run stores") from error
    return read_text(decode(data, path.name), path.name, table=table)


def decode(data: bytes, name: str) -> str:
    """Text of a table: UTF-8, with or without a byte-order mark, or UTF-16 with one.

    Raises:
        SourceError: binary content.
    """
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{name} is not text (byte {error.start}): give a CSV or YAML table in UTF-8, {EXAMPLE}"
        ) from error
    if "\x00" in text:
        raise SourceError(f"{name} is binary: give a CSV or YAML table in UTF-8, {EXAMPLE}")
    return text


def read_text(text: str, name: str, *, table: str | None = None) -> ScalingTable:
    """Read a table from text; ``name`` is for messages and, by its ending, tells YAML from CSV.

    Raises:
        SourceError: a line is not understood.
    """
    if name.lower().endswith((".yaml", ".yml", ".json")):
        from diagnose.ingest.scaling_yaml import yaml_cells

        header, rows, stated, unit = yaml_cells(text, name, table)
    else:
        header, rows = _csv_cells(text, name)
        stated, unit = "unknown", None
    return _table(header, rows, name, stated, unit)


def _csv_cells(text: str, name: str) -> tuple[list[str], list[Cell]]:
    numbered = ((number, re.sub(r"\s+#.*$", "", line)) for number, line in enumerate(text.splitlines(), 1))
    lines = [(number, line) for number, line in numbered if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise SourceError(f"{name} is empty: expected a header and one line per size, {EXAMPLE}")
    first = lines[0][1]
    separator = max("\t;|,", key=lambda char: first.count(char)) if any(char in first for char in "\t;|,") else None
    split = _splitter(separator)
    header = [cell.strip() for cell in split(first)]
    if all(words.read_number(cell) is not None for cell in header[:2]):
        raise SourceError(f"{name} line {lines[0][0]}: no header: the first line must name the columns, {EXAMPLE}")
    rows = []
    for number, line in lines[1:]:
        cells = [cell.strip() for cell in split(line)]
        if all(re.fullmatch(r":?-{2,}:?", cell) for cell in cells if cell):
            continue
        while len(cells) > len(header) and not cells[-1]:
            cells.pop()
        if len(cells) > len(header):
            raise SourceError(
                f"{name} line {number}: {len(cells)} fields, the header has {len(header)}: put quotes around "
                "numbers with thousands "
                "separators, or separate columns with semicolons"
            )
        rows.append(Cell(f"{name} line {number}", dict(zip(header, cells, strict=False))))
    return header, rows


def _splitter(separator: str | None) -> Callable[[str], list[str]]:
    if separator is None:
        return str.split
    if separator == "|":
        return lambda line: line.strip().strip("|").split("|")
    return lambda line: next(csv.reader([line], delimiter=separator, skipinitialspace=True))


def _table(
    header: Sequence[str],
    rows: Sequence[Cell],
    name: str,
    stated: Literal["weak", "strong", "unknown"],
    unit: str | None,
) -> ScalingTable:
    columns = find_columns(header, name, has_unit=unit is not None)
    if not rows:
        raise SourceError(f"{name} has a header but no rows: expected one line per size, {EXAMPLE}")
    meaning = words.read_unit(_unit(columns, rows, name, unit))
    comma = words.uses_decimal_comma([row.cells.get(columns.value, "") for row in rows])
    read = tuple(_row(row, columns, decimal_comma=comma) for row in rows)
    notes = (
        [] if meaning.known else [f"unit {meaning.label!r} is not known: read as a throughput, the larger the better"]
    )
    if comma:
        notes.append("commas in the values are read as decimal points")
    sizes = [row.gpus for row in read]
    if sizes != sorted(sizes):
        notes.append(f"rows were not in order of {columns.scale}: sorted")
    if "batch" in columns.names:
        read, note = _plain_batch(read, rows, columns)
        notes.append(note)
    return ScalingTable(read, meaning, columns.scale, stated, tuple(notes))


def _unit(columns: Columns, rows: Sequence[Cell], name: str, unit: str | None) -> str:
    if columns.unit_column is not None:
        found = {row.cells.get(columns.unit_column, "").strip(): row.place for row in reversed(rows)}
        if len(found) > 1 and "" in found:
            raise SourceError(f"{found['']}: no unit; write it in every line (tokens/s, samples/s, s per step)")
        if len(found) > 1:
            units = sorted(found)
            raise SourceError(
                f"{name}: two units, {units[0]!r} and {units[1]!r} ({found[units[1]]}): one curve has one unit; "
                "convert one of them"
            )
        unit = next(iter(found)) or None
    unit = unit or columns.header_unit
    if unit is None or words.read_number(unit) is not None:
        raise SourceError(
            f"{name}: the values have no unit, so nothing tells whether larger is better: add a column `unit` "
            "(tokens/s, samples/s, "
            f"ms per step), or write it in the header as in `tokens/s`, {EXAMPLE}"
        )
    return (
        unit
        if not re.fullmatch(r"step[ _]?time", columns.value.strip().lower()) or "step" in unit.lower()
        else f"{unit} per step"
    )


def _row(row: Cell, columns: Columns, *, decimal_comma: bool) -> ScalingRow:
    def number(column: str, what: str, *, comma: bool = False) -> float:
        text = row.cells.get(column, "")
        found = words.read_number(text, decimal_comma=comma)
        if found is None:
            said = f"{text!r} is not a number" if text else "nothing stands there"
            raise SourceError(
                f"{row.place}: {what} (column {column!r}): {said}; write digits only, the unit belongs into its "
                "own column or the header"
            )
        return found

    size = number(columns.size, columns.scale)
    if size != int(size):
        raise SourceError(f"{row.place}: {columns.scale} is {size:g}; a size is a whole number")
    names = columns.names
    optional = {
        key: number(names[key], key)
        for key in ("global_batch", "local_batch", "hosts")
        if key in names and row.cells.get(names[key])
    }
    hosts = optional.pop("hosts", None)
    return ScalingRow(
        place=row.place,
        gpus=int(size),
        value=number(columns.value, "value", comma=decimal_comma),
        repeat=(row.cells.get(names["repeat"]) or None) if "repeat" in names else None,
        hosts=int(hosts) if hosts else None,
        model=(row.cells.get(names["model"]) or None) if "model" in names else None,
        global_batch=optional.get("global_batch"),
        local_batch=optional.get("local_batch"),
        step_ns=number(columns.step[0], "step time") * columns.step[1]
        if columns.step and row.cells.get(columns.step[0])
        else None,
        parts_ns={
            part: number(column, part) * scale
            for column, (part, scale) in columns.parts.items()
            if row.cells.get(column)
        },
    )


def _plain_batch(
    read: tuple[ScalingRow, ...], rows: Sequence[Cell], columns: Columns
) -> tuple[tuple[ScalingRow, ...], str]:
    """A column `batch` is global when it grows with the size; when constant it may be either, and nothing follows."""
    values = [words.read_number(row.cells.get(columns.names["batch"], "")) for row in rows]
    pairs = [(row.gpus, value) for row, value in zip(read, values, strict=True) if value]
    per_gpu = {round(value / gpus, 6) for gpus, value in pairs}
    if len(pairs) == len(read) and len(per_gpu) == 1 and len({gpus for gpus, _ in pairs}) > 1:
        grown = (msgspec.structs.replace(row, global_batch=value) for row, value in zip(read, values, strict=True))
        return tuple(grown), "column `batch` grows with the size: read as the global batch"
    if len({value for _, value in pairs}) == 1:
        question = "column `batch` is constant: global (strong scaling) or per GPU (weak)?"
        return read, f"{question} Name it global_batch or batch_per_gpu"
    changed = (msgspec.structs.replace(row, local_batch=value) for row, value in zip(read, values, strict=True))
    return tuple(changed), "column `batch` differs without growing with the size: read as the batch per GPU"
