"""What a collective costs: T(S) = alpha + g sqrt(x) + x / B with x = c S, fitted to medians per size.

Sizes are binned on a log grid (ratio 1.25), so that a bucket full of congested instances counts once and a rare size
as much as a frequent one; residuals are relative, with Huber weights. The square-root term is used from five bins over
two decades, where real sweeps need it. Source: algorithms, alpha-beta per tier.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_GRID = math.log(1.25)
_MIN_BINS = 3
_MIN_RANGE = 4.0
_ROOT_BINS = 5
_ROOT_RANGE = 100.0
_ROUNDS = 8
_HUBER = 0.03
_RESAMPLES = 200
_MOST_SAMPLES = 20_000
_HALF = 0.5


class CostModel(NamedTuple):
    """``alpha_ns`` and ``root`` are None where the sizes cannot tell them apart from bandwidth."""

    alpha_ns: float | None
    root: float | None
    busbw_bytes_per_s: float
    low: float
    high: float
    half_size_bytes: float | None
    factor: float

    def transfer_ns(self, size_bytes: float) -> float:
        """Predicted duration."""
        wire = self.factor * size_bytes
        return (self.alpha_ns or 0.0) + (self.root or 0.0) * math.sqrt(wire) + wire / self.busbw_bytes_per_s * 1e9


def fit_cost(
    size_bytes: Floats,
    transfer_ns: Floats,
    step: NDArray[np.int64],
    factor: float,
    *,
    fixed_ns: float | None = None,
    seed: int = 0,
) -> CostModel | None:
    """Fit one class of collectives; None without a positive size and time.

    The interval is a bootstrap over steps: instances of one step share its congestion. Where one size only was seen,
    ``fixed_ns``, what tiny messages over the same ranks cost, is taken off before the bandwidth is computed.
    """
    keep = (size_bytes > 0) & (transfer_ns > 0) & (factor > 0)
    size, time, step = size_bytes[keep], transfer_ns[keep], step[keep]
    if not len(size):
        return None
    point = _fit(size, time, factor, fixed_ns)
    draws = _bootstrap(size, time, step, factor, fixed_ns, seed)
    low, high = (np.quantile(draws, 0.025), np.quantile(draws, 0.975)) if len(draws) else (math.nan, math.nan)
    alpha, root, bandwidth = point
    half = None if alpha is None or alpha <= 0 else alpha * bandwidth / 1e9 / factor
    return CostModel(alpha, root, bandwidth, float(low), float(high), half, factor)


def _bootstrap(
    size: Floats, time: Floats, step: NDArray[np.int64], factor: float, fixed_ns: float | None, seed: int
) -> Floats:
    steps, place = np.unique(step, return_inverse=True)
    if len(steps) < 2:
        return np.empty(0)
    generator = np.random.default_rng(seed)
    if len(size) > _MOST_SAMPLES:
        chosen = generator.choice(len(size), _MOST_SAMPLES, replace=False)
        size, time, place = size[chosen], time[chosen], place[chosen]
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(steps) + 1))
    draws = []
    for _ in range(_RESAMPLES):
        drawn = generator.integers(len(steps), size=len(steps))
        rows = np.concatenate([order[bounds[one] : bounds[one + 1]] for one in drawn])
        if len(rows):
            draws.append(_fit(size[rows], time[rows], factor, fixed_ns)[2])
    return np.array(draws)


def _fit(size: Floats, time: Floats, factor: float, fixed_ns: float | None) -> tuple[float | None, float | None, float]:
    bins = np.floor(np.log(size) / _GRID).astype(np.int64)
    keys, inverse = np.unique(bins, return_inverse=True)
    x = np.array([np.median(size[inverse == place]) for place in range(len(keys))]) * factor
    y = np.array([np.median(time[inverse == place]) for place in range(len(keys))])
    spread = x[-1] / x[0]
    if len(x) < _MIN_BINS or spread < _MIN_RANGE:
        return None, None, float(x[-1] / (y[-1] - _taken(y[-1], fixed_ns)) * 1e9)
    columns = [np.ones(len(x)), x]
    if len(x) >= _ROOT_BINS and spread >= _ROOT_RANGE:
        columns.insert(1, np.sqrt(x))
    solution = _robust(np.stack(columns, axis=1), y)
    alpha, slope = float(solution[0]), float(solution[-1])
    root = float(solution[1]) if len(columns) == 3 else None
    return alpha, root, (1e9 / slope if slope > 0 else float(np.max(x / y) * 1e9))


def _taken(time_ns: float, fixed_ns: float | None) -> float:
    """The fixed cost inside a transfer of one size; above half of it, bandwidth cannot be told from it."""
    return fixed_ns if fixed_ns is not None and fixed_ns < _HALF * time_ns else 0.0


def _robust(matrix: Floats, y: Floats) -> Floats:
    """Non-negative least squares of relative residuals with Huber weights."""
    scaled, target = matrix / y[:, None], np.ones(len(y))
    weight = np.ones(len(y))
    solution = _nonnegative(scaled, target, weight)
    for _ in range(_ROUNDS):
        residual = np.abs(scaled @ solution - target)
        weight = np.where(residual <= _HUBER, 1.0, _HUBER / np.maximum(residual, 1e-12))
        solution = _nonnegative(scaled, target, weight)
    return solution


def _nonnegative(matrix: Floats, target: Floats, weight: Floats) -> Floats:
    """Best of all subsets of at most three columns with non-negative coefficients."""
    count = matrix.shape[1]
    root = np.sqrt(weight)
    best: tuple[float, Floats] | None = None
    for used in range(count, 0, -1):
        for chosen in combinations(range(count), used):
            part = np.linalg.lstsq(matrix[:, chosen] * root[:, None], target * root, rcond=None)[0]
            if (part < 0).any():
                continue
            full = np.zeros(count)
            full[list(chosen)] = part
            error = float(np.sum(weight * np.square(matrix @ full - target)))
            if best is None or error < best[0]:
                best = error, full
        if best is not None and used == count:
            break
    return best[1] if best is not None else np.zeros(count)
