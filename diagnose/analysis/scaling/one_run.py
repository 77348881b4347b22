"""From one run alone: an estimate at twice its size, from the network model and the spread of the ranks.

Source: ring all-reduce moves 2 (N-1)/N of the buffer, in 2 (N-1) hops (Thakur et al., IJHPCA 2005); the slowest of N
ranks of spread s comes s E[max N] after the mean (Blom 1958).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from diagnose.analysis.scaling.ensemble import RUN_NOISE
from diagnose.analysis.scaling.interval import Z90
from diagnose.analysis.scaling.parts import expected_maximum
from diagnose.analysis.scaling.words import percent

ASSUMPTIONS = (
    "weak scaling: every rank keeps its work",
    "same parallel layout; groups inside a node keep their size, those across nodes grow with the job",
    "collectives run as rings or trees: the bandwidth part grows as (N-1)/N, the fixed cost between log2 N and N-1",
    "the network keeps its bandwidth per node: no new tier, no oversubscription",
    "ranks vary independently, with the spread of the ordinary ranks of this run; no straggler is added",
)

INSIDE = "intra-node"
NEIGHBOURS = ("send", "recv")
"""Point to point: stages keep their neighbours, whatever the size."""


class NetworkPart(NamedTuple):
    """One class of collectives: its group, its exposed transfer per step, the share of it that is fixed cost.

    ``latency_ratio`` is null where the sizes of messages do not tell it.
    """

    tier: str | None
    collective: str
    group_size: int
    exposed_transfer_ns: float
    latency_ratio: float | None
    busbw_bytes_per_s: float | None = None


class OneRun(NamedTuple):
    """What one run tells: ranks, hosts, step and parts in ns per step, spread of ranks' own work, its network."""

    gpus: int
    hosts: int | None
    step_ns: float
    exposed_wait_ns: float
    exposed_transfer_ns: float
    spread_ns: float
    network: tuple[NetworkPart, ...] = ()


class Estimate(NamedTuple):
    """Step time and efficiency at a larger size, with the range the model leaves open; null where it cannot tell.

    The range spans the mechanisms and the noise between two runs. ``added_ns`` is what the step grows by: ``wait`` for
    more ranks, ``transfer`` over them.
    """

    gpus: int
    step_ns: float | None
    interval_ns: tuple[float, float] | None
    efficiency: float | None
    text: str
    assumptions: tuple[str, ...]
    added_ns: dict[str, float]


def estimate(run: OneRun, factor: int = 2) -> Estimate | None:
    """Step time at ``factor`` times the size; null for a single rank, which shows no communication.

    A run inside one node shows nothing of the network that a larger one would cross: it gets words, no number.
    """
    if run.gpus < 2:
        return None
    gpus = run.gpus * factor
    if run.hosts == 1:
        text = (
            f"no estimate at {gpus}: this run stays inside one host, so nothing tells what the network between hosts "
            "costs; measure two hosts"
        )
        return Estimate(gpus, None, None, None, text, (), {})
    low, middle, high = _transfer(run, factor)
    wait = run.spread_ns * (expected_maximum(gpus) - expected_maximum(run.gpus))
    step = run.step_ns + middle + wait
    noise = Z90 * RUN_NOISE * run.step_ns
    ends = (run.step_ns + low - noise, run.step_ns + high + 2 * wait + noise)
    text = (
        f"model, not measured: at {gpus} the step takes {step / run.step_ns:.3f} times as long "
        f"({ends[0] / run.step_ns:.3f} to {ends[1] / run.step_ns:.3f}), an efficiency of "
        f"{percent(run.step_ns / step)} relative to {run.gpus}"
    )
    added = {"transfer": middle, "wait": wait}
    return Estimate(gpus, step, ends, run.step_ns / step, text, ASSUMPTIONS, added)


def _transfer(run: OneRun, factor: int) -> tuple[float, float, float]:
    """Growth of the exposed transfer: least, likely, most. The classes' shares are those of the network model.

    Groups of several sizes are several dimensions of the layout, of which one grows: nothing tells which, so the least is none.
    """
    parts = [part for part in run.network if part.exposed_transfer_ns > 0]
    if not parts:
        parts = [NetworkPart(None, "all_reduce", run.gpus, run.exposed_transfer_ns, None)]
    total = math.fsum(part.exposed_transfer_ns for part in parts)
    scale = run.exposed_transfer_ns / total if total > 0 else 0.0
    ends = [_grown(part, factor) for part in parts]
    low, middle, high = (math.fsum(end[i] for end in ends) * scale for i in range(3))
    sizes = {part.group_size for part in parts if part.tier != INSIDE and part.collective not in NEIGHBOURS}
    return 0.0 if len(sizes) > 1 else low, middle, high


def _grown(part: NetworkPart, factor: int) -> tuple[float, float, float]:
    """Least, likely and most growth of one class.

    Fixed cost is the start of a kernel, which does not grow, a tree, or the hops of a ring; where it is not known,
    the most is that all of the transfer grows as a tree.
    """
    size = part.group_size
    if part.tier == INSIDE or part.collective in NEIGHBOURS or size < 2:
        return 0.0, 0.0, 0.0
    large = size * factor
    ring = ((large - 1) / large) / ((size - 1) / size) - 1
    tree, hops = math.log2(large) / math.log2(size) - 1, (large - 1) / (size - 1) - 1
    if part.latency_ratio is None:
        moved = part.exposed_transfer_ns
        return moved * ring, moved * ring, moved * max(ring, tree)
    fixed = part.exposed_transfer_ns * min(max(part.latency_ratio, 0.0), 1.0)
    moved = (part.exposed_transfer_ns - fixed) * ring
    return moved, moved + fixed * tree, moved + fixed * hops
