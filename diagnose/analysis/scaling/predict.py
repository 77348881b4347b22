"""Predictions with an interval and a class of confidence, for curves of two to six points.

Source: h = 1.645 sqrt((s (1 + log2 r))^2 + residual^2 + (spread / 2)^2) on log throughput, r = N / N_max; s = 0.5 %.
Where the between-run noise is known it replaces s, and the spread of refits to noisy copies of the curve is added in
the same way. Frozen on published tables, re-checked by benchmarks/scaling.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from diagnose.analysis.scaling.ensemble import RUN_NOISE, Curved
from diagnose.analysis.scaling.fit import TERMS, Fit
from diagnose.analysis.scaling.table import from_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.table import Curve, Point

Confidence = Literal["normal", "low", "none"]

Z90 = 1.645
"""Two-sided 90 % of a normal distribution."""

TABLE_NOISE = 0.005
"""s of published tables (medians of long runs), per doubling beyond the data and once at its end."""

PRIOR_FREEDOM = 2
"""Repeats are few: the prior noise of 1 % counts like two degrees of freedom."""

NUMBER_RANGE = 2.0
INTERVAL_RANGE = 4.0
"""Up to twice the data a number with its interval, up to four times the interval, low confidence, beyond nothing."""

DRAWS = 500
"""Parametric bootstrap draws where the between-run noise is known."""


class Prediction(NamedTuple):
    """One predicted size. ``value`` and ``interval`` are in the unit of the curve; null when confidence is none."""

    gpus: int
    value: float | None
    interval: tuple[float, float] | None
    confidence: Confidence
    why: str


def between_run_noise(points: Sequence[Point]) -> tuple[float, str]:
    """Relative standard deviation between runs, and where it is known from."""
    freedom = sum(len(point.repeats) - 1 for point in points if point.repeats)
    if freedom > 0:
        squares = 0.0
        for point in points:
            logs = [math.log(value) for value in point.repeats]
            mean = math.fsum(logs) / len(logs) if logs else 0.0
            squares += math.fsum((value - mean) ** 2 for value in logs)
        pooled = (squares + PRIOR_FREEDOM * RUN_NOISE**2) / (freedom + PRIOR_FREEDOM)
        return math.sqrt(pooled), f"repeats ({freedom} degrees of freedom, prior 1 %)"
    known = [point.noise_ratio for point in points if point.noise_ratio is not None]
    if known:
        return math.sqrt(math.fsum(value**2 for value in known) / len(known)), "step series of the runs"
    return TABLE_NOISE, "default for tables"


def predict(curve: Curve, curved: Curved, sizes: Sequence[int], *, doubt: bool) -> list[Prediction]:
    """Predict each size. ``doubt`` (a warning that concerns the fit) lowers the confidence by one class."""
    noise, source = between_run_noise(curved.points)
    return [
        _one(curve, curved, gpus, noise=noise, bootstrap=source != "default for tables", doubt=doubt)
        for gpus in sorted(set(sizes))
    ]


def band(curve: Curve, curved: Curved, gpus: float) -> tuple[float, float, float] | None:
    """Value, low and high end of the interval at a size, for charts; null where no number is given."""
    noise, _ = between_run_noise(curved.points)
    if _reach(curved, gpus) > INTERVAL_RANGE or not curved.rate(gpus) > 0:
        return None
    half = half_width(curved, gpus, noise=noise, bootstrap=False)
    return _values(curve, curved.rate(gpus), gpus, half)


def half_width(curved: Curved, gpus: float, *, noise: float, bootstrap: bool) -> float:
    """Half of the 90 % interval of log throughput."""
    reach = _reach(curved, gpus)
    outside = gpus > curved.points[-1].gpus or gpus < curved.points[0].gpus
    candidates = [fit.rate(gpus) for fit in curved.two_term] + [curved.rate(gpus)]
    if outside:
        candidates.append(curved.persist(gpus))
    logs = [math.log(value) for value in candidates if value > 0]
    fitted = curved.residual_sd
    if bootstrap and curved.parts:
        total = math.fsum(weight for _, weight in curved.parts)
        variance = math.fsum(w * _bootstrap_sd(fit, curved.points, gpus, noise) ** 2 for fit, w in curved.parts) / total
        fitted = math.hypot(fitted, math.sqrt(variance))
    terms = (noise * (1 + math.log2(reach)), fitted, 0.5 * (max(logs) - min(logs)))
    return Z90 * math.sqrt(math.fsum(term * term for term in terms))


def _one(curve: Curve, curved: Curved, gpus: int, *, noise: float, bootstrap: bool, doubt: bool) -> Prediction:
    reach = _reach(curved, gpus)
    low, high = curved.points[0].gpus, curved.points[-1].gpus
    if reach > INTERVAL_RANGE or (len(curved.points) < 2 and reach > NUMBER_RANGE) or not curved.rate(gpus) > 0:
        limit = NUMBER_RANGE if len(curved.points) < 2 else INTERVAL_RANGE
        return Prediction(
            gpus,
            None,
            None,
            "none",
            f"{gpus} is more than {limit:.0f} times outside the comparable data ({low} to {high})",
        )
    half = half_width(curved, gpus, noise=noise, bootstrap=bootstrap)
    value, bottom, top = _values(curve, curved.rate(gpus), gpus, half)
    reasons = []
    if reach > NUMBER_RANGE:
        reasons.append(f"{reach:.1f} times outside the data: trust the interval, not the number")
    if len(curved.points) < 3:
        count = "one comparable point" if len(curved.points) == 1 else "two comparable points"
        reasons.append(f"{count} only: an estimate from the last efficiency, no fitted curve")
    if doubt:
        reasons.append("see the warnings")
    return Prediction(
        gpus, value, (bottom, top), "low" if reasons else "normal", "; ".join(reasons) or "within twice the data"
    )


def _values(curve: Curve, rate: float, gpus: float, half: float) -> tuple[float, float, float]:
    """Value and ordered interval in the unit of the curve (for times, less is better: the ends swap)."""
    value, *ends = (
        from_rate(r, gpus, curve.kind, curve.type) for r in (rate, rate * math.exp(-half), rate * math.exp(half))
    )
    return value, min(ends), max(ends)


def _reach(curved: Curved, gpus: float) -> float:
    """How many times outside the data a size lies; 1 inside."""
    return max(gpus / curved.points[-1].gpus, curved.points[0].gpus / gpus, 1.0)


def _bootstrap_sd(fit: Fit, points: Sequence[Point], gpus: float, noise: float) -> float:
    """Standard deviation of log tau at a size over refits to noisy copies of the fitted curve.

    Refits are non-negative least squares of relative residuals: the same fit to first order, and fast.
    """
    import numpy as np
    from scipy.optimize import nnls

    generator = np.random.default_rng(20_000)
    basis = np.array([[TERMS[name](point.gpus / fit.base_gpus) for name in fit.form.terms] for point in points])
    target = np.array([TERMS[name](gpus / fit.base_gpus) for name in fit.form.terms])
    tau = basis @ np.array(fit.coefficients)
    sd = np.array([noise / math.sqrt(max(len(point.repeats), 1)) for point in points])
    ends = []
    for errors in generator.normal(0.0, 1.0, (DRAWS, len(points))):
        noisy = tau * np.exp(errors * sd)
        coefficients, _ = nnls(basis / noisy[:, None], np.ones(len(points)))
        end = float(target @ coefficients)
        if end > 0:
            ends.append(math.log(end))
    return float(np.std(ends)) if len(ends) > 1 else 0.0
