"""The verdict: slower, faster, no change beyond the margin, or too uncertain to say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diagnose.analysis.compare.result import Change, Outcome
from diagnose.analysis.compare.stats import Effect, Sample, difference
from diagnose.units import format_ns, format_ratio

if TYPE_CHECKING:
    from diagnose.analysis.compare.parts import Context


def judge(context: Context, margin: float) -> Outcome:
    """Compare logarithms of the runs' median steps.

    A change that is certain but within the margin is none that matters: equivalence is looked at first.
    """
    base = Sample(tuple(math.log(run.time) for run in context.base), tuple(run.error for run in context.base))
    new = Sample(tuple(math.log(run.time) for run in context.new), tuple(run.error for run in context.new))
    effect = difference(base, new, prior_sd=context.prior_sd)
    if effect is None:
        raise ValueError("a side has no runs")
    change: Change
    if effect.within(math.log1p(margin)):
        change = "equivalent"
    elif effect.significant:
        change = "regression" if effect.change > 0 else "improvement"
    else:
        change = "inconclusive"
    low, high = (math.expm1(end) for end in effect.interval)
    unit = context.base[0].unit
    return Outcome(
        change=change, text=_text(change, effect, margin, unit), effect_ratio=math.expm1(effect.change), interval=(low, high),
        equivalence_interval=(math.expm1(effect.equivalence[0]), math.expm1(effect.equivalence[1])), margin_ratio=margin, bound_ratio=bound(effect), p_value=effect.p_value,
        smallest_effect_ratio=math.expm1(effect.smallest), method=effect.method, between_run_sd_ratio=effect.sd,
        base_ns=math.exp(sum(base.values) / len(base.values)), new_ns=math.exp(sum(new.values) / len(new.values)), unit=unit,
        measured_from=context.base[0].measured_from, detail=_detail(context, effect),
    )  # fmt: skip


def _text(change: Change, effect: Effect, margin: float, unit: str) -> str:
    ratio = math.expm1(effect.change)
    low, high = (math.expm1(end) for end in effect.interval)
    per = "step" if unit == "step" else f"device time per {unit.removesuffix('s')}"
    spread = f"95 % interval {signed(low)} to {signed(high)}"
    if change == "equivalent":
        ends = " to ".join(signed(math.expm1(end)) for end in effect.equivalence)
        return f"No change beyond {format_ratio(margin)}: the {per} differs by {signed(ratio)} (90 % interval {ends})."
    if change == "inconclusive":
        return (
            f"No change shown: the {per} differs by {signed(ratio)}, {spread}. A change beyond {format_ratio(bound(effect))} is ruled out; "
            f"these runs would show one of {format_ratio(math.expm1(effect.smallest))} or more."
        )
    word = "slower" if change == "regression" else "faster"
    size = ratio if change == "regression" else -ratio
    return f"{format_ratio(size)} {word} ({per} time {signed(ratio)}, {spread})."


def bound(effect: Effect) -> float:
    """The smallest margin beyond which a change is ruled out (90 % interval)."""
    return max(-math.expm1(effect.equivalence[0]), math.expm1(effect.equivalence[1]))


def signed(ratio: float) -> str:
    """A change in percent with its sign, which what is printed as zero does not have."""
    size = format_ratio(abs(ratio))
    sign = "" if size == format_ratio(0.0) else "+" if ratio > 0 else "-"
    return f"{sign}{size}"


def _detail(context: Context, effect: Effect) -> str:
    sides = f"{len(context.base)} against {len(context.new)} runs"
    times = f"{format_ns(context.step)} before"
    if effect.method == "welch":
        return f"{sides}, Welch's t test on the logarithms of their median steps; runs of one side differ by {format_ratio(effect.sd)} ({times})."
    if effect.method == "pooled":
        return f"{sides}; equal runs differ by {format_ratio(effect.sd)}, learned from the {int(effect.df)} repeats ({times})."
    return (
        f"{sides}: too few to tell how much equal runs differ, so a standard deviation of {format_ratio(context.prior_sd)} between runs is assumed; "
        f"with each run's own uncertainty and repeats {format_ratio(effect.sd)} ({times})."
    )
