"""One clock for all hosts: offset and drift of each from the common ends of collectives.

y[e, r] = u[e] + a[h] + b[h] (u[e] - t0) + noise: the members of a collective end together, each on its host's clock.
u is eliminated per instance, (a, b) come from weighted least squares with Huber weights on what is left. Only the
differences matter, so one host of each connected component is the reference. Source: algorithms, clock alignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "barrier")
_MAX_INSTANCES = 4000
_ROUNDS = 12
_HUBER = 1.5
_MIN_DRIFT_SPAN_NS = 2_000_000_000
"""Below two seconds an offset alone explains the ends; a drift would only fit noise."""

_FLOOR_NS = 4_000.0
"""Members of a tiny collective end about 4 us apart on one node: the clock floor."""


class Clocks(NamedTuple):
    """``table`` as the store's clock table; ``offset`` maps a host to (offset, drift) around ``origin_ns``."""

    table: pl.DataFrame
    offset: dict[str, tuple[float, float]]
    origin_ns: int
    residual_ns: dict[str, int]


CLOCK_SCHEMA = {
    "host": pl.String, "offset_ns": pl.Int64, "drift_ppm": pl.Float64, "residual_ns": pl.Int64, "component": pl.Int32, "samples": pl.Int64,
}  # fmt: skip


def fit_clocks(members: pl.DataFrame, hosts: Mapping[int, str]) -> Clocks:
    """Clocks of all hosts that share synchronising collectives.

    Args:
        members: matched calls (instance, rank, start_ns, dur_ns, collective, size).
        hosts: host of each rank; a rank of unknown host has a clock of its own (``rank<N>``).
    """
    names = sorted({hosts[rank] for rank in hosts})
    index = {name: place for place, name in enumerate(names)}
    used = _usable(members)
    if used.is_empty() or len(names) < 2:
        table = pl.DataFrame(
            [{"host": name, "offset_ns": 0, "drift_ppm": 0.0, "residual_ns": 0 if len(names) == 1 else None, "component": place, "samples": 0}
             for place, name in enumerate(names)],
            schema=CLOCK_SCHEMA,
        )  # fmt: skip
        return Clocks(table, dict.fromkeys(names, (0.0, 0.0)), 0, dict.fromkeys(names, 0))
    host = np.array([index[hosts[rank]] for rank in used.get_column("rank").to_list()])
    instance = used.get_column("instance").rank("dense").to_numpy().astype(np.int64) - 1
    end = (used.get_column("start_ns") + used.get_column("dur_ns")).to_numpy()
    shortest = used.get_column("shortest").to_numpy().astype(np.float64)
    origin = int(np.median(end))
    time = (end - origin).astype(np.float64)
    weight = 1.0 / np.square(_FLOOR_NS + 0.05 * shortest)
    drift = float(time.max() - time.min()) >= _MIN_DRIFT_SPAN_NS
    solution = _solve(time, host, instance, weight, len(names), drift=drift)
    rest = _residuals(time, host, instance, weight, solution)
    component = _components(host, instance, len(names))
    rows, offset, residual = [], {}, {}
    for name, place in index.items():
        mine = np.abs(rest[host == place])
        spread = round(1.4826 * float(np.median(mine))) if len(mine) else None
        offset[name] = (float(solution[place, 0]), float(solution[place, 1]))
        residual[name] = spread or 0
        rows.append(
            {"host": name, "offset_ns": round(solution[place, 0]), "drift_ppm": float(solution[place, 1]) * 1e6, "residual_ns": spread,
             "component": int(component[place]), "samples": len(mine)}
        )  # fmt: skip
    return Clocks(pl.DataFrame(rows, schema=CLOCK_SCHEMA), offset, origin, residual)


