"""Scaling tables in YAML or JSON: `unit` and `points`, a bare list of points, or several under `tables`."""

from __future__ import annotations

from typing import Any, Literal

from diagnose.errors import SourceError
from diagnose.ingest.scaling_table import Cell

EXAMPLE = "for example {unit: tokens/s, points: [{gpus: 8, value: 81222}, {gpus: 16, value: 161319}]}"


def yaml_cells(
    text: str, name: str, table: str | None
) -> tuple[list[str], list[Cell], Literal["weak", "strong", "unknown"], str | None]:
    """Header, rows, the scaling type stated and the unit, of one table.

    Raises:
        SourceError: not YAML, or no points in it.
    """
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SourceError(f"{name} is not YAML: {' '.join(str(error).split())[:200]}; {EXAMPLE}") from error
    if isinstance(content, dict) and "tables" in content:
        content = _one_of(content["tables"], name, table)
    if isinstance(content, list):
        content = {"points": content}
    if not isinstance(content, dict) or not isinstance(content.get("points"), list):
        raise SourceError(f"{name} has no list `points`: {EXAMPLE}")
    rows: list[Cell] = []
    for number, point in enumerate(content["points"], 1):
        rows += _cells(point, f"{name} point {number}")
    header = list(dict.fromkeys(column for row in rows for column in row.cells))
    unit = content.get("unit")
    return header, rows, _stated(content.get("scaling", content.get("type"))), None if unit is None else str(unit)


def _one_of(tables: Any, name: str, wanted: str | None) -> Any:  # noqa: ANN401 - parsed YAML has any type
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise SourceError(f"{name}: `tables` is no list of tables; {EXAMPLE}")
    if len(tables) == 1 and wanted is None:
        return tables[0]
    known = [str(item.get("id")) for item in tables]
    if wanted is None:
        raise SourceError(
            f"{name} holds {len(tables)} tables: choose one with --table ID, such as {', '.join(known[:3])}"
        )
    if wanted not in known:
        raise SourceError(
            f"{name} has no table {wanted!r}; it has {', '.join(known[:5])}{', ...' if len(known) > 5 else ''}"
        )
    return tables[known.index(wanted)]


def _cells(point: Any, place: str) -> list[Cell]:  # noqa: ANN401
    if not isinstance(point, dict):
        raise SourceError(f"{place} is {point!r}, not a mapping; {EXAMPLE}")
    lists = {key: value for key, value in point.items() if isinstance(value, list)}
    if not lists:
        return [Cell(place, {str(key): _text(value) for key, value in point.items()})]
    lengths = {len(value) for value in lists.values()}
    if len(lengths) > 1:
        raise SourceError(f"{place}: lists of different lengths; repeats need one value each")
    shared = {str(key): _text(value) for key, value in point.items() if key not in lists}
    return [
        Cell(
            place,
            {**shared, **{str(key): _text(value[index]) for key, value in lists.items()}, "repeat": str(index + 1)},
        )
        for index in range(lengths.pop())
    ]


def _text(value: Any) -> str:  # noqa: ANN401
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _stated(value: Any) -> Literal["weak", "strong", "unknown"]:  # noqa: ANN401
    word = str(value or "").strip().lower()
    if word.startswith("weak"):
        return "weak"
    return "strong" if word.startswith("strong") else "unknown"
