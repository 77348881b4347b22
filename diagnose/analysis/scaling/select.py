"""Choosing the points that lie on one curve; every other point is named with its reason."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling import shape, tiers
from diagnose.analysis.scaling.table import GROWTH_TOLERANCE, to_rate
from diagnose.analysis.scaling.words import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from diagnose.analysis.scaling.table import Curve, Point


class Warned(NamedTuple):
    """Something the user must know. ``doubt`` lowers the confidence of predictions."""

    code: str
    text: str
    doubt: bool = True


class Judged(NamedTuple):
    """A point, whether it is on the curve, and if not why."""

    point: Point
    used: bool
    why: str | None


class Selection(NamedTuple):
    """All points in order of size with their verdicts; ``cliff`` is the drop between tiers, if one is visible."""

    judged: tuple[Judged, ...]
    warnings: tuple[Warned, ...]
    cliff: tiers.Cliff | None
    refused: str | None

    @property
    def used(self) -> list[Point]:
        """The points on the curve, by size."""
        return [item.point for item in self.judged if item.used]


class _Draft:
    """The points still on the curve, the reasons of the others, the warnings so far."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.kept = sorted(points, key=lambda point: point.gpus)
        self.reasons: dict[int, str] = {}
        self.warnings: list[Warned] = []

    def drop(self, points: Iterable[Point], why: str | Callable[[Point], str]) -> None:
        gone = list(points)
        for point in gone:
            self.reasons[id(point)] = why if isinstance(why, str) else why(point)
        self.kept = [point for point in self.kept if id(point) not in self.reasons]

    def warn(self, code: str, text: str, doubt: bool = True) -> None:  # noqa: FBT001, FBT002 - one place, read as a word
        self.warnings.append(Warned(code, text, doubt))


def select(curve: Curve) -> Selection:
    """Judge every point of a curve.

    The order matters: configurations first, then what cannot be one job, then tiers, then single bad points; each test
    sees only what the earlier ones left.
    """
    draft = _Draft(curve.points)
    _one_model(draft)
    _one_batch(draft)
    _one_per_size(draft)
    cliff: tiers.Cliff | None = None
    refused = None
    if curve.kind == "time_to_train":
        refused = (
            "time-to-train mixes convergence (a larger batch needs more samples) with speed: no scaling curve is "
            "fitted and nothing "
            "is predicted; give tokens/s, samples/s or the step time"
        )
        draft.warn("time_to_train", refused)
    else:
        _contradicting_steps(draft, curve)
        _configuration_break(draft, curve)
        _counting_error(draft)
        cliff = _tiers(draft, curve)
        _outlier(draft)
        _super_linear(draft)
        _falling(draft)
    judged = tuple(
        Judged(
            point,
            id(point) not in draft.reasons and refused is None,
            draft.reasons.get(id(point)) or (refused and "time-to-train"),
        )
        for point in sorted(curve.points, key=lambda point: (point.gpus, point.model or "", point.rate))
    )
    return Selection(judged, tuple(draft.warnings), cliff, refused)


def _one_model(draft: _Draft) -> None:
    models = Counter(point.model for point in draft.kept)
    if len(models) < 2:
        return
    largest = {name: max(p.gpus for p in draft.kept if p.model == name) for name in models}
    chosen = max(models, key=lambda name: (models[name], largest[name], name or ""))
    others = sorted(str(name) for name in models if name != chosen)
    draft.drop(
        [p for p in draft.kept if p.model != chosen],
        lambda p: f"another model ({p.model}); the curve is that of {chosen}",
    )
    text = (
        f"configuration changed: the table mixes models; the curve is that of {chosen} only, without "
        f"{', '.join(others)}"
    )
    draft.warn("configuration_changed", text, len(draft.kept) < 3)


def _one_batch(draft: _Draft) -> None:
    """Per-GPU batch must be constant; a global batch must be constant (strong) or grow with the size (weak)."""
    local = [
        p.local_batch if p.local_batch else p.global_batch / p.gpus if p.global_batch else None for p in draft.kept
    ]
    total = [p.global_batch for p in draft.kept]
    best: list[Point] | None = None
    name = ""
    for label, values in (("batch per GPU", local), ("global batch", total)):
        if any(value is None for value in values):
            continue
        groups = Counter(round(value, 6) for value in values if value)
        common, _ = max(groups.items(), key=lambda item: (item[1], item[0]))
        kept = [
            p
            for p, value in zip(draft.kept, values, strict=True)
            if value and abs(math.log(value / common)) < GROWTH_TOLERANCE
        ]
        if best is None or len(kept) > len(best):
            best, name = kept, label
    if best is None or len(best) == len(draft.kept):
        return
    keep = {id(point) for point in best}
    gone = [point for point in draft.kept if id(point) not in keep]
    draft.drop(gone, f"another {name} than most points")
    draft.warn(
        "configuration_changed",
        f"configuration changed: the {name} differs at {_sizes(gone)}; left out",
    )


def _one_per_size(draft: _Draft) -> None:
    """Several configurations of one size: the fastest stands for it, as it would in use."""
    fastest = {point.gpus: point for point in sorted(draft.kept, key=lambda point: point.rate)}
    gone = [point for point in draft.kept if fastest[point.gpus] is not point]
    if not gone:
        return
    draft.drop(gone, "another configuration of this size is faster")
    text = f"configuration changed: {_sizes(gone)} stand there with several batches; the fastest is used"
    draft.warn("configuration_changed", text)


