"""The curve that answers come from: which forms, and how much each counts, by scaling type and number of points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling.fit import STRONG_2, STRONG_3, WEAK_2, WEAK_3, Fit, fit_form
from diagnose.analysis.scaling.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.table import Point, ScalingType

RUN_NOISE = 0.01
"""Prior between-run standard deviation of throughput, 1 %: how far a form may miss the points and be as likely."""

TWO_POINT_SHARE = 0.5
"""Between two points a real slope, a step to another tier and noise look alike: half of the loss is taken to go on."""


class Curved(NamedTuple):
    """The chosen curve: a geometric mean of fits, and of "the last efficiency persists" with the rest of the weight.

    ``two_term`` are the weak and the strong two-term forms, always fitted (two points or more): they span the interval.
    """

    points: tuple[Point, ...]
    parts: tuple[tuple[Fit, float], ...]
    two_term: tuple[Fit, ...]

    @property
    def label(self) -> str:
        """Names of the forms with their weights."""
        if not self.parts:
            return "persist"
        named = [
            f"{fit.form.name}" if weight > 0.995 else f"{fit.form.name} ({percent(weight)})"
            for fit, weight in self.parts
        ]
        rest = 1 - math.fsum(weight for _, weight in self.parts)
        return " with ".join([*named, *([f"persist ({percent(rest)})"] if rest > 0.005 else [])])

    @property
    def chief(self) -> Fit | None:
        """The form of the largest weight."""
        return max(self.parts, key=lambda part: part[1])[0] if self.parts else None

    def persist(self, gpus: float) -> float:
        """Rate if the efficiency of the nearest end of the data persists."""
        end = self.points[-1] if gpus >= self.points[0].gpus else self.points[0]
        return end.rate * gpus / end.gpus

    def rate(self, gpus: float) -> float:
        """Work per second at a size; NaN where the forms are not defined (far below the data)."""
        if not self.parts:
            return self.persist(gpus)
        weights = [weight for _, weight in self.parts]
        logs = []
        for fit, _ in self.parts:
            value = fit.rate(gpus)
            if not value > 0:
                return math.nan
            logs.append(math.log(value))
        rest = 1 - math.fsum(weights)
        if rest > 0 and gpus > self.points[-1].gpus:
            weights.append(rest)
            logs.append(math.log(self.persist(gpus)))
        return math.exp(math.fsum(w * v for w, v in zip(weights, logs, strict=True)) / math.fsum(weights))

    def efficiency(self, gpus: float) -> float:
        """Rate per GPU relative to the smallest point used."""
        first = self.points[0].gpus
        return (self.rate(gpus) / gpus) / (self.rate(first) / first)

    def marginal(self, gpus: float) -> float:
        """D log rate / d log N just above a size: 0.5 means that doubling buys 41 %."""
        step = 1.002
        return math.log(self.rate(gpus * step) / self.rate(gpus)) / math.log(step)

    @property
    def residual_sd(self) -> float:
        """Standard deviation of the residuals, weighted over the forms; 0 without degrees of freedom."""
        total = math.fsum(weight for _, weight in self.parts)
        return math.sqrt(math.fsum(w * fit.residual_sd**2 for fit, w in self.parts) / total) if total else 0.0

    @property
    def largest_residual(self) -> tuple[int, float]:
        """Size and log residual (measured GPU-time below the fit is positive) of the worst point of the chief form."""
        if self.chief is None:
            return self.points[0].gpus, 0.0
        return max(
            ((point.gpus, left) for point, left in zip(self.points, self.chief.residuals, strict=True)),
            key=lambda item: abs(item[1]),
        )


def choose(points: Sequence[Point], scaling: ScalingType) -> Curved:
    """The curve for the points on it, by type.

    weak: weak-2, from four points weak-3 beside it; strong: strong-2, from four points strong-3 beside it; unknown:
    both two-term forms. Several forms share by Akaike weights, exp(-RSS / (2 s^2) - coefficients) with a noise s of
    1 %: a third term is carried by the last point alone and must earn its place. Two points: the two-term form (weak
    where unknown) and persistence, half each. One point: persistence.

    Source: Burnham and Anderson, Model Selection, 2002.

    Raises:
        ValueError: no points.
    """
    if not points:
        raise ValueError("no points to fit")
    if len(points) == 1:
        return Curved(tuple(points), (), ())
    weak, strong = fit_form(points, WEAK_2), fit_form(points, STRONG_2)
    pair = (weak, strong)
    if len(points) == 2:
        return Curved(tuple(points), ((strong if scaling == "strong" else weak, TWO_POINT_SHARE),), pair)
    return Curved(tuple(points), _weighted(_forms(points, scaling, weak, strong)), pair)


def _forms(points: Sequence[Point], scaling: ScalingType, weak: Fit, strong: Fit) -> list[Fit]:
    if scaling == "unknown":
        return [weak, strong]
    short, long = (strong, STRONG_3) if scaling == "strong" else (weak, WEAK_3)
    return [short, fit_form(points, long)] if len(points) >= len(long.terms) + 1 else [short]


def _weighted(fits: Sequence[Fit]) -> tuple[tuple[Fit, float], ...]:
    costs = [fit.rss / (2 * RUN_NOISE**2) + len(fit.coefficients) for fit in fits]
    shares = [math.exp(min(costs) - cost) for cost in costs]
    total = math.fsum(shares)
    return tuple((fit, share / total) for fit, share in zip(fits, shares, strict=True))
