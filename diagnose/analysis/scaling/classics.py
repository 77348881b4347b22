"""Amdahl, USL and the power law, beside our fit for comparison, each with its pitfalls. Never the default.

Source: Amdahl, AFIPS 1967; Gunther, Guerrilla Capacity Planning, 2007: C(N) = N / (1 + sigma (N-1) + kappa N (N-1)).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.table import Point

KAPPA_Z = 1.645
"""The peak of USL is shown only when kappa's 90 % interval excludes 0."""

PEAK_RANGE = 2.0
"""... and when the peak lies within twice the largest size measured."""


class Classic(NamedTuple):
    """A classic law fitted to the same points. ``peak_gpus`` is USL's, when the data carry it."""

    name: str
    formula: str
    coefficients: dict[str, float]
    peak_gpus: float | None
    pitfall: str
    base_gpus: int
    base_rate: float

    def rate(self, gpus: float) -> float:
        """Work per second the law says."""
        n = gpus / self.base_gpus
        value = self.coefficients
        if self.name == "power law":
            return self.base_rate * value["scale"] * math.pow(n, value["exponent"])
        slowdown = 1 + value["sigma"] * (n - 1) + value.get("kappa", 0.0) * n * (n - 1)
        return self.base_rate * value["scale"] * n / slowdown


def classics(points: Sequence[Point]) -> list[Classic]:
    """Amdahl, USL (three points or more) and the power law; bounded least squares on log rate.

    Size is relative to the smallest point, so sigma and kappa are per multiple of that size.
    """
    if len(points) < 2:
        return []
    laws = [_universal(points, with_kappa=False)]
    if len(points) >= 3:
        laws.append(_universal(points, with_kappa=True))
    laws.append(_power(points))
    return laws


def _universal(points: Sequence[Point], *, with_kappa: bool) -> Classic:
    import numpy as np
    from scipy.optimize import least_squares

    first = points[0]
    n = np.array([point.gpus / first.gpus for point in points])
    log_rate = np.log([point.rate / first.rate for point in points])

    def residuals(theta: Any) -> Any:  # noqa: ANN401 - arrays of scipy, which has no types
        kappa = theta[2] if with_kappa else 0.0
        return theta[0] + np.log(n) - np.log1p(theta[1] * (n - 1) + kappa * n * (n - 1)) - log_rate

    count = 3 if with_kappa else 2
    lower = np.array([-np.inf, 0.0, 0.0])[:count]
    best = least_squares(residuals, _start(n, log_rate, count), bounds=(lower, np.inf))
    values = [float(value) for value in best.x]
    coefficients = {"scale": math.exp(values[0]), "sigma": values[1]}
    if not with_kappa:
        return Classic(
            "Amdahl",
            "X = N / (1 + sigma (N-1))",
            coefficients,
            None,
            "knows no cost that grows with the size; a tier change bends it far too low",
            first.gpus,
            first.rate,
        )
    coefficients["kappa"] = values[2]
    peak = _peak(best, values, len(points) - count, points)
    pitfall = (
        "three points fit exactly, so nothing tells its error"
        if len(points) == 3
        else "kappa cannot be told before the knee; one outlier or a tier change fakes a peak"
    )
    return Classic(
        "USL", "X = N / (1 + sigma (N-1) + kappa N (N-1))", coefficients, peak, pitfall, first.gpus, first.rate
    )


def _start(n: Any, log_rate: Any, count: int) -> Any:  # noqa: ANN401
    """Start of the fit: GPU-time per unit of work is linear in 1, sigma and kappa, so least squares give them."""
    import numpy as np
    from scipy.optimize import nnls

    tau = n / np.exp(log_rate)
    basis = np.stack([np.ones_like(n), n - 1, n * (n - 1)][:count], axis=1)
    found, _ = nnls(basis / tau[:, None], np.ones(len(n)))
    floor = max(float(found[0]), 1e-6)
    return np.array([-np.log(floor), *(found[1:] / floor + 1e-9)])


def _peak(result: Any, values: Sequence[float], freedom: int, points: Sequence[Point]) -> float | None:  # noqa: ANN401
    """USL's peak sqrt((1 - sigma) / kappa) in GPUs, only if kappa is significant and the peak near the data."""
    import numpy as np

    sigma, kappa = values[1], values[2]
    if freedom < 1 or kappa <= 0 or sigma >= 1:
        return None
    covariance = np.linalg.pinv(result.jac.T @ result.jac) * (2 * result.cost / freedom)
    if kappa - KAPPA_Z * math.sqrt(max(float(covariance[2, 2]), 0.0)) <= 0:
        return None
    peak = points[0].gpus * math.sqrt((1 - sigma) / kappa)
    return peak if peak <= PEAK_RANGE * points[-1].gpus else None


def _power(points: Sequence[Point]) -> Classic:
    import numpy as np

    first = points[0]
    exponent, offset = np.polyfit(
        np.log([point.gpus / first.gpus for point in points]), np.log([point.rate / first.rate for point in points]), 1
    )
    return Classic(
        "power law",
        "X = s N^p",
        {"scale": math.exp(float(offset)), "exponent": float(exponent)},
        None,
        "has no plateau: a loss that grows faster than a power is missed",
        first.gpus,
        first.rate,
    )
