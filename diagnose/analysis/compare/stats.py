"""Difference of two groups of runs: interval, p-value, equivalence, smallest effect that could have been seen.

Steps of one run share their run's luck, so a run counts once: pooled steps raise false alarms on 54-61 % of equal
pairs. With three runs a side Welch's t; with fewer, a between-run deviation learned from repeats or, failing that, a
stated one that counts as much as ``PRIOR_DF`` degrees of freedom.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

Method = Literal["welch", "pooled", "prior"]

PRIOR_SD = 0.01
"""Equal runs of one job differ by about 1 % (standard deviation) on dedicated hardware."""
PRIOR_DF = 8
"""How much the stated deviation weighs against repeats: one run a side then finds 3.3 %."""
WELCH_RUNS = 3
LEARNED_DF = 5
"""From six repeats on, their scatter replaces the stated one."""
SMALLEST_SD = 0.001
"""No job repeats better than this: copies of one run must not make every difference certain."""
ALPHA = 0.05
POWER = 0.8


class Sample(NamedTuple):
    """One value a run, and the error of each from its own few steps; all as ratios of one reference."""

    values: tuple[float, ...]
    errors: tuple[float, ...]


class Effect(NamedTuple):
    """New minus base. ``interval`` holds the truth with 95 %, ``equivalence`` with 90 %.

    ``smallest`` is the effect that these runs would have shown in 80 % of cases; ``sd`` the between-run deviation used.
    """

    change: float
    interval: tuple[float, float]
    equivalence: tuple[float, float]
    p_value: float
    method: Method
    sd: float
    df: float
    smallest: float

    @property
    def significant(self) -> bool:
        """Whether chance alone would do this in less than one of twenty comparisons."""
        return self.p_value < ALPHA

    def within(self, margin: float) -> bool:
        """Whether every change beyond the margin is ruled out (two one-sided tests)."""
        return -margin < self.equivalence[0] and self.equivalence[1] < margin


def difference(base: Sample, new: Sample, *, prior_sd: float = PRIOR_SD) -> Effect | None:
    """The effect between two groups of runs, None when a side has none."""
    before, after = np.asarray(base.values), np.asarray(new.values)
    if not len(before) or not len(after):
        return None
    change = float(after.mean() - before.mean())
    if min(len(before), len(after)) >= WELCH_RUNS:
        parts = [max(float(side.var(ddof=1)), SMALLEST_SD**2) / len(side) for side in (before, after)]
        df = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True))
        pooled = math.sqrt((float(before.var(ddof=1)) + float(after.var(ddof=1))) / 2)
        return _effect(change, math.sqrt(sum(parts)), df, "welch", pooled)
    variance, df, method = _variance(base, new, prior_sd)
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    return _effect(change, error, df, method, math.sqrt(variance))


def _variance(base: Sample, new: Sample, prior_sd: float) -> tuple[float, float, Method]:
    """Between-run variance with its degrees of freedom, where one side is too short to have its own."""
    sides = [np.asarray(side.values) for side in (base, new)]
    repeats = sum(len(side) - 1 for side in sides)
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    if repeats >= LEARNED_DF:
        return max(squares / repeats, SMALLEST_SD**2), repeats, "pooled"
    errors = np.asarray((*base.errors, *new.errors))
    stated = prior_sd**2 + float((errors**2).mean())
    return (PRIOR_DF * stated + squares) / (PRIOR_DF + repeats), PRIOR_DF + repeats, "prior"


def _effect(change: float, error: float, df: float, method: Method, sd: float) -> Effect:
    from scipy import special  # here: importing it takes longer than all the rest of a look at an idle inbox

    sure, side, power = (float(special.stdtrit(df, level)) for level in (1 - ALPHA / 2, 1 - ALPHA, POWER))
    ninety_five, ninety, smallest = sure * error, side * error, (sure + power) * error
    p_value = float(2 * special.stdtr(df, -abs(change) / error)) if error > 0 else float(change == 0)
    return Effect(
        change, (change - ninety_five, change + ninety_five), (change - ninety, change + ninety), p_value, method, sd, df, smallest
    )  # fmt: skip


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: at most 5 % of families with no change at all show one (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    worst = 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = worst
    return adjusted


def median_error(values: np.ndarray) -> float | None:
    """Standard error of the median of a few positive values relative to it, robust; None below three values."""
    if len(values) < 3:
        return None
    middle = float(np.median(values))
    if middle <= 0:
        return None
    return 1.2533 * 1.4826 * float(np.median(np.abs(values - middle))) / middle / math.sqrt(len(values))
