"""Which column of a scaling table holds what, from its header line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from diagnose.errors import SourceError
from diagnose.ingest import scaling_columns as words

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLE = "for example\n  gpus,value,unit\n  8,81222,tokens/s\n  16,161319,tokens/s\n  32,321403,tokens/s"


class Columns(NamedTuple):
    """Which column holds what; ``unit`` is the text of the header's unit, if it has one."""

    size: str
    value: str
    unit_column: str | None
    header_unit: str | None
    scale: Literal["gpus", "nodes"]
    names: dict[str, str]
    parts: dict[str, tuple[str, float]]
    step: tuple[str, float] | None


def find_columns(header: Sequence[str], name: str, *, has_unit: bool) -> Columns:
    """Say which column holds what; ``has_unit`` when the unit stands outside the rows.

    Raises:
        SourceError: no column for the size or the measurement, or two that could be it.
    """
    doubled = {column for column in header if column and header.count(column) > 1}
    if doubled:
        raise SourceError(f"{name}: column {sorted(doubled)[0]!r} appears twice: rename or remove one")
    plain = {words.normal(column): column for column in header if column}
    gpus = next((plain[word] for word in words.SIZES["gpus"] if word in plain), None)
    nodes = next((plain[word] for word in words.SIZES["nodes"] if word in plain), None)
    hosts = next((plain[word] for word in words.HOSTS if word in plain), None)
    scale: Literal["gpus", "nodes"] = "gpus" if gpus else "nodes"
    size = gpus or nodes or hosts
    if size is None:
        raise SourceError(
            f"{name}: no column says the size ({', '.join(header)}): name one `gpus` or `nodes`, {EXAMPLE}"
        )
    parts = {}
    for column in header:
        timed = words.time_suffix(column)
        base = (timed[0] if timed else words.normal(column)).removesuffix(" time")
        if base in words.PARTS:
            if timed is None:
                raise SourceError(
                    f"{name}: column {column!r} has no unit: name it {column}_ms, {column}_us or {column}_s"
                )
            parts[column] = (base.replace(" ", "_"), timed[1])
    step = next(
        (
            (column, timed[1])
            for column in header
            if (timed := words.time_suffix(column)) and timed[0] in words.STEP_TIMES
        ),
        None,
    )
    value = _value_column(header, plain, name, step, {size, *parts}, has_unit=has_unit)
    names = {
        key: plain[word]
        for key, options in (
            ("model", words.MODELS),
            ("global_batch", words.GLOBAL_BATCHES),
            ("local_batch", words.LOCAL_BATCHES),
            ("batch", words.BATCHES),
            ("repeat", words.REPEATS),
        )
        for word in options
        if word in plain and plain[word] not in (value, size)
    }
    if gpus and (beside := hosts or nodes):
        names["hosts"] = beside
    unit_column = next((plain[word] for word in words.UNITS if word in plain), None)
    return Columns(
        size,
        value,
        unit_column,
        words.header_unit(value),
        scale,
        names,
        parts,
        step if step and step[0] != value else None,
    )


def _value_column(
    header: Sequence[str],
    plain: dict[str, str],
    name: str,
    step: tuple[str, float] | None,
    taken: set[str],
    *,
    has_unit: bool,
) -> str:
    named = next((plain[word] for word in words.VALUES if word in plain), None)
    if named:
        return named
    rates = [
        column
        for column in header
        if column and column not in taken and (step is None or column != step[0]) and words.header_unit(column)
    ]
    if len(rates) > 1:
        raise SourceError(
            f"{name}: both {rates[0]!r} and {rates[1]!r} could be the value: keep one, or rename the one to use `value`"
        )
    if rates:
        return rates[0]
    if step is not None:
        return step[0]
    bare = next((plain[word] for word in words.STEP_TIMES if word in plain), None)
    if bare and (has_unit or any(word in plain for word in words.UNITS)):
        return bare
    if bare:
        raise SourceError(
            f"{name}: column {bare!r} has no unit: name it step_time_s or step_time_ms, or add a column `unit`"
        )
    raise SourceError(
        f"{name}: no column holds the measurement ({', '.join(header)}): name it `value` with a column `unit`, "
        f"{EXAMPLE}"
    )
