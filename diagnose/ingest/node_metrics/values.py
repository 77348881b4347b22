"""Numbers as tools print them: null words, sentinels, units, yes and no."""

from __future__ import annotations

import re

NULL_WORDS = frozenset(
    {
        "",
        "n/a",
        "[n/a]",
        "na",
        "-",
        "--",
        "nan",
        "none",
        "null",
        "not supported",
        "[not supported]",
        "[unknown error]",
        "unknown error",
        "[insufficient permissions]",
        "insufficient permissions",
        "[requested functionality has been deprecated]",
        "requested functionality has been deprecated",
        "n/a (no pma)",
        "<<<null>>>",
        "<<<not_found>>>",
        "<<<not_supported>>>",
        "<<<not_perm>>>",
        "[gpu is lost]",
        "unknown",
        "not_set",
    }
)
"""Words that mean unknown, lower case; none of them means zero."""

DCGM_BLANKS = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328.0)
"""First blank of int32, int64 and double (dcgm_structs.h); up to 15 above them mean not found, not supported, ..."""

DCGM_BLANK_SPAN = 16
UINT_MAX = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFF)
"""AMD's not-available values of 32, 64 and 16 bit fields."""

UNIT_SCALE: dict[str, float] = {
    "hz": 1.0,
    "khz": 1e3,
    "mhz": 1e6,
    "ghz": 1e9,
    "w": 1.0,
    "mw": 1e-3,
    "uw": 1e-6,
    "j": 1.0,
    "mj": 1e-3,
    "uj": 1e-6,
    "%": 0.01,
    "mib": 1048576.0,
    "kib": 1024.0,
    "gib": 1073741824.0,
    "mb": 1e6,
    "b": 1.0,
    "kb/s": 1e3,
    "mb/s": 1e6,
    "gb/s": 1e9,
    "us": 1e-6,
    "ms": 1e-3,
    "ns": 1e-9,
    "s": 1.0,
    "c": 1.0,
    "°c": 1.0,
}
"""Factor of a printed unit to the canonical one. KB/s is taken as 1000 bytes: nvidia-smi does not say."""

_NUMBER = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$")


def is_null(text: str) -> bool:
    """Whether the text stands for an unknown value."""
    return text.strip().lower() in NULL_WORDS


def is_blank_number(value: float) -> bool:
    """Whether a number is one of DCGM's blanks."""
    return any(blank <= value < blank + DCGM_BLANK_SPAN for blank in DCGM_BLANKS) or value >= DCGM_BLANKS[1]


def is_uint_max(value: float) -> bool:
    """Whether a number is all-ones of an unsigned type, AMD's word for unsupported."""
    return value in UINT_MAX or value >= float(UINT_MAX[1])


def split_unit(text: str) -> tuple[float | None, str]:
    """The number at the start of a text and the unit behind it; the number is None for null words and other text.

    Hexadecimal bit masks are numbers, ``16x`` and ``x16`` are lane counts without a unit.
    """
    cleaned = text.strip().strip('"')
    if is_null(cleaned):
        return None, ""
    if cleaned.lower().startswith("0x"):
        try:
            return float(int(cleaned, 16)), ""
        except ValueError:
            return None, ""
    if cleaned[:1] in "xX" and cleaned[1:].isdigit():
        return float(cleaned[1:]), ""
    match = _NUMBER.match(cleaned)
    if match is None:
        return None, ""
    unit = match.group(2)
    return float(match.group(1)), "" if unit.lower() == "x" else unit


def to_number(text: str, default_scale: float = 1.0) -> float | None:
    """A printed value in canonical units: its own unit wins, else ``default_scale``."""
    number, unit = split_unit(text)
    if number is None:
        return None
    return _scaled(number, UNIT_SCALE.get(unit.lower(), default_scale) if unit else default_scale)


def to_flag(text: str) -> float | None:
    """1 for yes, active, enabled and true; 0 for no, not active, disabled and false; None for anything else."""
    word = text.strip().lower()
    if word in ("yes", "active", "enabled", "true", "1", "on"):
        return 1.0
    if word in ("no", "not active", "disabled", "false", "0", "off"):
        return 0.0
    return None


def _scaled(number: float, scale: float) -> float:
    """``number * scale`` without the rounding noise of small factors (204642816 us is 204.642816 s)."""
    if 0 < scale < 1:
        inverse = 1 / scale
        if abs(inverse - round(inverse)) < 1e-9 * inverse:
            return number / round(inverse)
    return number * scale
