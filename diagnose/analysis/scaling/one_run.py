"""From one run alone: an estimate at twice its size, from a network model and the spread of the ranks.

Source: ring all-reduce moves 2 (N-1)/N of the buffer, in 2 (N-1) hops (Thakur et al., IJHPCA 2005); the slowest of N
ranks of spread s comes s E[max N] after the mean (Blom 1958).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from diagnose.analysis.scaling.parts import expected_maximum

ASSUMPTIONS = (
    "weak scaling: every rank keeps its work",
    "same parallel layout; only the data-parallel group grows",
    "collectives run as rings: the bandwidth part grows as (N-1)/N, the latency part as N-1",
    "the network keeps its bandwidth per node: no new tier, no oversubscription",
    "ranks vary independently, with the spread seen in this run; no straggler is added",
)


class OneRun(NamedTuple):
    """What one run tells: ranks, step and parts in ns per step, spread of ranks' own work, latency part of transfer.

    ``latency_ns`` is null when the sizes of messages do not tell it.
    """

    gpus: int
    step_ns: float
    exposed_wait_ns: float
    exposed_transfer_ns: float
    spread_ns: float
    latency_ns: float | None


class Estimate(NamedTuple):
    """Step time and relative throughput at a larger size, with the range the model leaves open."""

    gpus: int
    step_ns: float
    interval_ns: tuple[float, float]
    efficiency: float
    text: str
    assumptions: tuple[str, ...]


def estimate(run: OneRun, factor: int = 2) -> Estimate | None:
    """Step time at ``factor`` times the size; null for a single rank, which shows no communication."""
    if run.gpus < 2:
        return None
    gpus = run.gpus * factor
    wait = run.spread_ns * (expected_maximum(gpus) - expected_maximum(run.gpus))
    bandwidth = ((gpus - 1) / gpus) / ((run.gpus - 1) / run.gpus)
    hops = (gpus - 1) / (run.gpus - 1)
    tree = math.log2(gpus) / math.log2(run.gpus)
    latency = min(run.latency_ns or 0.0, run.exposed_transfer_ns)
    moved = run.exposed_transfer_ns - latency
    grown = moved * (bandwidth - 1)
    low = run.step_ns + grown + latency * (tree - 1)
    middle = run.step_ns + grown + latency * (hops - 1) + wait
    if run.latency_ns is None:
        high = run.step_ns + run.exposed_transfer_ns * (tree - 1) + 2 * wait
    else:
        high = run.step_ns + grown + latency * (hops - 1) + 2 * wait
    ends = (min(low, middle), max(high, middle))
    text = (
        f"model, not measured: at {gpus} the step takes {middle / run.step_ns:.3f} times as long "
        f"({ends[0] / run.step_ns:.3f} to {ends[1] / run.step_ns:.3f}), an efficiency of "
        f"{run.step_ns / middle:.0%} relative to {run.gpus}"
    )
    return Estimate(gpus, middle, ends, run.step_ns / middle, text, ASSUMPTIONS)
