"""Why a slow rank is slow: which part of its local work is in excess, then what kind of excess it is.

The first rule with evidence wins: input, garbage collection, allocator, late launches, copies, and for compute:
other hardware, more work (counts or shapes differ), the host (everything slower), memory (only memory-bound kernels),
the device (same kernels, same shapes, a common factor). Source: algorithms, cause tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.stragglers import median

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.cross.stragglers import Judged, Work

COMPONENTS = {
    "compute_excess_ns": "compute_ns", "input_excess_ns": "idle_input_ns", "host_excess_ns": "idle_host_ns",
    "gc_excess_ns": "idle_gc_ns", "allocator_excess_ns": "idle_allocator_ns", "copy_excess_ns": "exposed_memcpy_ns",
}  # fmt: skip

_HALF = 0.5
_SPEED = 0.02
_MATRIX_CALM = 0.4
"""When matrix kernels carry less than this part of the memory-bound ones' slowdown, memory is what is slow."""

_BROAD = 0.75
"""A host that is slow slows every operator, short ones most; a device that is slow, only those it runs."""

_NOISES = 2.0
"""A breadth that ordinary ranks reach by chance says nothing of a host."""

_RESHAPED = 0.2
"""Share of compute on shapes its peers do not have. Backward operators record no shapes, so that all of a pass with
other shapes shows a third of the time in them."""


_ROUTED = 0.15
"""A rank that gets this much more than its share of the tokens has that much more to compute."""


class Facts(NamedTuple):
    """What the tree looks at, one rank at a time."""

    excess_ns: float
    components: dict[str, float]
    speed: dict[str, float | None]
    device_name: str | None
    usual_device: str | None
    has_device: bool
    transient: bool
    at_stops: bool = False
    """Its slow steps are those at which the training log shows regular stops."""

    breadth_noise: float = 0.0
    """How far the breadth of ordinary ranks is from none: few steps hold little time in short operators."""

    received_ratio: float = 0.0
    """Bytes received in all-to-all over the mean of all ranks, minus 1."""


