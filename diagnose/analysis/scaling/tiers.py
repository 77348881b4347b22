"""Tiers: points inside one node ride other links than points over several, and one curve must not mix them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling import shape
from diagnose.analysis.scaling.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.table import Point

USUAL_NODE = 8
"""GPUs in a node where the table does not say: the commonest server. A column `hosts` overrules."""

ENOUGH = 3
"""Multi-node points from which single-node points are left out altogether."""

CLIFF = 0.1
"""The crossing costs this much more of a doubling than the next step does: a cliff, not a slope."""


class Cliff(NamedTuple):
    """A drop between tiers: the sizes on both sides, the efficiency kept over the step, whether throughput fell."""

    before_gpus: int
    after_gpus: int
    kept_ratio: float
    next_marginal: float | None

    @property
    def falls(self) -> bool:
        """Whether more GPUs were slower than fewer."""
        return self.kept_ratio * self.after_gpus < self.before_gpus


class Verdict(NamedTuple):
    """Points of another tier, why, the warnings (code, text, doubt), the cliff."""

    drop: list[Point]
    why: str
    warnings: list[tuple[str, str, bool]]
    cliff: Cliff | None


def node_size(points: Sequence[Point], scale: str) -> int:
    """GPUs in one node: 1 where sizes are nodes, from the hosts where given, else the usual 8."""
    if scale == "nodes":
        return 1
    known = [point.gpus // point.hosts for point in points if point.hosts]
    return max(known) if known else USUAL_NODE


def is_single(point: Point, node: int) -> bool:
    """Whether the job fits in one node."""
    return point.hosts == 1 if point.hosts else point.gpus <= node


def judge(points: Sequence[Point], scale: str) -> Verdict:
    """Which points belong to another tier than the largest."""
    node = node_size(points, scale)
    single = [point for point in points if is_single(point, node)]
    multi = [point for point in points if not is_single(point, node)]
    if not single or not multi:
        return Verdict([], "", [], None)
    cliff = _cliff(single, multi)
    drop = single if len(multi) >= ENOUGH or (cliff and len(multi) >= 2) else single[:-1]
    assumed = (
        ""
        if scale == "nodes" or any(point.hosts for point in points)
        else f" (taking {node} GPUs for a node; a column `hosts` says otherwise)"
    )
    why = f"another tier: inside one node{assumed}"
    warnings = [_mixed(single, multi, drop, assumed, cliff)]
    if cliff:
        warnings.append(_cliff_text(cliff))
    if inside := _inside(single, multi):
        warnings.append(inside)
    return Verdict(list(drop), why, warnings, cliff)


def _cliff(single: Sequence[Point], multi: Sequence[Point]) -> Cliff | None:
    before, after = single[-1], multi[0]
    crossing = shape.marginal(before, after)
    following = shape.marginal(after, multi[1]) if len(multi) > 1 else None
    reference = following if following is not None else 1.0
    if reference - crossing <= CLIFF:
        return None
    kept = (after.rate / after.gpus) / (before.rate / before.gpus)
    return Cliff(before.gpus, after.gpus, kept, following)


def _mixed(
    single: Sequence[Point], multi: Sequence[Point], drop: Sequence[Point], assumed: str, cliff: Cliff | None
) -> tuple[str, str, bool]:
    inside, outside = ", ".join(str(p.gpus) for p in single), ", ".join(str(p.gpus) for p in multi)
    lies, cross = "lies" if len(single) == 1 else "lie", "crosses" if len(multi) == 1 else "cross"
    few = "there is only one multi-node point" if len(multi) == 1 else f"there are only {len(multi)} multi-node points"
    text = (
        f"tiers: {inside} {lies} inside one node, {outside} {cross} the network{assumed}; one curve must not mix them"
    )
    kept = [point for point in single if point not in drop]
    if not kept:
        return (
            "tier_mixed",
            f"{text}, so the former {'is' if len(single) == 1 else 'are'} left out",
            len(multi) < ENOUGH,
        )
    return (
        "tier_mixed",
        f"{text}, yet {few}: {kept[-1].gpus} is kept as the start",
        bool(cliff) or len(multi) < 2,
    )


def _cliff_text(cliff: Cliff) -> tuple[str, str, bool]:
    after = (
        ""
        if cliff.next_marginal is None
        else f", while the next step buys {percent(2**cliff.next_marginal - 1)} per doubling"
    )
    falls = ": throughput falls" if cliff.falls else ""
    unsure = " (one step cannot tell a cliff from a slope)" if cliff.next_marginal is None else ""
    step = f"tier cliff: leaving the node ({cliff.before_gpus} to {cliff.after_gpus})"
    kept = f"keeps {percent(cliff.kept_ratio)} of the speed per GPU"
    return "tier_cliff", f"{step} {kept}{falls}{after}{unsure}", cliff.next_marginal is None


def _inside(single: Sequence[Point], multi: Sequence[Point]) -> tuple[str, str, bool] | None:
    """More lost inside the node than on leaving it: the network is not what bends the curve."""
    if len(single) < 2:
        return None
    lost_inside = 1 - (single[-1].rate / single[-1].gpus) / (single[0].rate / single[0].gpus)
    worst = min(shape.marginal(a, b) for a, b in pairwise([single[-1], *multi]))
    lost_outside = 1 - 2 ** (worst - 1)
    if lost_inside < 0.2 or lost_inside < 2 * lost_outside:
        return None
    speedup = single[-1].rate / single[0].rate
    text = (
        f"the loss is inside the node: {single[-1].gpus} GPUs give {speedup:.1f} times one's speed; look at the "
        "host, the input "
        "pipeline and the links inside, not at the network between nodes"
    )
    return "loss_inside_node", text, False
