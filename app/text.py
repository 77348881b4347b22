"""Texts from runs made safe for Markdown, and numbers for tables: ns to ms, bytes/s to GB/s, labels with units."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import polars.selectors as cs

from diagnose.report.view import clean
from diagnose.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|$~^=:@&])")
_SHORTCODE = re.compile(r":(?=[\w/+-]+:)")
_ARGUMENTS = re.compile(r"(?<=[\w>])\([^()]*(?:\([^()]*\)[^()]*)*\)(?: const)?$")
_OPTION = re.compile(r"(?:^|\s)--?\w")
KERNEL_CHARACTERS = 54
_UNITS = (("_bytes_per_s", 1e-9, "GB/s"), ("_ns", 1e-6, "ms"), ("_ratio", 100.0, "%"))


def plain(text: object) -> str:
    """Text of a run as Markdown that shows exactly that text: no markup, no icon, no link comes out of a name."""
    return _SPECIAL.sub(r"\\\1", _SHORTCODE.sub(":\u2060", clean(text)))


def collect(text: str) -> str:
    """What to collect, as Markdown: a command stays as it is typed, since Markdown would make other dashes of its dashes."""
    return verbatim(text) if _OPTION.search(text) else plain(text)


def verbatim(text: str) -> str:
    """A command or a long name as Markdown, letter by letter in the font of code; a block of code would load a highlighter."""
    words = clean(text)
    return plain(words) if "`" in words else f"``{words}``"


def short_kernels(names: Sequence[str]) -> list[str]:
    """Kernel names that fit a table: without return type, arguments and the middle of long templates, still different."""
    short = [_short_kernel(name) for name in names]
    seen = Counter(short)
    return [clean(name) if seen[brief] > 1 else brief for name, brief in zip(names, short, strict=True)]


def _short_kernel(name: str) -> str:
    bare = _ARGUMENTS.sub("", clean(name).removeprefix("void "))
    if len(bare) <= KERNEL_CHARACTERS:
        return bare
    head = KERNEL_CHARACTERS * 2 // 3
    return f"{bare[:head]}…{bare[head + 1 - KERNEL_CHARACTERS :]}"


def label(column: str) -> str:
    """``transfer_ns`` becomes ``transfer (ms)``."""
    for ending, _, unit in _UNITS:
        if column.endswith(ending):
            return f"{column.removesuffix(ending).replace('_', ' ')} ({unit})"
    if column.endswith("_bytes") or column == "bytes":
        return column.replace("_bytes", " size").replace("_", " ")
    return column.replace("_", " ")


def in_units(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers in the units of the labels."""
    changed = []
    for name in frame.select(cs.numeric()).columns:
        for ending, factor, _ in _UNITS:
            if name.endswith(ending):
                changed.append((pl.col(name) * factor).alias(name))
                break
    return frame.with_columns(changed).with_columns(cs.string().fill_null(""))


def time_unit(longest_ns: float | None) -> tuple[float, str]:
    """Divisor and name of the unit in which a chart shows times up to this one."""
    unit = format_ns(longest_ns or 0).rsplit(" ", 1)[-1]
    return {"s": 1e9, "ms": 1e6, "us": 1e3}.get(unit, 1.0), {"us": "µs"}.get(unit, unit)
