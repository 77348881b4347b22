"""Predictions with an interval and a class of confidence, for curves of two to six points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from diagnose.analysis.scaling.interval import Noise, between_run_noise, log_ends, reach
from diagnose.analysis.scaling.table import from_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.ensemble import Curved
    from diagnose.analysis.scaling.table import Curve

Confidence = Literal["normal", "low", "none"]

NUMBER_RANGE = 2.0
INTERVAL_RANGE = 4.0
"""Up to twice the data a number with its interval, up to four times the interval, low confidence, beyond nothing."""


class Prediction(NamedTuple):
    """One predicted size. ``value`` and ``interval`` are in the unit of the curve; null when confidence is none."""

    gpus: int
    value: float | None
    interval: tuple[float, float] | None
    confidence: Confidence
    why: str


def predict(curve: Curve, curved: Curved, sizes: Sequence[int], *, doubt: bool) -> list[Prediction]:
    """Predict each size. ``doubt`` (a warning that concerns the fit) lowers the confidence by one class."""
    noise = between_run_noise(curved.points)
    return [_one(curve, curved, gpus, noise=noise, doubt=doubt) for gpus in sorted(set(sizes))]


def band(curve: Curve, curved: Curved, gpus: float) -> tuple[float, float, float] | None:
    """Value, low and high end of the interval at a size, for charts; null where no number is given."""
    if reach(curved, gpus) > INTERVAL_RANGE or not curved.rate(gpus) > 0:
        return None
    return _values(curve, curved, gpus, between_run_noise(curved.points))


def _one(curve: Curve, curved: Curved, gpus: int, *, noise: Noise, doubt: bool) -> Prediction:
    times = reach(curved, gpus)
    low, high = curved.points[0].gpus, curved.points[-1].gpus
    if times > INTERVAL_RANGE or (len(curved.points) < 2 and times > NUMBER_RANGE) or not curved.rate(gpus) > 0:
        limit = NUMBER_RANGE if len(curved.points) < 2 else INTERVAL_RANGE
        return Prediction(
            gpus,
            None,
            None,
            "none",
            f"more than {limit:.0f} times outside the comparable data ({low} to {high})",
        )
    value, bottom, top = _values(curve, curved, gpus, noise)
    reasons = []
    if times > NUMBER_RANGE:
        reasons.append(f"{times:.2g} times beyond the data: trust the interval, not the number")
    if len(curved.points) < 3:
        count = "one comparable point" if len(curved.points) == 1 else "two comparable points"
        reasons.append(f"{count} only: an estimate from the last efficiency, no fitted curve")
    if doubt:
        reasons.append("see the warnings")
    return Prediction(
        gpus, value, (bottom, top), "low" if reasons else "normal", "; ".join(reasons) or "within twice the data"
    )


def _values(curve: Curve, curved: Curved, gpus: float, noise: Noise) -> tuple[float, float, float]:
    """Value and ordered interval in the unit of the curve (for times, less is better: the ends swap)."""
    rate = curved.rate(gpus)
    rates = (rate, *(rate * math.exp(end) for end in log_ends(curved, gpus, noise)))
    value, *ends = (from_rate(r, gpus, curve.kind, curve.type) for r in rates)
    return value, min(ends), max(ends)
