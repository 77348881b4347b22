"""Shapes that no single job makes: flat stretches that recover, cells off by two, outliers, rising efficiency."""

from __future__ import annotations

import math
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.table import Point

FLAT_MARGINAL = 0.6
"""Below this marginal efficiency (a doubling buys < 52 %) a step may be a change of configuration ..."""

RECOVERED_MARGINAL = 0.85
"""... if a later step is back above this: the forms of a real job never turn so sharply upwards."""

RISE = 0.03
"""Efficiency rising by more than 3 % with the size: the configuration changed, or a point is wrong."""

FALL = 0.01
"""Throughput that falls by more than the 1 % between two equal runs falls; less is a plateau."""

OUTLIER = 0.05
"""A point more than 5 % off the line through the others is an outlier if the others lie on one."""

OUTLIER_CONTRAST = 0.4
"""... that is, if their largest residual is below this share of its own."""

FACTOR_TWO = 0.06
"""Within 6 % of a factor of two: half or double counting rather than physics."""


def marginal(before: Point, after: Point) -> float:
    """Measured d log rate / d log N between two points: 1 is free doubling, 0.5 buys 41 %."""
    return math.log(after.rate / before.rate) / math.log(after.gpus / before.gpus)


def efficiencies(points: Sequence[Point]) -> list[float]:
    """Rate per GPU relative to the smallest point."""
    first = points[0]
    return [point.rate / point.gpus / (first.rate / first.gpus) for point in points]


def last_break(points: Sequence[Point], is_tier_step: Sequence[bool]) -> int | None:
    """Index of the first point after the last configuration change, null when there is none.

    A change is a step that buys little, is no step into or inside the first tier, and is followed by one that scales
    again without regaining the efficiency lost (regaining it would make the point between an outlier).
    """
    steps = [marginal(a, b) for a, b in pairwise(points)]
    efficiency = efficiencies(points)
    for index in range(len(steps) - 2, -1, -1):
        recovers = max(steps[index + 1 :]) >= RECOVERED_MARGINAL
        regained = max(efficiency[index + 2 :]) > 0.9 * efficiency[index]
        if steps[index] < FLAT_MARGINAL and recovers and not regained and not is_tier_step[index]:
            return index + 1
    return None


def counting_error(points: Sequence[Point]) -> str | None:
    """Why the last point cannot be right: half or double of what its neighbours imply, or suddenly no growth."""
    if len(points) < 3:
        return None
    earlier = [marginal(a, b) for a, b in pairwise(points[:-1])]
    if min(earlier) < RECOVERED_MARGINAL:
        return None
    before, last = points[-2], points[-1]
    drop = math.log((last.rate / last.gpus) / (before.rate / before.gpus))
    for factor, word in ((0.5, "half"), (2.0, "double")):
        if abs(drop - math.log(factor)) <= FACTOR_TWO:
            return (
                f"about {word} of what {before.gpus} implies: a counting or copying error is likelier than "
                "physics; re-measure"
            )
    if abs(math.log(last.rate / before.rate)) <= OUTLIER / 2:
        return (
            f"no faster than {before.gpus} after nearly linear growth: a copying error is likelier than "
            "physics; re-measure"
        )
    return None


def outlier(points: Sequence[Point]) -> tuple[int, float] | None:
    """Index and relative deviation of the one inner point that lies off the line through the others."""
    if len(points) < 4:
        return None
    x = [math.log2(point.gpus) for point in points]
    y = [math.log(value) for value in efficiencies(points)]
    candidates = []
    for index in range(1, len(points) - 1):
        rest = [i for i in range(len(points)) if i != index]
        slope, offset = _line([x[i] for i in rest], [y[i] for i in rest])
        others = max(abs(y[i] - offset - slope * x[i]) for i in rest)
        own = y[index] - offset - slope * x[index]
        if abs(own) > OUTLIER and others < OUTLIER_CONTRAST * abs(own) and others < OUTLIER / 2:
            candidates.append((abs(own), index, math.expm1(own)))
    return max(candidates)[1:] if candidates else None


def largest_rise(points: Sequence[Point]) -> tuple[int, int, float]:
    """The pair of points over which efficiency rises most: indices and relative rise (0 when it never rises)."""
    efficiency = efficiencies(points)
    rises = [(late / early - 1, i, j) for (i, early), (j, late) in combinations(enumerate(efficiency), 2)]
    rise, i, j = max(rises, default=(0.0, 0, 0))
    return i, j, max(rise, 0.0)


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Least squares slope and offset."""
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((value - mean_x) ** 2 for value in x)
    slope = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    return slope, mean_y - slope * mean_x
