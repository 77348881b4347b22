"""How sizes and shares are written in every sentence about scaling."""

from __future__ import annotations

_SCALES = {"gpus": "GPUs", "nodes": "nodes"}


def sizes_word(scale: str) -> str:
    """``GPUs`` or ``nodes``."""
    return _SCALES.get(scale, scale)


def percent(ratio: float, digits: int = 0) -> str:
    """``94.5 %``."""
    return f"{ratio * 100:.{digits}f} %"
