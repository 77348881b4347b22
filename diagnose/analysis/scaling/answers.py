"""What a curve says: speed-up, efficiency, cost, where more stops helping, and the best size for a target."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling.predict import NUMBER_RANGE
from diagnose.analysis.scaling.words import sizes_word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.analysis.scaling.ensemble import Curved
    from diagnose.analysis.scaling.table import Point

EFFICIENCY_FLOOR = 0.8
"""Where parallel efficiency falls below 80 %, a fifth of the machine is lost."""

MARGINAL_FLOOR = 0.5
"""Below this, doubling the size buys less than 41 % more speed."""


class Measured(NamedTuple):
    """One measured size against the smallest one on the curve.

    ``marginal`` is d log rate / d log N from the point before (null for the first); ``gpu_hours_per_unit`` is the cost
    of one unit of work (token, sample), null where the unit is no work per time; ``cost_ratio`` is the same relative to
    the smallest size, always known.
    """

    gpus: int
    speedup: float
    ideal: float
    efficiency: float
    marginal: float | None
    cost_ratio: float
    gpu_hours_per_unit: float | None
    cost_per_unit: float | None


class Threshold(NamedTuple):
    """The size at which a floor is crossed.

    ``gpus`` within the data; else null, and ``expected_gpus`` where the fit expects it within twice the data.
    """

    floor: float
    gpus: float | None
    expected_gpus: float | None
    text: str


class Target(NamedTuple):
    """The best size for a deadline or a budget, or why there is none."""

    goal: str
    gpus: int | None
    hours: float | None
    cost: float | None
    text: str
    extrapolated: bool = False


def measured(points: Sequence[Point], *, seconds: float | None, cost_per_gpu_hour: float | None) -> list[Measured]:
    """Speed-up, efficiency, marginal efficiency and cost of every point; ``seconds`` is the time of the unit."""
    first = points[0]
    margins: list[float | None] = [None]
    margins += [math.log(b.rate / a.rate) / math.log(b.gpus / a.gpus) for a, b in pairwise(points)]
    rows = []
    for point, margin in zip(points, margins, strict=True):
        speedup, ideal = point.rate / first.rate, point.gpus / first.gpus
        hours = None if seconds is None else point.gpus * seconds / (point.rate * 3600)
        money = None if cost_per_gpu_hour is None or hours is None else hours * cost_per_gpu_hour
        rows.append(Measured(point.gpus, speedup, ideal, speedup / ideal, margin, ideal / speedup, hours, money))
    return rows


def efficiency_floor(curved: Curved, unit: str) -> Threshold:
    """Where efficiency, relative to the smallest size on the curve, falls below 80 %."""
    first = curved.points[0].gpus
    what = f"efficiency relative to {first} falls below 80 %"
    return _threshold(curved, curved.efficiency, EFFICIENCY_FLOOR, what, unit)


def plateau(curved: Curved, unit: str) -> Threshold:
    """Where doubling buys less than 41 %."""
    return _threshold(curved, curved.marginal, MARGINAL_FLOOR, "plateau (doubling buys less than 41 %)", unit)


def peak(curved: Curved, unit: str) -> Threshold:
    """Where more stops helping altogether."""
    return _threshold(curved, curved.marginal, 0.0, "more makes the job slower", unit)


def deadline_target(
    curved: Curved, *, hours: float, work: float, seconds: float, cost_per_gpu_hour: float | None
) -> Target:
    """The smallest (hence cheapest) size that does ``work`` units within ``hours``, within twice the data."""
    goal = f"{work:g} units of work within {hours:g} h"
    for gpus in _sizes(curved):
        needed = _hours(curved, gpus, work, seconds)
        if needed <= hours:
            return _reached(
                curved, goal, gpus, needed, cost_per_gpu_hour, "the smallest size, hence the cheapest, that makes it"
            )
    top = _sizes(curved)[-1]
    shortest = min(_hours(curved, gpus, work, seconds) for gpus in _sizes(curved))
    return Target(
        goal, None, None, None, f"not reachable up to {top} (twice the data): the shortest is {shortest:.3g} h"
    )


def budget_target(curved: Curved, *, budget: float, work: float, seconds: float, cost_per_gpu_hour: float) -> Target:
    """The fastest size that does ``work`` units for at most ``budget``, within twice the data."""
    goal = f"{work:g} units of work for at most {budget:g}"
    fits = []
    for gpus in _sizes(curved):
        hours = _hours(curved, gpus, work, seconds)
        if hours * gpus * cost_per_gpu_hour <= budget:
            fits.append((hours, gpus))
    if fits:
        hours, gpus = min(fits)
        return _reached(curved, goal, gpus, hours, cost_per_gpu_hour, "the fastest size that stays within the budget")
    first = curved.points[0].gpus
    least = _hours(curved, first, work, seconds) * first * cost_per_gpu_hour
    return Target(goal, None, None, None, f"not reachable: the smallest size measured, {first}, costs {least:.4g}")


def _reached(curved: Curved, goal: str, gpus: int, hours: float, price: float | None, why: str) -> Target:
    cost = None if price is None else hours * gpus * price
    outside = gpus > curved.points[-1].gpus
    text = f"{gpus}: {hours:.3g} h" + ("" if cost is None else f", cost {cost:.4g}") + f"; {why}"
    if outside:
        text += " (beyond the data, by the fit)"
    return Target(goal, gpus, hours, cost, text, extrapolated=outside)


def _hours(curved: Curved, gpus: int, work: float, seconds: float) -> float:
    return work / curved.rate(gpus) * seconds / 3600


def _sizes(curved: Curved) -> list[int]:
    """Sizes a job could have: multiples of the common divisor of the sizes measured, up to twice the largest."""
    step = math.gcd(*(point.gpus for point in curved.points))
    first, last = curved.points[0].gpus, int(curved.points[-1].gpus * NUMBER_RANGE)
    step = max(step, (last - first) // 4096 or 1)
    return list(range(first, last + 1, step))


def _threshold(curved: Curved, measure: Callable[[float], float], floor: float, what: str, scale: str) -> Threshold:
    low, high, unit = curved.points[0].gpus, curved.points[-1].gpus, sizes_word(scale)
    if len(curved.points) < 2:
        return Threshold(floor, None, None, f"{what}: not known from one comparable size")
    crossing = _crossing(measure, floor, low, high * NUMBER_RANGE)
    if crossing is not None and crossing <= high:
        return Threshold(floor, crossing, crossing, f"{what} at about {crossing:.0f} {unit}")
    missing = f"{what}: not reached in range ({low} to {high} {unit})"
    if crossing is None:
        return Threshold(floor, None, None, missing)
    return Threshold(floor, None, crossing, f"{missing}; the fit expects it near {crossing:.0f}")


def _crossing(measure: Callable[[float], float], floor: float, low: float, high: float) -> float | None:
    """First size, on a logarithmic grid refined by bisection, at which the measure is below the floor."""
    count = 256
    before = low
    for index in range(count + 1):
        size = low * math.pow(high / low, index / count)
        if measure(size) >= floor - 1e-12:
            before = size
            continue
        for _ in range(40):
            middle = math.sqrt(before * size)
            before, size = (middle, size) if measure(middle) >= floor else (before, middle)
        return size
    return None