def _contradicting_steps(draft: _Draft, curve: Curve) -> None:
    """Throughput times step time is the work of a step: one point off by more than 10 % contradicts itself."""
    known = [p for p in draft.kept if p.step_ns]
    if curve.kind not in ("throughput", "per_gpu") or len(known) < 3:
        return
    work = [to_rate(p.value, p.gpus, curve.kind, curve.type) * (p.step_ns or 0) for p in known]
    options = [[amount / p.gpus**power for amount, p in zip(work, known, strict=True)] for power in (0, 1)]
    deviations = min(
        ([math.log(v / median(values)) for v in values] for values in options), key=lambda d: median(map(abs, d))
    )
    bad = [p for p, off in zip(known, deviations, strict=True) if abs(off) > GROWTH_TOLERANCE]
    if bad and len(bad) * 2 < len(known):
        draft.drop(bad, "data quality: the throughput contradicts the step time beside it")
        draft.warn(
            "data_quality",
            f"data quality: at {_sizes(bad)} throughput and step time contradict each other; left out, re-measure",
        )


def _configuration_break(draft: _Draft, curve: Curve) -> None:
    node = tiers.node_size(draft.kept, curve.scale)
    if len(draft.kept) < 3:
        return
    tier_step = [tiers.is_single(a, node) for a, _ in pairwise(draft.kept)]
    start = shape.last_break(draft.kept, tier_step)
    if start is None:
        return
    before, first = draft.kept[start - 1], draft.kept[start]
    gone = draft.kept[:start]
    growth = first.rate / before.rate
    why = (
        f"configuration changed: {first.gpus} is {growth:.2f} times as fast as {before.gpus}, yet larger sizes "
        "scale again: not the same job"
    )
    draft.drop(gone, why)
    draft.warn(
        "configuration_changed",
        f"configuration changed: throughput hardly grows up to {first.gpus} and then scales (proxy models, "
        "another batch, or another "
        f"network tier); only {_sizes(draft.kept)} are comparable, {_left_out(gone)}",
        len(draft.kept) < 3,
    )


def _counting_error(draft: _Draft) -> None:
    why = shape.counting_error(draft.kept)
    if why is None:
        return
    last = draft.kept[-1]
    draft.drop([last], f"data quality: {why}")
    draft.warn("data_quality", f"data quality: {last.gpus} is {why}; it is left out")


def _tiers(draft: _Draft, curve: Curve) -> tiers.Cliff | None:
    verdict = tiers.judge(draft.kept, curve.scale)
    if verdict.drop:
        draft.drop(verdict.drop, verdict.why)
    for code, text, doubt in verdict.warnings:
        draft.warn(code, text, doubt)
    return verdict.cliff


def _outlier(draft: _Draft) -> None:
    found = shape.outlier(draft.kept)
    if found is None:
        return
    index, deviation = found
    point = draft.kept[index]
    side = "above" if deviation > 0 else "below"
    draft.drop([point], f"outlier: {percent(abs(deviation))} {side} the line through the others; re-measure")
    text = (
        f"outlier: {point.gpus} lies {percent(abs(deviation))} {side} the line through the others (efficiency is "
        "non-monotone there); left out, re-measure it"
    )
    draft.warn("outlier", text, len(draft.kept) < 3)


def _super_linear(draft: _Draft) -> None:
    if len(draft.kept) < 2:
        return
    low, high, rise = shape.largest_rise(draft.kept)
    if rise <= shape.RISE:
        return
    efficiency = shape.efficiencies(draft.kept)
    start, peak = draft.kept[low], draft.kept[high]
    if efficiency[high] <= 1 + shape.RISE:
        speedup = peak.rate / draft.kept[0].rate
        ideal = peak.gpus / draft.kept[0].gpus
        above = (
            f" ({speedup:.2f} times the speed on {ideal:.0f} times the size: super-linear there)"
            if speedup > ideal
            else ""
        )
        draft.warn(
            "non_monotone",
            f"non-monotone efficiency: it rises by {percent(rise, 1)} from {start.gpus} to {peak.gpus}{above}; a single "
            "job does not do that: "
            "re-measure, or compare the configurations",
        )
        return
    gone = draft.kept[:high]
    draft.drop(
        gone,
        f"super-linear: per-GPU speed rises by {percent(efficiency[high] - 1)} up to {peak.gpus}: the configuration changed",
    )
    draft.warn(
        "super_linear",
        f"super-linear: efficiency rises by {percent(rise)} from {start.gpus} to {peak.gpus}: the configuration "
        "changed (memory freed by sharding, "
        f"micro-batch, cache); {_left_out(gone)}, and a curve over such points says nothing about the "
        "network",
    )


def _falling(draft: _Draft) -> None:
    for before, after in pairwise(draft.kept):
        if after.rate < before.rate * (1 - shape.FALL):
            draft.warn("falling", f"throughput falls from {before.gpus} to {after.gpus}: more is slower there")


def _left_out(points: Sequence[Point]) -> str:
    return f"{_sizes(points)} {'is' if len(points) == 1 else 'are'} left out"


def _sizes(points: Sequence[Point]) -> str:
    return ", ".join(str(point.gpus) for point in points)
