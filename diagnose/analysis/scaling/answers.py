"""What a curve says: speed-up, efficiency, cost, and where more stops helping."""

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


AT_START = 1.01
"""A crossing within 1 % of the smallest size is there from the start: where before it, nothing tells."""


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


def _threshold(curved: Curved, measure: Callable[[float], float], floor: float, what: str, scale: str) -> Threshold:
    low, high, unit = curved.points[0].gpus, curved.points[-1].gpus, sizes_word(scale)
    if len(curved.points) < 2:
        return Threshold(floor, None, None, f"{what}: not known from one comparable size")
    crossing = _crossing(measure, floor, low, high * NUMBER_RANGE)
    if crossing is not None and crossing <= low * AT_START:
        return Threshold(floor, crossing, crossing, f"{what} from the smallest size on, {low} {unit}")
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
