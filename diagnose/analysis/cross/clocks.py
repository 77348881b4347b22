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
_MAX_MEMBERS = 1_000_000
"""Members of the instances used; more make no clock surer and cost what they weigh."""

_EACH_GROUP = 20
"""Instances of every group before more of any, large groups first: many small groups alone tie few hosts together."""

_ROUNDS = 12
_HUBER = 1.5
_MIN_DRIFT_SPAN_NS = 2_000_000_000
"""Below two seconds an offset alone explains the ends; a drift would only fit noise."""

_DENSE_HOSTS = 64
_ITERATIONS = 400
_TOLERANCE = 1e-9
"""Of offsets of milliseconds this leaves picoseconds."""

_FLOOR_NS = 4_000.0
"""Members of a tiny collective end about 4 us apart on one node: the clock floor."""


class Clocks(NamedTuple):
    """``table`` as the store's clock table; ``offset`` maps a host to (offset, drift) around ``origin_ns``."""

    table: pl.DataFrame
    offset: dict[str, tuple[float, float]]
    origin_ns: int
    residual_ns: dict[str, int]


CLOCK_SCHEMA = pl.Schema(
    {
    "host": pl.String, "offset_ns": pl.Int64, "drift_ppm": pl.Float64, "residual_ns": pl.Int64, "component": pl.Int32, "samples": pl.Int64,
    }
)  # fmt: skip


def fit_clocks(members: pl.DataFrame, hosts: Mapping[int, str]) -> Clocks:
    """Clocks of all hosts that share synchronising collectives.

    Args:
        members: matched calls (instance, rank, start_ns, dur_ns, collective, size).
        hosts: host of each rank; a rank of unknown host has a clock of its own (``rank<N>``).
    """
    names = sorted({hosts[rank] for rank in hosts})
    index = {name: place for place, name in enumerate(names)}
    used = clock_samples(members)
    if used.is_empty() or len(names) < 2:
        table = pl.DataFrame(
            [{"host": name, "offset_ns": 0, "drift_ppm": 0.0, "residual_ns": 0 if len(names) == 1 else None, "component": place, "samples": 0}
             for place, name in enumerate(names)],
            schema=CLOCK_SCHEMA,
        )  # fmt: skip
        return Clocks(table, dict.fromkeys(names, (0.0, 0.0)), 0, dict.fromkeys(names, 0))
    used = _by_host(used, {rank: index[name] for rank, name in hosts.items()})
    host = used.get_column("host").to_numpy().astype(np.int64)
    instance = used.get_column("instance").rank("dense").to_numpy().astype(np.int64) - 1
    end = used.get_column("end_ns").to_numpy()
    shortest = used.get_column("shortest").to_numpy().astype(np.float64)
    origin = int(np.median(end))
    time = (end - origin).astype(np.float64)
    weight = 1.0 / np.square(_FLOOR_NS + 0.05 * shortest)
    drift = float(time.max() - time.min()) >= _MIN_DRIFT_SPAN_NS
    component = _components(host, instance, len(names))
    solution = _solve(time, host, instance, weight, component, drift=drift)
    rest = _residuals(time, host, instance, weight, solution)
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
    first = int(rank.min(initial=0))  # traces of unknown rank have negative ones
    place = rank - first
    size = int(place.max(initial=0)) + 1
    offset, drift, residual = np.zeros(size), np.zeros(size), np.zeros(size, np.int64)
    for one in np.unique(place).tolist():
        name = hosts.get(one + first, "")
        offset[one], drift[one] = clocks.offset.get(name, (0.0, 0.0))
        residual[one] = clocks.residual_ns.get(name, 0)
    shift = offset[place] + drift[place] * (start_ns - clocks.origin_ns)
    return start_ns - np.rint(shift).astype(np.int64), residual[place]


def clock_samples(members: pl.DataFrame) -> pl.DataFrame:
    """Complete synchronising instances; when there are many, some of every group and then the shortest ones: small
    collectives end closest together.
    """
    group = "group_id" if "group_id" in members.columns else "size"
    columns = list(dict.fromkeys(("instance", "rank", "start_ns", "dur_ns", "collective", "size", group)))
    if members.is_empty():
        return members.select(columns).with_columns(pl.lit(0, pl.Int64).alias("shortest"))
    counts = members.filter(pl.col("collective").is_in(list(_SYNCHRONISING))).group_by("instance").agg(
        pl.len().alias("seen"), pl.col("dur_ns").min().alias("shortest"), pl.col("size").first(), pl.col(group).first().alias("team")
    )  # fmt: skip
    tied = pl.int_range(pl.len()).over("team", order_by=["shortest", "instance"]) < _EACH_GROUP
    whole = (
        counts.filter((pl.col("seen") == pl.col("size")) & (pl.col("seen") > 1))
        .with_columns(pl.when(tied).then("size").alias("tied"))
        .sort("tied", "shortest", "instance", descending=[True, False, False], nulls_last=True)
        .head(_MAX_INSTANCES)
        .filter(pl.col("seen").cum_sum() - pl.col("seen") < _MAX_MEMBERS)
    )
    chosen = members.select(columns).join(whole.select("instance", "shortest"), on="instance")
    return chosen.sort("instance", "rank").with_columns(pl.col("collective").cast(pl.String))


