"""Who is slow: the statistics behind it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analysis.cross.stragglers import Work, discoveries, judge_work, shortest_half


def work(ranks, steps, seed=0, noise=0.01, spread=0.01, roles=None):
    rng = np.random.default_rng(seed)
    log = np.log(100e6) + spread * rng.standard_normal((ranks, 1)) + noise * rng.standard_normal((ranks, steps))
    return Work(np.arange(ranks), np.arange(steps), np.zeros(ranks, int) if roles is None else np.array(roles), log)


def slowed(given, rank, factor, steps=slice(None)):
    given.log_work[rank, steps] += np.log(factor)
    return given


@pytest.mark.parametrize("ranks", [4, 8, 64, 1024])
@pytest.mark.parametrize("seed", range(5))
def test_ordinary_ranks_are_left_alone(ranks, seed):
    judged = judge_work(work(ranks, 20, seed))

    assert not judged.persistent.any()
    assert not judged.transient.any()


@pytest.mark.parametrize("factor", [1.1, 1.3, 2.0])
@pytest.mark.parametrize("ranks", [8, 64, 1024])
def test_one_slow_rank_is_found(ranks, factor):
    judged = judge_work(slowed(work(ranks, 20), 5, factor))

    assert np.flatnonzero(judged.persistent).tolist() == [5]
    assert judged.slowdown[5] == pytest.approx(factor - 1, abs=0.05)


def test_half_of_the_ranks_may_be_slow():
    given = work(8, 20)
    for rank in (4, 5, 6, 7):
        slowed(given, rank, 1.1)

    assert np.flatnonzero(judge_work(given).persistent).tolist() == [4, 5, 6, 7]


def test_a_rank_is_compared_with_its_own_role_only():
    given = work(8, 20, roles=[0, 0, 0, 0, 1, 1, 1, 1])
    given.log_work[4:] += np.log(1.6)

    assert not judge_work(given).persistent.any()


def test_some_slow_steps_make_a_rank_transient():
    judged = judge_work(slowed(work(16, 20), 3, 1.4, [4, 9, 14, 19]))

    assert np.flatnonzero(judged.transient).tolist() == [3]
    assert np.flatnonzero(judged.slow[3]).tolist() == [4, 9, 14, 19]


def test_single_pauses_as_every_run_has_them_are_no_finding():
    given = work(32, 20)
    rng = np.random.default_rng(4)
    hit = rng.random(given.log_work.shape) < 0.02
    given.log_work[hit] += np.log1p(rng.exponential(0.15, int(hit.sum())))

    judged = judge_work(given)

    assert not judged.persistent.any()
    assert judged.transient.sum() <= 1


def test_one_pause_of_several_steps_length_is_found():
    judged = judge_work(slowed(work(8, 10), 2, 4.0, [6]))

    assert np.flatnonzero(judged.transient).tolist() == [2]


def test_ranks_that_all_differ_all_the_time_are_not_called_transient():
    given = work(4, 8)
    for rank, factor in enumerate((1.5, 2.2, 1.0, 1.75)):
        slowed(given, rank, factor)

    assert not judge_work(given).transient.any()


def test_noise_that_hides_the_effect_is_stated():
    assert judge_work(work(8, 5, noise=0.2)).detectable > 0.2
    assert judge_work(work(64, 20)).detectable < 0.06


@pytest.mark.parametrize(
    ("values", "centre"),
    [([0.0, 0.0, 0.0, 1.0], 0.0), ([0.0, 1.0], 0.0), ([5.0], 5.0), ([0.0, 0.01, 0.1, 0.1001, 0.1, 0.0], 0.0)],
)
def test_the_ordinary_ranks_are_the_fast_half(values, centre):
    assert shortest_half(np.array(values))[0] == pytest.approx(centre, abs=0.01)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.floats(-5, 5))
def test_shortest_half_moves_with_its_values(values, shift):
    centre, spread = shortest_half(np.array(values))
    moved, same = shortest_half(np.array(values) + shift)

    assert min(values) <= centre <= max(values)
    assert moved == pytest.approx(centre + shift, abs=1e-6)
    assert same == pytest.approx(spread, abs=1e-6)


def test_benjamini_hochberg_as_published():
    p_values = np.array(
        [
            0.0001,
            0.0004,
            0.0019,
            0.0095,
            0.0201,
            0.0278,
            0.0298,
            0.0344,
            0.0459,
            0.3240,
            0.4262,
            0.5719,
            0.6528,
            0.7590,
            1.0,
        ]
    )

    assert discoveries(p_values, 0.05).sum() == 4
    assert discoveries(p_values[::-1], 0.05)[::-1].tolist() == discoveries(p_values, 0.05).tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.sampled_from([0.01, 0.05]))
def test_discoveries_are_the_smallest_values(p_values, level):
    found = discoveries(np.array(p_values), level)

    kept, left = np.array(p_values)[found], np.array(p_values)[~found]
    assert not len(kept) or not len(left) or kept.max() <= left.min()
    assert not len(kept) or kept.max() <= level
