"""The rank_work table: every rank judged, with the numbers behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.causes import COMPONENTS, Facts, cause_of, components, costs
from diagnose.analysis.cross.speed import compare_speed
from diagnose.analysis.cross.stragglers import judge_work, work_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from diagnose.analysis.cross.stragglers import Work

SCHEMA = pl.Schema(
    {
    "rank": pl.Int32(), "role": pl.Int32(), "peers": pl.Int32(), "work_ns": pl.Int64(), "reference_ns": pl.Int64(), "slowdown_ratio": pl.Float64(),
    "sigma_ratio": pl.Float64(), "p_value": pl.Float64(), "slow_steps_ratio": pl.Float64(), "verdict": pl.String(), "slow_steps": pl.List(pl.Int64()),
    "burst_ns": pl.Int64(), **dict.fromkeys(COMPONENTS, pl.Int64()), "speed_ratio": pl.Float64(), "speed_spread_ratio": pl.Float64(),
    "matrix_ratio": pl.Float64(), "memory_ratio": pl.Float64(), "breadth_ratio": pl.Float64(), "volume_ratio": pl.Float64(),
    "unshared_ratio": pl.Float64(), "cause": pl.String(), "cost_ns": pl.Int64(),
    }
)  # fmt: skip
_SPEED_COLUMNS = (
    "speed_ratio",
    "speed_spread_ratio",
    "matrix_ratio",
    "memory_ratio",
    "breadth_ratio",
    "volume_ratio",
    "unshared_ratio",
)


class RankWork(NamedTuple):
    """``table`` as stored; ``detectable_ratio`` is the smallest slowdown that would have been found."""

    table: pl.DataFrame
    detectable_ratio: float | None


def rank_work(
    parts: pl.DataFrame,
    stats: pl.DataFrame,
    roles: Mapping[int, int],
    devices: Mapping[int, str | None],
    *,
    has_device: bool,
    stops: frozenset[int] = frozenset(),
    received: pl.DataFrame | None = None,
) -> RankWork:
    """Judge every rank.

    Args:
        parts: breakdown rows of normal steps, with exposed waits.
        stats: kernel_stat rows of normal steps.
        roles: pipeline stage by rank.
        devices: device name by rank.
        has_device: whether compute ran on an accelerator.
        stops: steps at which the training log shows regular stops.
        received: (rank, step, ratio), bytes received in all-to-all over the mean of the ranks, minus 1.
    """
    work = work_matrix(parts, dict(roles))
    if work is None:
        return RankWork(pl.DataFrame(schema=SCHEMA), None)
    judged = judge_work(work, _host_share(parts))
    own, reference, excess, burst = components(work, judged, parts)
    cost = costs(work, judged, parts)
    speed = {row["rank"]: row for row in compare_speed(stats, dict(roles)).iter_rows(named=True)}
    names = [devices.get(int(rank)) for rank in work.ranks]
    ordinary = [name for name, slow in zip(names, judged.persistent, strict=True) if name and not slow]
    usual = max(set(ordinary), key=ordinary.count) if ordinary else None
    routed = _routed(work, received)
    known_excess = {name: np.nan_to_num(values) for name, values in excess.items()}
    noise = _breadth_noise(
        [speed.get(rank, {}) for rank in work.ranks[~judged.persistent & ~judged.transient].tolist()]
    )
    rows = []
    for place, rank in enumerate(work.ranks.tolist()):
        flagged = bool(judged.persistent[place] or judged.transient[place])
        measured = {name: speed.get(rank, {}).get(name) for name in _SPEED_COLUMNS}
        part = {name: float(values[place]) for name, values in known_excess.items()}
        total = float(burst[place] if judged.transient[place] else own[place] - reference[place])
        hit = work.steps[judged.slow[place]].tolist()
        facts = Facts(
            total, part, measured, names[place], usual, has_device, bool(judged.transient[place]), bool(hit) and set(hit) <= stops, noise,
            float(np.nan_to_num(np.nanmean(routed[place][judged.slow[place]] if hit else routed[place]))) if flagged and routed is not None else 0.0,
        )  # fmt: skip
        rows.append(
            {
                "rank": rank, "role": int(work.roles[place]), "peers": int((work.roles == work.roles[place]).sum()) - 1,
                "work_ns": _integer(own[place]), "reference_ns": _integer(reference[place]), "slowdown_ratio": float(judged.slowdown[place]),
                "sigma_ratio": float(judged.sigma[place]) if np.isfinite(judged.sigma[place]) else None, "p_value": float(judged.p_value[place]),
                "slow_steps_ratio": float(judged.slow[place].mean()),
                "verdict": "persistent" if judged.persistent[place] else "transient" if judged.transient[place] else "ordinary",
                "slow_steps": hit, "burst_ns": _integer(burst[place]),
                **{name: round(value) for name, value in part.items()}, **measured,
                "cause": cause_of(facts) if flagged else None, "cost_ns": _integer(cost[place]),
            }
        )  # fmt: skip
    return RankWork(pl.DataFrame(rows, schema=SCHEMA), judged.detectable)


def _host_share(parts: pl.DataFrame) -> float:
    """Part of the local work in which devices wait for their hosts, on the median rank and step."""
    host = pl.col("idle_host_ns").fill_null(0) + pl.col("late_comm_ns").fill_null(0)
    share = parts.filter(pl.col("local_work_ns") > 0).select((host / pl.col("local_work_ns")).median()).item()
    return min(float(share or 0.0), 1.0)


def _breadth_noise(ordinary: list[dict[str, float | None]]) -> float:
    """Standard deviation of the breadth around none, from the median; 0 where too few ranks show it."""
    known = [abs(value) for row in ordinary if (value := row.get("breadth_ratio")) is not None]
    return 1.4826 * float(np.median(known)) if len(known) > 1 else 0.0


def _routed(work: Work, received: pl.DataFrame | None) -> NDArray[np.float64] | None:
    """[rank, step] of the ratios; None without all-to-all."""
    if received is None or received.is_empty():
        return None
    rows = received.filter(pl.col("rank").is_in(work.ranks.tolist()) & pl.col("step").is_in(work.steps.tolist()))
    matrix = np.zeros((len(work.ranks), len(work.steps)))
    place = np.searchsorted(work.ranks, rows.get_column("rank").to_numpy())
    matrix[place, np.searchsorted(work.steps, rows.get_column("step").to_numpy())] = rows.get_column("ratio").to_numpy()
    return matrix


def _integer(value: float) -> int | None:
    return None if np.isnan(value) else round(float(value))
