"""Fitting GPU-time per unit of work against the size: forms by scaling type, bounded and robust; the classics beside.

Source: weak scaling loses time to trees, latencies and the maximum over more ranks (log2 n) and to per-rank serial
work (n); strong scaling T = A/N + C + D log2 N. Amdahl 1967; USL: Gunther, Guerrilla Capacity Planning, 2007.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.analysis.scaling.table import Point

SOFT_L1_SCALE = 0.02
"""Residuals of log tau above 2 % count linearly, not quadratically: one bad point does not bend the curve."""

STARTS = (0.0, 0.02, 0.2)
"""Losses at n = 2 from which the optimiser starts; the best end is kept."""

TERMS: dict[str, Callable[[float], float]] = {
    "1": lambda _: 1.0,
    "log2 n": math.log2,
    "n - 1": lambda n: n - 1,
    "n log2 n": lambda n: n * math.log2(n),
}


class Form(NamedTuple):
    """A sum of non-negative terms in n = N / N0."""

    name: str
    terms: tuple[str, ...]
    formula: str


WEAK_2 = Form("weak-2", ("1", "log2 n"), "tau = a + b log2 n")
WEAK_3 = Form("weak-3", ("1", "log2 n", "n - 1"), "tau = a + b log2 n + c (n - 1)")
STRONG_2 = Form("strong-2", ("1", "n - 1"), "tau = a + c (n - 1), that is T = A/N + C")
STRONG_3 = Form(
    "strong-3", ("1", "n - 1", "n log2 n"), "tau = a + c (n - 1) + d n log2 n, that is T = A/N + C + D log2 N"
)


class Fit(NamedTuple):
    """A fitted form. ``residuals`` are of log tau, in the order of the points; ``rss`` is their sum of squares."""

    form: Form
    base_gpus: int
    base_rate: float
    coefficients: tuple[float, ...]
    residuals: tuple[float, ...]
    rss: float

    def tau(self, gpus: float) -> float:
        """GPU-time per unit of work, relative to the smallest size fitted: the inverse of the efficiency."""
        n = gpus / self.base_gpus
        return math.fsum(c * TERMS[name](n) for c, name in zip(self.coefficients, self.form.terms, strict=True))

    def rate(self, gpus: float) -> float:
        """Work per second at a size; not defined where tau falls to zero, below the smallest size."""
        tau = self.tau(gpus)
        return math.nan if tau <= 0 else self.base_rate * (gpus / self.base_gpus) / tau

    def marginal(self, gpus: float) -> float:
        """D log rate / d log N: 1 for free doubling, 0 where more GPUs stop helping, below where they harm."""
        step = 1.001
        return math.log(self.rate(gpus * step) / self.rate(gpus)) / math.log(step)

    @property
    def degrees_of_freedom(self) -> int:
        """Points beyond the coefficients."""
        return len(self.residuals) - len(self.coefficients)

    @property
    def residual_sd(self) -> float:
        """Standard deviation of the residuals of log tau; 0 when the form passes through every point."""
        return math.sqrt(self.rss / self.degrees_of_freedom) if self.degrees_of_freedom > 0 else 0.0


def fit_form(points: Sequence[Point], form: Form) -> Fit:
    """Fit one form: a > 0, others >= 0, soft-L1 on residuals of log tau, several starts.

    Raises:
        ValueError: fewer points than coefficients.
    """
    import numpy as np
    from scipy.optimize import least_squares

    if len(points) < len(form.terms):
        raise ValueError(f"{form.name} needs {len(form.terms)} points")
    n, log_tau = _relative(points)
    basis = np.array([[TERMS[name](value) for name in form.terms] for value in n])
    lower = np.array([1e-9] + [0.0] * (len(form.terms) - 1))

    def residuals(theta: object) -> object:
        return np.log(np.maximum(basis @ np.asarray(theta), 1e-12)) - np.array(log_tau)

    best = None
    for start in STARTS:
        guess = np.full(len(form.terms), max(start / max(len(form.terms) - 1, 1), 1e-6))
        guess[0] = 1.0 - start / 2
        result = least_squares(
            residuals, guess, bounds=(lower, np.inf), loss="soft_l1", f_scale=SOFT_L1_SCALE, x_scale="jac"
        )
        if best is None or result.cost < best.cost - 1e-15:
            best = result
    assert best is not None  # noqa: S101 - STARTS is not empty
    left = tuple(float(value) for value in np.asarray(residuals(best.x)))
    coefficients = tuple(float(value) for value in best.x)
    return Fit(form, points[0].gpus, points[0].rate, coefficients, left, math.fsum(value * value for value in left))


def _relative(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """N / N0 and log tau of each point."""
    first = points[0]
    n = [point.gpus / first.gpus for point in points]
    return n, [math.log(size * first.rate / point.rate) for size, point in zip(n, points, strict=True)]
