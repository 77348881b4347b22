"""Who is slow: local work against role peers, never arrival order.

L[r, s] = log W[r, s] - median over the role of log W[., s]; x[r] = median over the steps. The ordinary spread is taken
from the shortest half of the ranks, which half of them being slow cannot hide, pooled with what devices of one kind
differ by; so many ranks as it rests on are the degrees of freedom of the test. A rank is persistently slow when its x
is improbable (Benjamini-Hochberg over the ranks), above a minimum effect, and in at least half of the steps; it is
transient when single steps stick out too often or too far. Source: algorithms, straggler attribution.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_EFFECT_RATIO = 0.03
FALSE_DISCOVERY = 0.01
FALSE_DISCOVERY_MANY = 0.001
_MANY_RANKS = 4096
_PRIOR_SPREAD = 0.015
_HOST_SPREAD = 0.05
"""Hosts of one kind launch at paces that differ more: turbo clocks, memory near or far, and what else runs there."""

_PRIOR_RANKS = 8
"""Devices of one kind differ by 1 to 2 %; few of them do not show how much, so eight more that do are assumed."""

_FLOOR = 0.004
"""Below it a step's noise is that of the clock."""

_APART = 1.5
"""Clusters whose distance is this many times the width of the lower one are no single spread."""
_BURST_EFFECT = 0.05
_BURST_CHANCE = 0.02
_PAUSE_RATIO = 0.15
"""Healthy ranks pause in 2 % of their steps, for 15 % of a step on average and with an exponential tail."""

_PAUSE_SURPRISE = 0.01
_FEW_STEPS = 3
"""So few steps may all lie within one pause."""


class Work(NamedTuple):
    """Dense matrices [rank, step] in log nanoseconds; ``ranks``, ``steps``, ``roles`` name the axes."""

    ranks: NDArray[np.int64]
    steps: NDArray[np.int64]
    roles: NDArray[np.int64]
    log_work: NDArray[np.float64]


class Judged(NamedTuple):
    """One value a rank; ``slow`` [rank, step] marks the steps of transient ranks."""

    slowdown: NDArray[np.float64]
    sigma: NDArray[np.float64]
    p_value: NDArray[np.float64]
    persistent: NDArray[np.bool_]
    transient: NDArray[np.bool_]
    slow: NDArray[np.bool_]
    excess: NDArray[np.float64]
    """[rank, step]: log excess over the role's ordinary ranks."""

    detectable: float
    """The smallest slowdown that would have been found."""