def aligned_ranks(
    start_ns: NDArray[np.int64], rank: NDArray[np.int32], hosts: Mapping[int, str], clocks: Clocks
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Times on the common clock, and how sure the clock of each is (residual)."""
    most = int(rank.max(initial=0)) + 1
    offset, drift, residual = np.zeros(most), np.zeros(most), np.zeros(most, np.int64)
    for one in np.unique(rank).tolist():
        name = hosts.get(one, "")
        offset[one], drift[one] = clocks.offset.get(name, (0.0, 0.0))
        residual[one] = clocks.residual_ns.get(name, 0)
    shift = offset[rank] + drift[rank] * (start_ns - clocks.origin_ns)
    return start_ns - np.rint(shift).astype(np.int64), residual[rank]


def _usable(members: pl.DataFrame) -> pl.DataFrame:
    """Complete synchronising instances, the shortest ones when there are many: small collectives end closest together."""
    if members.is_empty():
        return members
    counts = members.filter(pl.col("collective").is_in(list(_SYNCHRONISING))).group_by("instance").agg(
        pl.len().alias("seen"), pl.col("dur_ns").min().alias("shortest"), pl.col("size").first()
    )  # fmt: skip
    whole = (
        counts.filter((pl.col("seen") == pl.col("size")) & (pl.col("seen") > 1))
        .sort("shortest", "instance")
        .head(_MAX_INSTANCES)
    )
    return members.join(whole.select("instance", "shortest"), on="instance").sort("instance", "rank")


def _solve(
    time: NDArray[np.float64],
    host: NDArray[np.int64],
    instance: NDArray[np.int64],
    weight: NDArray[np.float64],
    hosts: int,
    *,
    drift: bool,
) -> NDArray[np.float64]:
    """IRLS over the normal equations of the host graph; unknowns (offset, drift) per host."""
    component = _components(host, instance, hosts)
    reference = np.unique(component, return_index=True)[1][component]  # nothing ties components together: each has its own
    solution = np.zeros((hosts, 2))
    scale = float(np.abs(time).max()) or 1.0
    current = weight.copy()
    for _ in range(_ROUNDS):
        total = np.bincount(instance, current)
        centre = np.bincount(instance, current * time) / total
        y = time - centre[instance]
        columns = [host, host] if drift else [host]
        values = [np.ones(len(time)), centre[instance] / scale] if drift else [np.ones(len(time))]
        size = hosts * len(columns)
        matrix = np.zeros((size, size))
        right = np.zeros(size)
        instances = int(instance.max()) + 1
        # Sum over instances of the block (I - w 1'/W): dense in hosts, linear in samples through per-instance sums.
        sums = [np.zeros((instances, hosts)) for _ in columns]
        for place, (column, value) in enumerate(zip(columns, values, strict=True)):
            np.add.at(sums[place], (instance, column), current * value)
            np.add.at(right, place * hosts + column, current * value * y)
        for first, value_first in enumerate(values):
            for second, value_second in enumerate(values):
                block = np.diag(np.bincount(host, current * value_first * value_second, hosts))
                block -= sums[first].T @ (sums[second] / total[:, None])
                matrix[first * hosts : (first + 1) * hosts, second * hosts : (second + 1) * hosts] = block
        found = np.linalg.lstsq(matrix + 1e-12 * np.trace(matrix) / size * np.eye(size), right, rcond=None)[0]
        solution[:, 0] = found[:hosts] - found[:hosts][reference]
        if drift:
            solution[:, 1] = (found[hosts:] - found[hosts:][reference]) / scale
        rest = _residuals(time, host, instance, weight, solution)
        sigma = 1.4826 * float(np.median(np.abs(rest * np.sqrt(weight)))) or 1.0
        standard = np.abs(rest * np.sqrt(weight)) / sigma
        current = weight * np.where(standard <= _HUBER, 1.0, _HUBER / np.maximum(standard, 1e-12))
    return solution


def _residuals(
    time: NDArray[np.float64],
    host: NDArray[np.int64],
    instance: NDArray[np.int64],
    weight: NDArray[np.float64],
    solution: NDArray[np.float64],
) -> NDArray[np.float64]:
    corrected = time - solution[host, 0] - solution[host, 1] * time
    centre = np.bincount(instance, weight * corrected) / np.bincount(instance, weight)
    result: NDArray[np.float64] = corrected - centre[instance]
    return result


def _components(host: NDArray[np.int64], instance: NDArray[np.int64], hosts: int) -> NDArray[np.int64]:
    """Connected components of hosts over shared instances."""
    parent = np.arange(hosts)

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = int(parent[place])
        return place

    first: dict[int, int] = {}
    for one, where in zip(host.tolist(), instance.tolist(), strict=True):
        other = first.setdefault(where, one)
        parent[root(one)] = root(other)
    return np.unique([root(place) for place in range(hosts)], return_inverse=True)[1]
