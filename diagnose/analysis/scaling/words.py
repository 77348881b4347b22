"""How sizes and shares are written in every sentence about scaling."""

from __future__ import annotations

_SCALES = {"gpus": "GPUs", "nodes": "nodes"}


def sizes_word(scale: str) -> str:
    """``GPUs`` or ``nodes``."""
    return _SCALES.get(scale, scale)


def percent(ratio: float, digits: int = 0) -> str:
    """``94.5 %``."""
    return f"{ratio * 100:.{digits}f} %"


def work_word(unit: str) -> str:
    """``tokens`` of ``tokens/s``; ``units of work`` where the unit does not tell."""
    word = unit.split("/")[0].strip()
    return word if "/" in unit and word else "units of work"


def amount(value: float) -> str:
    """Whole and grouped by thousands from 10 000 on, four significant digits below."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 9999.5 else f"{value:.4g}"
