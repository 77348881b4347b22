"""Fitting each part of the step by size, and so naming what bends the curve.

Waiting grows like the expected maximum over more ranks; a ring's transfer saturates like (N-1)/N where bandwidth binds
and grows like N-1 where latency does, a tree's like log2 N. Wait and transfer come apart by matching collectives; the
shapes then tell the mechanism. Source: Thakur et al., IJHPCA 2005 (ring and tree costs); Blom 1958 (normal maxima).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.analysis.scaling.table import Point, ScalingType

VISIBLE = 0.02
"""Growth of the whole step below 2 %: nothing bends the curve that could be told from noise."""

CONTRAST = 2.0
"""A shape is named alone when the next best leaves at least twice its squared residual."""


def expected_maximum(count: float) -> float:
    """Expected maximum of ``count`` standard normal values (Blom's approximation), 0 for one."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


SHAPES: dict[str, Callable[[float], float]] = {
    "as the maximum over more ranks": expected_maximum,
    "as a ring limited by bandwidth, (N-1)/N": lambda n: (n - 1) / n,
    "with the depth of a tree, log2 N": math.log2,
    "with hops or ranks, N-1": lambda n: n - 1,
}

_TRANSFER = ("as a ring limited by bandwidth, (N-1)/N", "with the depth of a tree, log2 N", "with hops or ranks, N-1")
_WAIT = ("as the maximum over more ranks", "with hops or ranks, N-1")
_OTHER = ("with the depth of a tree, log2 N", "with hops or ranks, N-1")

WHAT = {
    "compute": "compute per unit of work",
    "exposed_wait": "waiting for peers in collectives",
    "exposed_transfer": "communication that moves data",
    "exposed_comm": "exposed communication (wait and transfer not told apart)",
    "exposed_memcpy": "copies",
    "idle": "idle devices",
}


class PartFit(NamedTuple):
    """One part of the step: measured GPU-time per unit of work at the ends, its growth and share, its shape.

    ``at_ns`` are the measured values by size, scaled to the smallest size's share of work for strong scaling;
    ``offset_ns + slope_ns * shape(N)`` is the fit.
    """

    name: str
    at_ns: tuple[tuple[int, float], ...]
    growth_ns: float
    share: float
    shape: str | None
    alternatives: tuple[str, ...]
    offset_ns: float
    slope_ns: float

    def at(self, gpus: float) -> float:
        """Fitted GPU-time per unit of work, ns per step of the smallest size."""
        return self.offset_ns + (self.slope_ns * SHAPES[self.shape](gpus) if self.shape else 0.0)


class Bend(NamedTuple):
    """What bends the curve: the parts by growth, the culprit (null when nothing grows visibly), a sentence."""

    parts: tuple[PartFit, ...]
    culprit: str | None
    growth_ratio: float
    text: str


def bend(points: Sequence[Point], scaling: ScalingType) -> Bend | None:
    """Fit every part that all points know; null with fewer than two such points."""
    known = [point for point in points if point.parts_ns]
    if len(known) < 2:
        return None
    names = [name for name in WHAT if all(name in point.parts_ns for point in known)]
    if "exposed_wait" in names and "exposed_transfer" in names and "exposed_comm" in names:
        names.remove("exposed_comm")
    if not names:
        return None
    per_work = {name: [_work_time(point, name, known[0], scaling) for point in known] for name in names}
    growth = {name: values[-1] - values[0] for name, values in per_work.items()}
    lost = math.fsum(value for value in growth.values() if value > 0)
    fits = [_fit(name, known, per_work[name], growth[name] / lost if lost > 0 else 0.0) for name in names]
    fits.sort(key=lambda fit: -fit.growth_ns)
    total = math.fsum(values[0] for values in per_work.values())
    ratio = math.fsum(growth.values()) / total if total > 0 else 0.0
    return Bend(tuple(fits), *_culprit(fits, ratio, known))


def _work_time(point: Point, name: str, first: Point, scaling: ScalingType) -> float:
    """GPU-time of a part per unit of work: per step in weak scaling, times N / N0 in strong."""
    return point.parts_ns[name] * (point.gpus / first.gpus if scaling == "strong" else 1.0)


def _culprit(fits: Sequence[PartFit], ratio: float, points: Sequence[Point]) -> tuple[str | None, float, str]:
    first, last, top = points[0].gpus, points[-1].gpus, fits[0]
    if ratio < VISIBLE or top.growth_ns <= 0:
        flat = f"the GPU-time per unit of work grows by {percent(ratio, 1)} from {first} to {last}"
        return None, ratio, f"{flat}: nothing visible bends the curve"
    shape = f", growing {top.shape}" if top.shape else ""
    if top.alternatives:
        shape += f" (or {', or '.join(top.alternatives)}: the points do not tell)"
    others = ", ".join(f"{fit.name.replace('_', ' ')} {percent(fit.share)}" for fit in fits[1:] if fit.share >= 0.05)
    text = (
        f"{top.name.replace('_', ' ')} bends the curve: {WHAT[top.name]} makes {percent(top.share)} of the loss "
        f"from {first} to {last}{shape}"
    )
    return top.name, ratio, text + (f"; the rest: {others}" if others else "")


def _fit(name: str, points: Sequence[Point], values: Sequence[float], share: float) -> PartFit:
    shapes = {"exposed_wait": _WAIT, "exposed_transfer": _TRANSFER}.get(
        name, tuple(SHAPES) if name == "exposed_comm" else _OTHER
    )
    at = tuple((point.gpus, value) for point, value in zip(points, values, strict=True))
    growth = values[-1] - values[0]
    flat = math.fsum(values) / len(values)
    if len(points) < 3 or growth <= 0:
        return PartFit(name, at, growth, max(share, 0.0), None, (), flat, 0.0)
    lines = sorted((_line([SHAPES[shape](p.gpus) for p in points], values), shape) for shape in shapes)
    (rss, offset, slope), best = lines[0]
    close = tuple(shape for (other, _, _), shape in lines[1:] if other <= CONTRAST * rss + 1e-9)
    return PartFit(name, at, growth, max(share, 0.0), best, close, offset, slope)


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Residual sum of squares, offset and slope of the least squares line with slope >= 0."""
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((value - mean_x) ** 2 for value in x)
    slope = (
        max(math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread, 0.0)
        if spread > 0
        else 0.0
    )
    offset = mean_y - slope * mean_x
    return math.fsum((b - offset - slope * a) ** 2 for a, b in zip(x, y, strict=True)), offset, slope
