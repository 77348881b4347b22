"""How much slower comparable groups are across leaves than inside one.

Only the same collective, group size and message size is compared, above a size where latency hides the bandwidth; the
ratio of medians is weighted by time, its interval a bootstrap over steps. Source: algorithms, oversubscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIN_BYTES = 1_000_000
_RESAMPLES = 200


class Oversubscription(NamedTuple):
    """Bandwidth inside a leaf over that across leaves, with its 95 % interval: a lower bound, as uplinks may be idle."""

    ratio: float
    low: float
    high: float


def oversubscription(instances: pl.DataFrame) -> Oversubscription | None:
    """The ratio, None without comparable groups of both kinds.

    Args:
        instances: whole collectives with tier, collective, members, msg_bytes, step, transfer_ns.
    """
    key = ["collective", "members", "msg_bytes"]
    large = instances.filter(
        pl.col("tier").is_in(["intra-leaf", "cross-leaf"])
        & (pl.col("msg_bytes") >= _MIN_BYTES)
        & (pl.col("transfer_ns") > 0)
    ).with_columns((pl.col("tier") == "cross-leaf").alias("crosses"))
    both = large.group_by(key).agg(pl.col("crosses").any().alias("a"), (~pl.col("crosses")).any().alias("b"))
    large = large.join(both.filter(pl.col("a") & pl.col("b")), on=key)
    if large.is_empty():
        return None
    cell = large.select(pl.struct(key).rank("dense")).to_series().to_numpy().astype(np.int64) - 1
    time = large.get_column("transfer_ns").to_numpy().astype(np.float64)
    crosses = large.get_column("crosses").to_numpy()
    step = large.get_column("step").fill_null(-1).to_numpy()
    steps = np.unique(step)
    draws = [_ratio(cell, time, crosses, np.ones(len(cell)))]
    generator = np.random.default_rng(0)
    for _ in range(_RESAMPLES if len(steps) > 1 else 0):
        times = np.bincount(generator.integers(len(steps), size=len(steps)), minlength=len(steps))
        draws.append(_ratio(cell, time, crosses, times[np.searchsorted(steps, step)].astype(np.float64)))
    known = [value for value in draws[1:] if np.isfinite(value)] or draws[:1]
    return Oversubscription(draws[0], float(np.quantile(known, 0.025)), float(np.quantile(known, 0.975)))


def _ratio(
    cell: NDArray[np.int64], time: NDArray[np.float64], crosses: NDArray[np.bool_], weight: NDArray[np.float64]
) -> float:
    logs, weights = [], []
    for one in range(int(cell.max()) + 1):
        mine = (cell == one) & (weight > 0)
        across, inside = mine & crosses, mine & ~crosses
        if across.any() and inside.any():
            logs.append(
                np.log(
                    np.median(np.repeat(time[across], weight[across].astype(int)))
                    / np.median(np.repeat(time[inside], weight[inside].astype(int)))
                )
            )
            weights.append(float((time * weight)[mine].sum()))
    return float(np.exp(np.average(logs, weights=weights))) if logs else float("nan")
