"""The 90 % interval of a predicted rate, for curves of two to six points; wider below the prediction than above it.

Beyond the data two things are uncertain. Which mechanism goes on: each side reaches a share of the way from the
prediction to the farthest of {weak two-term, strong two-term, best case: efficiency persists}. And noise, added to it. The sides differ,
because surprises do: efficiency does not rise with the size, so persistence nearly bounds the rate from above, while a
new tier, a slow node or one more rank to wait for may set in below, unannounced. Residuals alone would mean nothing at
one to three degrees of freedom. Shares and noise are those of benchmarks/scaling_intervals.py, which also re-checks them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.scaling.ensemble import RUN_NOISE
from diagnose.analysis.scaling.fit import TERMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.ensemble import Curved
    from diagnose.analysis.scaling.fit import Fit
    from diagnose.analysis.scaling.table import Point

Z90 = 1.645
"""Two-sided 90 % of a normal distribution."""

REFUTED = 0.05
"""A form that misses a measured point by more than 5 % is not what goes on beyond the data."""

BETTER_STEP = 0.1
"""A step may do this much better, in marginal efficiency, than the best one before it: steps of one job differ so much."""

DRAWS = 500
"""Parametric bootstrap draws where the between-run noise is known."""

PRIOR_FREEDOM = 2
"""Repeats are few: the prior noise of 1 % counts like two degrees of freedom."""


class Side(NamedTuple):
    """One side of the interval: the share of the way to the farthest mechanism, and the noise of log rate."""

    share: float
    noise: float


class Width(NamedTuple):
    """Both sides beyond the data; the noise applies once at its end and once more per doubling."""

    below: Side
    above: Side


TABLE_WIDTH = Width(Side(0.4, RUN_NOISE), Side(0.8, 0.001))
"""Published tables, one number a size. What is above 0.1 % of noise is in the residuals and in persistence."""


class Noise(NamedTuple):
    """Relative standard deviation between runs and where it is known from; not ``measured`` is the prior."""

    ratio: float
    source: str
    measured: bool


def between_run_noise(points: Sequence[Point]) -> Noise:
    """From repeats, else from the step series of the runs, else the prior."""
    freedom = sum(len(point.repeats) - 1 for point in points if point.repeats)
    if freedom > 0:
        squares = 0.0
        for point in points:
            logs = [math.log(value) for value in point.repeats]
            mean = math.fsum(logs) / len(logs) if logs else 0.0
            squares += math.fsum((value - mean) ** 2 for value in logs)
        pooled = (squares + PRIOR_FREEDOM * RUN_NOISE**2) / (freedom + PRIOR_FREEDOM)
        return Noise(math.sqrt(pooled), f"repeats ({freedom} degrees of freedom, prior 1 %)", measured=True)
    known = [point.noise_ratio for point in points if point.noise_ratio is not None]
    if known:
        ratio = math.sqrt(math.fsum(value**2 for value in known) / len(known))
        return Noise(ratio, "step series of the runs", measured=True)
    return Noise(RUN_NOISE, "default for tables", measured=False)


def reach(curved: Curved, gpus: float) -> float:
    """How many times outside the data a size lies; 1 inside."""
    return max(gpus / curved.points[-1].gpus, curved.points[0].gpus / gpus, 1.0)


def log_ends(curved: Curved, gpus: float, noise: Noise, *, width: Width = TABLE_WIDTH) -> tuple[float, float]:
    """Both ends of the interval as log rate minus that of the prediction: one not above 0, one not below.

    Measured noise replaces that of tables on both sides. Inside the data, and below them, nothing bounds one side more
    than the other: the wider noise holds on both.
    """
    beyond = gpus > curved.points[-1].gpus
    middle = math.log(curved.rate(gpus))
    mechanisms = [fit.rate(gpus) for fit in curved.two_term if max(map(abs, fit.residuals)) <= REFUTED]
    if beyond or gpus < curved.points[0].gpus:
        mechanisms.append(_best_case(curved, gpus))
    logs = [math.log(value) for value in mechanisms if value > 0] + [middle]
    steps = 1 + math.log2(reach(curved, gpus))
    fitted = curved.residual_sd
    if noise.measured:
        fitted = math.hypot(fitted, _refit_sd(curved, gpus, noise.ratio))
    down = noise.ratio if noise.measured else width.below.noise
    up = width.above.noise if beyond and not noise.measured else down
    return (
        width.below.share * (min(logs) - middle) - Z90 * math.hypot(down * steps, fitted),
        width.above.share * (max(logs) - middle) + Z90 * math.hypot(up * steps, fitted),
    )


def _best_case(curved: Curved, gpus: float) -> float:
    """Rate if efficiency persists; where three points or more show a bend, if the best of their steps is repeated.

    Without it, the interval of a curve on its plateau would reach up to a doubling that no step of it has bought.
    """
    points = curved.points
    if len(points) < 3 or gpus <= points[-1].gpus:
        return curved.persist(gpus)
    best = max(math.log(b.rate / a.rate) / math.log(b.gpus / a.gpus) for a, b in pairwise(points))
    return points[-1].rate * math.pow(gpus / points[-1].gpus, min(best + BETTER_STEP, 1.0))


def _refit_sd(curved: Curved, gpus: float, ratio: float) -> float:
    """Standard deviation of the prediction over refits to noisy copies of the curve, weighted over its forms."""
    total = math.fsum(weight for _, weight in curved.parts)
    if total <= 0:
        return 0.0
    return math.sqrt(math.fsum(w * _form_sd(fit, curved.points, gpus, ratio) ** 2 for fit, w in curved.parts) / total)


def _form_sd(fit: Fit, points: Sequence[Point], gpus: float, ratio: float) -> float:
    import numpy as np

    sd = tuple(ratio / math.sqrt(max(len(point.repeats), 1)) for point in points)
    ends = _refits(fit, tuple(point.gpus for point in points), sd) @ np.array(_terms(fit, gpus))
    ends = ends[ends > 0]
    return float(np.std(np.log(ends))) if len(ends) > 1 else 0.0


@lru_cache(maxsize=16)
def _refits(fit: Fit, sizes: tuple[int, ...], sd: tuple[float, ...]) -> Any:  # noqa: ANN401 - an array
    """Coefficients refitted to noisy copies: non-negative least squares of relative residuals, equal to first order, and fast."""
    import numpy as np
    from scipy.optimize import nnls

    basis = np.array([_terms(fit, size) for size in sizes])
    tau = basis @ np.array(fit.coefficients)
    errors = np.random.default_rng(20_000).normal(0.0, 1.0, (DRAWS, len(sizes)))
    noisy = tau * np.exp(errors * np.array(sd))
    return np.array([nnls(basis / copy[:, None], np.ones(len(sizes)))[0] for copy in noisy])


def _terms(fit: Fit, gpus: float) -> list[float]:
    return [TERMS[name](gpus / fit.base_gpus) for name in fit.form.terms]