def components(
    work: Work, judged: Judged, parts: pl.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """Per rank: own work, the role's reference, the excess by component, and the burst excess.

    Persistent ranks are compared with the ordinary ranks of their role, transient ones with their own other steps.
    """
    parts = parts.with_columns(pl.col("idle_host_ns") + pl.col("late_comm_ns").fill_null(0))
    dense = {name: _dense(work, parts, column) for name, column in COMPONENTS.items()}
    local = _dense(work, parts, "local_work_ns")
    own = median(local, 1)
    reference, burst = own.copy(), np.zeros(len(own))
    result = {name: np.zeros(len(own)) for name in COMPONENTS}
    for role in np.unique(work.roles):
        rows = np.flatnonzero(work.roles == role)
        ordinary = rows[~judged.persistent[rows]]
        if len(rows) < 2 or not len(ordinary):
            continue
        usual = median(local[ordinary], 0)
        reference[rows] = float(median(usual, 0))
        for name, matrix in dense.items():
            result[name][rows] = median(matrix[rows] - median(matrix[ordinary], 0), 1)
    for place in np.flatnonzero(judged.transient):
        hit = judged.slow[place]
        calm = ~hit if not hit.all() else hit
        reference[place] = np.nanmedian(local[place][calm])
        burst[place] = float(np.nanmean(local[place][hit] - reference[place]))
        for name, matrix in dense.items():
            result[name][place] = float(
                np.nanmean(matrix[place][hit] - (np.nanmedian(matrix[place][calm]) if not hit.all() else 0.0))
            )
    return own, reference, result, burst


def costs(work: Work, judged: Judged, parts: pl.DataFrame) -> NDArray[np.float64]:
    """What the mean step saves without each rank's excess: a rank may have become slow in the middle.

    Never more than its peers wait: excess that nobody waits for costs nothing.
    """
    local = _dense(work, parts, "local_work_ns")
    wait = _dense(work, parts, "exposed_wait_ns")
    count, steps = local.shape
    result = np.zeros(count)
    flagged = judged.persistent | judged.transient
    for place in np.flatnonzero(flagged):
        others = ~flagged | ((work.roles == work.roles[place]) & ~judged.persistent & ~judged.transient)
        others[place] = False
        rest = others & (work.roles == work.roles[place])
        if not rest.any():
            rest = others
        if not rest.any():
            continue
        others_most = np.where(np.isnan(local[rest]), -np.inf, local[rest]).max(axis=0)
        ahead = np.where(np.isfinite(others_most), local[place] - others_most, np.nan)
        waited = (
            np.where(np.isnan(wait[others]), -np.inf, wait[others]).max(axis=0)
            if others.any()
            else np.full(steps, np.inf)
        )
        waited = np.where(np.isfinite(waited), waited, np.inf)
        if judged.transient[place]:  # a pause at the end of a step is waited for in the next one
            waited = np.maximum(waited, np.concatenate((waited[1:], [0.0])))
        saving = np.clip(np.minimum(ahead, waited), 0, None)
        hit = judged.slow[place] if judged.transient[place] else np.ones(steps, bool)
        result[place] = float(np.nansum(np.where(hit, saving, 0.0))) / max(int((~np.isnan(local[place])).sum()), 1)
    return result


def cause_of(facts: Facts) -> str:
    """The contract's cause of one slow rank."""
    part = facts.components
    excess = max(facts.excess_ns, 1.0)
    share = {name: value / excess for name, value in part.items()}
    if facts.transient and _saves(facts, share):
        return "checkpoint"
    if share["input_excess_ns"] >= _HALF:
        return "input_stall"
    if share["host_excess_ns"] >= _HALF or (
        share["host_excess_ns"] > share["compute_excess_ns"] and share["host_excess_ns"] > 0.3
    ):
        if share["allocator_excess_ns"] >= 0.3:
            return "allocator"
        return "gc_pause" if share["gc_excess_ns"] >= _HALF and facts.transient else "host_slow"
    if share["copy_excess_ns"] >= _HALF:
        return "intra_node_link"
    return _compute_cause(facts)


def _saves(facts: Facts, share: dict[str, float]) -> bool:
    """Single steps spent in copies, or on the host where the log shows regular stops: the rank saves a checkpoint."""
    away = share["host_excess_ns"] + share["copy_excess_ns"]
    return share["copy_excess_ns"] >= _HALF or (facts.at_stops and away >= _HALF)


def _compute_cause(facts: Facts) -> str:
    cause = _work_cause(facts)
    routed = facts.received_ratio >= _ROUTED and cause in ("workload_imbalance", "gpu_slow", "gpu_memory_slow")
    return "moe_imbalance" if routed else cause


def _work_cause(facts: Facts) -> str:
    speed = {name: value or 0.0 for name, value in facts.speed.items()}
    if (
        facts.device_name
        and facts.usual_device
        and facts.device_name != facts.usual_device
        and speed["speed_ratio"] > _SPEED
    ):
        return "mixed_hardware"
    more = max(speed["volume_ratio"], 0.0)
    slower = max(speed["speed_ratio"], 0.0)
    if more > slower or speed["unshared_ratio"] >= _RESHAPED:
        return "workload_imbalance"
    if not facts.has_device:
        broad = speed["breadth_ratio"] - _NOISES * facts.breadth_noise
        return "host_slow" if broad >= _BROAD * slower else "gpu_slow"
    if speed["memory_ratio"] > _SPEED and speed["matrix_ratio"] < _MATRIX_CALM * speed["memory_ratio"]:
        return "gpu_memory_slow"
    return "gpu_slow"


def _dense(work: Work, parts: pl.DataFrame, column: str) -> NDArray[np.float64]:
    rows = parts.filter(pl.col("rank").is_in(work.ranks.tolist())).select(
        "rank", "step", pl.col(column).cast(pl.Float64)
    )
    matrix = np.full((len(work.ranks), len(work.steps)), np.nan)
    row = np.searchsorted(work.ranks, rows.get_column("rank").to_numpy())
    place = np.searchsorted(work.steps, rows.get_column("step").to_numpy())
    matrix[row, place] = rows.get_column(column).to_numpy()
    return matrix