def _by_host(used: pl.DataFrame, places: Mapping[int, int]) -> pl.DataFrame:
    """One end a (instance, host): the median over its ranks, which share a clock."""
    where = pl.DataFrame(
        {"rank": list(places), "host": list(places.values())}, schema={"rank": used.schema["rank"], "host": pl.Int32}
    )
    end = (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns")
    placed = used.select("instance", "rank", "shortest", end).join(where, on="rank")
    return (
        placed.group_by("instance", "host")
        .agg(pl.col("end_ns").median().cast(pl.Int64), pl.col("shortest").first())
        .sort("instance", "host")
    )


def _solve(
    time: NDArray[np.float64],
    host: NDArray[np.int64],
    instance: NDArray[np.int64],
    weight: NDArray[np.float64],
    component: NDArray[np.int64],
    *,
    drift: bool,
) -> NDArray[np.float64]:
    """IRLS over the normal equations of the host graph; unknowns (offset, drift) per host."""
    hosts = len(component)
    reference = np.unique(component, return_index=True)[1][
        component
    ]  # nothing ties components together: each has its own
    solution = np.zeros((hosts, 2))
    scale = float(np.abs(time).max()) or 1.0
    current = weight.copy()
    found = np.zeros(2 * hosts if drift else hosts)
    for _ in range(_ROUNDS):
        total = np.bincount(instance, current).astype(np.float64)
        centre = np.bincount(instance, current * time) / total
        system = _System(host, instance, current, total, centre / scale if drift else None, hosts)
        found = (
            system.dense(time - centre[instance])
            if hosts <= _DENSE_HOSTS
            else system.iterate(time - centre[instance], found)
        )
        solution[:, 0] = found[:hosts] - found[:hosts][reference]
        if drift:
            solution[:, 1] = (found[hosts:] - found[hosts:][reference]) / scale
        rest = _residuals(time, host, instance, weight, solution)
        sigma = 1.4826 * float(np.median(np.abs(rest * np.sqrt(weight)))) or 1.0
        standard = np.abs(rest * np.sqrt(weight)) / sigma
        current = weight * np.where(standard <= _HUBER, 1.0, _HUBER / np.maximum(standard, 1e-12))
    return solution


class _System:
    """Normal equations of one round: the block (I - w 1'/W) of every instance, summed; unknowns offset and drift by host."""

    def __init__(
        self, host: NDArray[np.int64], instance: NDArray[np.int64], weight: NDArray[np.float64], total: NDArray[np.float64],
        slope: NDArray[np.float64] | None, hosts: int,
    ) -> None:  # fmt: skip
        self.host, self.instance, self.weight, self.total, self.hosts = host, instance, weight, total, hosts
        self.slope = None if slope is None else slope[instance]

    def _gather(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Transposed design: sums of one value a sample by unknown."""
        weighted = self.weight * values
        parts = [np.bincount(self.host, weighted, self.hosts)]
        if self.slope is not None:
            parts.append(np.bincount(self.host, weighted * self.slope, self.hosts))
        return np.concatenate(parts)

    def apply(self, unknown: NDArray[np.float64]) -> NDArray[np.float64]:
        """The matrix times a vector, linear in the samples."""
        value = unknown[self.host]
        if self.slope is not None:
            value = value + unknown[self.hosts + self.host] * self.slope
        mean = np.bincount(self.instance, self.weight * value) / self.total
        return self._gather(value - mean[self.instance])

    def dense(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Least squares on the whole matrix: exact, for few hosts."""
        size = len(self._gather(y))
        matrix = np.stack([self.apply(column) for column in np.eye(size)], axis=1)
        ridge = 1e-12 * float(np.trace(matrix)) / size
        return np.linalg.lstsq(matrix + ridge * np.eye(size), self._gather(y), rcond=None)[0].astype(np.float64)

    def iterate(self, y: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
        """Conjugate gradients with the diagonal as preconditioner, from the last round's answer."""
        diagonal = self._gather(np.ones(len(y)))
        if self.slope is not None:
            diagonal[self.hosts :] = np.bincount(self.host, self.weight * self.slope**2, self.hosts)
        scale = 1.0 / np.maximum(diagonal, 1e-12 * float(diagonal.max(initial=1.0)))
        right = self._gather(y)
        found = start.copy()
        rest = right - self.apply(found)
        towards = scale * rest
        direction, product = towards.copy(), float(rest @ towards)
        limit = _TOLERANCE**2 * max(float(right @ (scale * right)), 1e-300)
        for _ in range(_ITERATIONS):
            if product <= limit:
                break
            image = self.apply(direction)
            step = product / float(direction @ image)
            found += step * direction
            rest -= step * image
            towards = scale * rest
            before, product = product, float(rest @ towards)
            direction = towards + product / before * direction
        return found


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
    """Connected components of hosts over shared instances; samples are ordered by instance."""
    label = np.arange(hosts)
    first = np.flatnonzero(np.diff(instance, prepend=-1))
    while True:
        least = np.minimum.reduceat(label[host], first)
        found = label.copy()
        np.minimum.at(found, host, least[instance])
        found = found[found]
        if np.array_equal(found, label):
            return np.unique(label, return_inverse=True)[1]
        label = found