def median(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Median that leaves NaN out, fast where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # slices without any value stay NaN
        found: NDArray[np.float64] = (
            np.nanmedian(values, axis=axis) if np.isnan(values).any() else np.median(values, axis=axis)
        )
    return found


def work_matrix(parts: pl.DataFrame, roles: dict[int, int]) -> Work | None:
    """Local work of ranks with at least one common step; None when there are fewer than two."""
    rows = parts.filter((pl.col("rank") >= 0) & (pl.col("local_work_ns") > 0)).select("rank", "step", "local_work_ns")
    if rows.is_empty() or rows.get_column("rank").n_unique() < 2:
        return None
    ranks = np.sort(rows.get_column("rank").unique().to_numpy()).astype(np.int64)
    steps = np.sort(rows.get_column("step").unique().to_numpy())
    matrix = np.full((len(ranks), len(steps)), np.nan)
    row = np.searchsorted(ranks, rows.get_column("rank").to_numpy())
    column = np.searchsorted(steps, rows.get_column("step").to_numpy())
    matrix[row, column] = np.log(rows.get_column("local_work_ns").to_numpy())
    return Work(ranks, steps, np.array([roles.get(int(rank), 0) for rank in ranks]), matrix)


def judge_work(work: Work, host_share: float = 0.0) -> Judged:
    """Persistent and transient ranks of all roles together. ``host_share`` is the part of the work that hosts do."""
    from scipy import special  # here: runs of one rank do without it

    prior = math.hypot((1 - host_share) * _PRIOR_SPREAD, host_share * _HOST_SPREAD)
    count, steps = work.log_work.shape
    excess = np.full((count, steps), np.nan)
    slowdown = np.zeros(count)
    sigma, freedom = np.full(count, np.inf), np.ones(count)
    for role in np.unique(work.roles):
        rows = np.flatnonzero(work.roles == role)
        if len(rows) < 2:
            continue
        block = work.log_work[rows]
        relative = block - median(block, 0)
        typical = median(relative, 1)
        centre, spread = shortest_half(typical)
        relative = relative - centre
        noise = 1.4826 * median(np.abs(relative - median(relative, 1)[:, None]), 1)
        step_sigma = 1.2533 * float(np.nanmedian(noise)) / math.sqrt(max(steps, 1))
        half = len(rows) / 2  # what the spread was measured on
        pooled = math.sqrt((_PRIOR_RANKS * prior**2 + half * spread**2) / (_PRIOR_RANKS + half))
        excess[rows] = relative
        slowdown[rows] = typical - centre
        sigma[rows] = math.hypot(max(pooled, spread), step_sigma)
        freedom[rows] = _PRIOR_RANKS + half - 1
    p_value = np.where(np.isfinite(sigma), special.stdtr(freedom, -slowdown / sigma), 1.0)
    level = FALSE_DISCOVERY if count <= _MANY_RANKS else FALSE_DISCOVERY_MANY
    known = ~np.isnan(excess)
    often = (np.where(known, excess, 0.0) > math.log1p(MIN_EFFECT_RATIO)).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    persistent = discoveries(p_value, level) & (slowdown > math.log1p(MIN_EFFECT_RATIO)) & (often >= 0.5)
    slow, transient = _bursts(excess, sigma, persistent, level)
    finite = sigma[np.isfinite(sigma)]
    df = float(np.median(freedom[np.isfinite(sigma)])) if len(finite) else 1.0
    limit = float(special.stdtrit(df, 1 - level / max(count, 1))) + 0.84
    detectable = float(np.expm1(limit * np.median(finite))) if len(finite) else math.inf
    return Judged(
        np.expm1(slowdown), sigma, p_value, persistent, transient, slow, excess, max(detectable, MIN_EFFECT_RATIO)
    )


def shortest_half(values: NDArray[np.float64]) -> tuple[float, float]:
    """Centre and standard deviation from the shortest interval that holds half of the values.

    Of equally short ones the lowest is ordinary: with half of the ranks slow, the fast half is the reference.
    """
    ordered = np.sort(values[~np.isnan(values)])
    count = len(ordered)
    if count < 2:
        return (float(ordered[0]) if count else 0.0), 0.0
    half = max(count // 2, 1) if count > 3 else 1
    if half == 1:
        return float(ordered[0] if count == 2 else np.median(ordered)), 0.0
    low = _lower_cluster(ordered, half)
    if low is not None:
        return shortest_half(low)
    widths = ordered[half - 1 :] - ordered[: count - half + 1]
    tolerance = 0.25 * (ordered[-1] - ordered[0]) / count + 1e-12
    start = int(np.flatnonzero(widths <= widths.min() + tolerance)[0])
    chosen = ordered[start : start + half]
    spread = float(widths[start]) / 1.349 * (1 + 2 / half)
    return float(np.median(chosen)), spread


def _lower_cluster(ordered: NDArray[np.float64], half: int) -> NDArray[np.float64] | None:
    """The lower of two clusters that are clearly apart, when it holds at least half: then the upper one is slow, however
    close together its members are.
    """
    gaps = np.diff(ordered)
    split = int(np.argmax(gaps)) + 1
    low = ordered[:split]
    apart = float(gaps[split - 1])
    return (
        low if split >= half and apart > max(_APART * float(low[-1] - low[0]), math.log1p(MIN_EFFECT_RATIO)) else None
    )


def discoveries(p_values: NDArray[np.float64], level: float) -> NDArray[np.bool_]:
    """Benjamini-Hochberg."""
    count = len(p_values)
    order = np.argsort(p_values)
    limits = level * np.arange(1, count + 1) / count
    below = np.flatnonzero(p_values[order] <= limits)
    found = np.zeros(count, bool)
    if len(below):
        found[order[: below[-1] + 1]] = True
    return found


def _bursts(
    excess: NDArray[np.float64], sigma: NDArray[np.float64], persistent: NDArray[np.bool_], level: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Steps that stick out, and the ranks for which that is no chance: too many of them, or one too large."""
    from scipy import special

    steps = excess.shape[1]
    if not steps or np.isnan(excess).all():
        return np.zeros(excess.shape, bool), np.zeros(len(excess), bool)
    own = median(excess, 1)[:, None]
    noise = 1.4826 * median(np.abs(excess - own), 1)
    limit = np.maximum(math.log1p(_BURST_EFFECT), 5 * np.maximum(np.nanmedian(noise), _FLOOR))
    slow = np.nan_to_num(excess - np.minimum(own, 0.0), nan=0.0) > limit
    count = slow.sum(axis=1)
    chance = np.where(count > 0, special.bdtrc(count - 1.0, steps, _BURST_CHANCE), 1.0)
    chance[~np.isfinite(sigma) & (count == 0)] = 1.0
    longest = np.expm1(np.where(np.isnan(excess), -np.inf, excess).max(axis=1))
    large = np.isfinite(excess).sum() * _BURST_CHANCE * np.exp(-longest / _PAUSE_RATIO) < _PAUSE_SURPRISE
    transient = (discoveries(chance, level) | large) & ~persistent & (count > 0)
    # Slow in each of several steps is no burst: ranks that differ all the time by what nobody knows are not judged.
    transient &= (count < np.isfinite(excess).sum(axis=1)) | (steps < _FEW_STEPS)
    slow[~transient] = False
    return slow, transient
