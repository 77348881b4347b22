from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from diagnose.analysis.compare.outcome import signed
from diagnose.analysis.compare.stats import PRIOR_SD, Sample, difference, holm, median_error


def sample(values: list[float] | np.ndarray, error: float = 0.0) -> Sample:
    return Sample(tuple(float(v) for v in values), (error,) * len(values))


def test_three_runs_a_side_are_welchs_t() -> None:
    base, new = [0.0, 0.01, -0.012], [0.05, 0.07, 0.045, 0.06]
    effect = difference(sample(base), sample(new))
    known = stats.ttest_ind(new, base, equal_var=False)
    assert effect is not None
    assert effect.method == "welch"
    assert effect.p_value == pytest.approx(known.pvalue)
    interval = known.confidence_interval(0.95)
    assert effect.interval == pytest.approx((interval.low, interval.high))


def test_one_run_a_side_takes_the_stated_deviation() -> None:
    effect = difference(sample([0.0]), sample([0.02]), prior_sd=0.01)
    assert effect is not None
    assert effect.method == "prior"
    assert effect.sd == pytest.approx(0.01)
    assert not effect.significant
    assert difference(sample([0.0]), sample([0.04]), prior_sd=0.01).significant


def test_a_runs_own_uncertainty_widens_the_interval() -> None:
    certain, vague = (difference(sample([0.0], error), sample([0.04], error)) for error in (0.0, 0.03))
    assert certain.significant
    assert not vague.significant


def test_six_repeats_replace_the_stated_deviation() -> None:
    repeats = [0.03 * value for value in (-1, 1, -0.5, 0.5, -1.2, 1.2)]
    effect = difference(sample(repeats), sample([0.05]))
    assert effect.method == "pooled"
    assert effect.sd == pytest.approx(np.std(repeats, ddof=1))
    assert not effect.significant


def test_copies_of_one_run_do_not_make_every_difference_certain() -> None:
    assert not difference(sample([0.0] * 3), sample([0.0005] * 3)).significant
    assert difference(sample([0.0] * 3), sample([0.0] * 3)).p_value == pytest.approx(1.0)


def test_equivalence_needs_the_whole_interval_within_the_margin() -> None:
    near = difference(sample([0.0, 0.001, -0.001]), sample([0.002, 0.003, 0.001]))
    assert near.within(math.log1p(0.02))
    assert not difference(sample([0.0]), sample([0.0])).within(math.log1p(0.02))
    assert difference(sample([0.0]), sample([0.0])).within(math.log1p(0.04))


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.012, "+1.2 %"), (-0.2, "-20 %"), (0.0, "0.0 %"), (-0.0004, "0.0 %"), (0.0004, "0.0 %")]
)
def test_a_change_has_a_sign_unless_it_is_printed_as_zero(ratio: float, text: str) -> None:
    assert signed(ratio) == text


def test_a_side_without_runs_gives_nothing() -> None:
    assert difference(sample([]), sample([1.0])) is None


def test_holm_is_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_error_of_a_median_needs_three_steps() -> None:
    assert median_error(np.array([1.0, 2.0])) is None
    assert median_error(np.array([1.0, 1.0, 1.0])) == 0.0
    dice = np.random.default_rng(3)
    medians = [np.median(dice.normal(1, 0.02, 9)) for _ in range(400)]
    claimed = np.mean([median_error(dice.normal(1, 0.02, 9)) for _ in range(400)])
    assert claimed == pytest.approx(np.std(medians), rel=0.25)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (3, 3), (5, 5), (6, 1), (10, 1)])
def test_false_alarms_on_equal_sides_stay_below_five_percent(before: int, after: int) -> None:
    dice = np.random.default_rng(before * 100 + after)
    trials = 1500
    alarms = sum(
        difference(sample(dice.normal(0, PRIOR_SD, before)), sample(dice.normal(0, PRIOR_SD, after))).significant
        for _ in range(trials)
    )
    assert alarms / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize(("runs", "slower", "least"), [(3, 0.05, 0.90), (3, 0.02, 0.25), (5, 0.02, 0.65)])
def test_power_is_as_published(runs: int, slower: float, least: float) -> None:
    dice = np.random.default_rng(runs)
    trials, size = 600, math.log1p(slower)
    found = sum(
        difference(sample(dice.normal(0, PRIOR_SD, runs)), sample(dice.normal(size, PRIOR_SD, runs))).significant
        for _ in range(trials)
    )
    assert found / trials >= least
