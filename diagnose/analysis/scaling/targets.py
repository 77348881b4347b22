"""The best size for a deadline or a budget, by the fit, within twice the data; and whether the interval is safe of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling.interval import between_run_noise, log_ends
from diagnose.analysis.scaling.predict import NUMBER_RANGE
from diagnose.analysis.scaling.words import amount, sizes_word, work_word

if TYPE_CHECKING:
    from diagnose.analysis.scaling.ensemble import Curved
    from diagnose.analysis.scaling.table import Curve


class Target(NamedTuple):
    """The best size for a deadline or a budget, or why there is none.

    ``interval_hours`` is the 90 % interval; ``sure_gpus`` is the size whose slow end still meets the goal, null where
    there is none.
    """

    goal: str
    gpus: int | None
    hours: float | None
    cost: float | None
    text: str
    extrapolated: bool = False
    interval_hours: tuple[float, float] | None = None
    sure_gpus: int | None = None


class _Option(NamedTuple):
    gpus: int
    hours: float
    fast: float
    slow: float

    def cost(self, price: float) -> float:
        return self.hours * self.gpus * price


def deadline_target(curve: Curve, curved: Curved, *, hours: float, work: float, price: float | None) -> Target:
    """The smallest (hence cheapest) size that does ``work`` units within ``hours``; price is per GPU-hour."""
    goal = f"{amount(work)} {work_word(curve.unit)} within {hours:g} h"
    options = _options(curve, curved, work)
    made = next((option for option in options if option.hours <= hours), None)
    sure = next((option for option in options if option.slow <= hours), None)
    if made is None:
        best = min(options, key=lambda option: option.hours)
        text = f"not reachable up to {options[-1].gpus} (twice the data): the shortest is {best.hours:.3g} h at {best.gpus}"
        return Target(goal, None, None, None, text)
    return _reached(curve, curved, goal, made, sure, price, "the smallest size, hence the cheapest, that makes it")


def budget_target(curve: Curve, curved: Curved, *, budget: float, work: float, price: float) -> Target:
    """The fastest size that does ``work`` units for at most ``budget``; price is per GPU-hour."""
    goal = f"{amount(work)} {work_word(curve.unit)} for at most {amount(budget)}"
    options = _options(curve, curved, work)
    affordable = [option for option in options if option.cost(price) <= budget]
    surely = [option for option in options if option.slow * option.gpus * price <= budget]
    if not affordable:
        least = options[0]
        text = f"not reachable: the smallest size measured, {least.gpus}, costs {amount(least.cost(price))}"
        return Target(goal, None, None, None, text)
    fastest = min(affordable, key=lambda option: (option.hours, option.gpus))
    sure = min(surely, key=lambda option: (option.hours, option.gpus), default=None)
    return _reached(curve, curved, goal, fastest, sure, price, "the fastest size that stays within the budget")


def _reached(
    curve: Curve, curved: Curved, goal: str, made: _Option, sure: _Option | None, price: float | None, why: str
) -> Target:
    cost = None if price is None else made.cost(price)
    outside = made.gpus > curved.points[-1].gpus
    text = f"{made.gpus} {sizes_word(curve.scale)}, {made.hours:.3g} h ({made.fast:.3g} to {made.slow:.3g} h)"
    text += ("" if cost is None else f", cost {amount(cost)}") + f"; {why}"
    if outside:
        text += " (beyond the data, by the fit)"
    if sure != made:
        text += "; the slow end of its interval does not: "
        text += f"{sure.gpus} is on the safe side" if sure else "no size up to twice the data is on the safe side"
    ends = (made.fast, made.slow)
    return Target(goal, made.gpus, made.hours, cost, text, outside, ends, sure.gpus if sure else None)


def _options(curve: Curve, curved: Curved, work: float) -> list[_Option]:
    """Sizes a job could have: multiples of the common divisor of the sizes measured, up to twice the largest."""
    step = math.gcd(*(point.gpus for point in curved.points))
    first, last = curved.points[0].gpus, int(curved.points[-1].gpus * NUMBER_RANGE)
    step = max(step, (last - first) // 4096 or 1)
    noise, found = between_run_noise(curved.points), []
    for gpus in range(first, last + 1, step):
        hours = work / curved.rate(gpus) * (curve.seconds or 1.0) / 3600
        low, high = log_ends(curved, gpus, noise)
        found.append(_Option(gpus, hours, hours * math.exp(-high), hours * math.exp(-low)))
    return found
