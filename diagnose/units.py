"""Units and the only human formatting of numbers. Inside the code: integer nanoseconds, bytes, bytes/s, ratios."""

from __future__ import annotations

import math
import re

US = 1_000
MS = 1_000_000
S = 1_000_000_000
GB = 1_000_000_000
_PREFIXED = ("bit/s", "Hz")


_ROUNDED_UP = 0.9995
"""From here on three digits round to the next unit."""

_UNIT = re.compile(r"(?<=\d) (?=(?:%|x|[num]?s|[kMGT]?B(?:/s)?|GPU-hours)(?:\W|$))")


def glue_units(text: str, glue: str) -> str:
    """The text with the blank between a number and its unit replaced, so that no line breaks there."""
    return _UNIT.sub(glue, text)


def inside(sentence: str) -> str:
    """A sentence to go on with after a colon: its first letter small, except in abbreviations and names (TCP, RoCE, InfiniBand)."""
    first = sentence.split(" ", 1)[0]
    return sentence if first[1:] != first[1:].lower() else f"{sentence[:1].lower()}{sentence[1:]}"


def opening(text: str) -> str:
    """Words that begin a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def format_ns(value: float | None) -> str:
    """A duration in the unit a person would choose: ``1.25 s``, ``12.3 ms``, ``7.6 us``, ``12 ns``."""
    if value is None:
        return "n/a"
    size = abs(value)
    for limit, scale, unit in ((S, S, "s"), (MS, MS, "ms"), (US, US, "us")):
        if size >= _ROUNDED_UP * limit:  # 999.8 us print as 1.00 ms
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} ns"


def format_bytes(value: float | None) -> str:
    """Bytes with decimal prefixes, as nccl-tests counts them."""
    if value is None:
        return "n/a"
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= _ROUNDED_UP * limit:
            return f"{_three_digits(value / limit)} {unit}"
    return f"{value:.0f} B"


def format_rate(value: float | None) -> str:
    """Bytes per second, GB = 10^9 bytes."""
    return "n/a" if value is None else f"{format_bytes(value)}/s"


def format_ratio(value: float | None) -> str:
    """A ratio as a percentage with at most one decimal below ten."""
    if value is None or not math.isfinite(value):
        return "n/a"
    percent = value * 100
    return f"{percent:.1f} %" if abs(percent) < 9.95 else f"{percent:.0f} %"


def format_longer(ratio: float) -> str:
    """How much longer something takes, before what it is compared with: ``30 % longer than``, ``12 times as long as``."""
    return f"{format_ratio(ratio)} longer than" if ratio < 2 else f"{_three_digits(1 + ratio)} times as long as"


def format_count(value: float | None) -> str:
    """A count with thin separators."""
    return "n/a" if value is None else f"{value:,.0f}".replace(",", " ")


def format_value(value: object, unit: str | None) -> str:
    """A number with its unit, for evidence lines."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    known = {
        "ns": format_ns,
        "bytes": format_bytes,
        "bytes/s": format_rate,
        "ratio": format_ratio,
        "count": format_count,
    }
    if unit in known:
        return known[unit](value)
    if unit in _PREFIXED and 1_000 <= abs(value) < math.inf:
        return _prefixed(value, unit)
    return f"{value:g} {unit}" if unit else f"{value:g}"


def _prefixed(value: float, unit: str) -> str:
    """``100 Gbit/s``: decimal prefixes for units whose plain numbers have too many digits to read."""
    power = min(4, int(math.log10(abs(value)) // 3))
    return f"{_three_digits(value / 1000**power)} {'kMGT'[power - 1]}{unit}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
