"""Findings of scaling curves: plateau and its cause, cliff between tiers, bad points, one curve against another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diagnose.analysis.scaling.interval import Z90
from diagnose.analysis.scaling.table import to_rate
from diagnose.analysis.scaling.words import sizes_word
from diagnose.findings.rules import RuleBook
from diagnose.model import Evidence, Finding, Impact
from diagnose.units import format_ratio, opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import ScalingResult
    from diagnose.findings.rules import Rule
    from diagnose.model import Severity

SURE, UNSURE = 0.9, 0.5
"""Confidence with a third point, or a second common size, and without."""

_ACTIONS = {
    "exposed_transfer": (
        "Compare the bus bandwidth of the collectives at the largest size (`diagnose run`) with the link's.",
        "Hide more of the transfer: larger buckets earlier, gradient accumulation, sharding inside the node first.",
    ),
    "exposed_comm": ("Record traces on all ranks: only matched collectives tell waiting from moving data.",),
    "exposed_wait": (
        "Find who is waited for: `diagnose run` on the largest run names late ranks and their cause.",
        "Waiting grows with the ranks even without a straggler: reduce the spread (input, garbage collection).",
    ),
    "idle": ("See what the device waits for at the largest size: input, launch, synchronisation or pipeline bubbles.",),
    "compute": ("Compare kernels and clocks at both ends: batch, memory or throttling differ.",),
}
"""By the part of the step that bends the curve; without one, the rule's own."""

_DATA_TITLES = {
    "data_quality": "A point contradicts the others",
    "outlier": "A point lies off the curve",
    "non_monotone": "Efficiency rises and falls",
    "super_linear": "Super-linear scaling: the configuration changed",
    "configuration_changed": "The table mixes configurations",
}


def scaling_findings(result: ScalingResult, rules: RuleBook | None = None) -> list[Finding]:
    """Findings of one curve, those of the network first, then those of the measurements."""
    book = rules or RuleBook()
    found = [finding for finding in (_plateau(result, book), _cliff(result, book)) if finding is not None]
    return found + [
        book["SCALE-DATA"].finding(
            title=_DATA_TITLES[code], fields={"text": opening(text)}, devices=(code.replace("_", " "),)
        )
        for code, text, _ in result.warnings
        if code in _DATA_TITLES
    ]


def _plateau(result: ScalingResult, book: RuleBook) -> Finding | None:
    if result.curved is None or len(result.measured) < 2:
        return None
    rule, last, first = book["SCALE-PLATEAU"], result.measured[-1], result.measured[0].gpus
    marginal = result.curved.marginal(last.gpus) if result.plateau and result.plateau.gpus is not None else None
    levels = [rule.judge(efficiency=last.efficiency), rule.judge(marginal=marginal)]
    severity: Severity | None = next((level for level in ("critical", "warning", "info") if level in levels), None)
    if severity is None:
        return None
    scale = sizes_word(result.curve.scale)
    culprit = result.bend.culprit if result.bend else None
    why = "What bends the curve is not known from throughput alone."
    if result.bend and culprit:
        share = format_ratio(next(part.share for part in result.bend.parts if part.name == culprit))
        why = f"{opening(culprit.replace('_', ' '))} makes {share} of the loss."
    elif result.bend:
        why = f"{opening(result.bend.text)}."
    return rule.finding(
        severity,
        title=f"More {scale} help less and less",
        fields={
            "gpus": last.gpus,
            "scale": scale,
            "kept": last.efficiency,
            "first": first,
            "speedup": f"{last.speedup:.2f}",
            "ideal": f"{last.ideal:.4g}",
            "why": why,
        },
        impact=Impact(step_ratio=round(1 - last.efficiency, 4)),
        confidence=SURE if len(result.measured) >= 3 else UNSURE,
        evidence=_plateau_evidence(result, last.gpus, last.efficiency),
        actions=_ACTIONS.get(culprit or ""),
    )


def _plateau_evidence(result: ScalingResult, gpus: int, efficiency: float) -> list[Evidence]:
    scale, first = sizes_word(result.curve.scale), result.measured[0].gpus
    where = "run stores" if any(point.parts_ns for point in result.curve.points) else "scaling table"
    found = [Evidence(f"parallel efficiency at {gpus} {scale}, relative to {first}", efficiency, "ratio", where)]
    found += [
        Evidence(item.text, item.gpus, scale, "fit")
        for item in (result.efficiency_floor, result.plateau)
        if item is not None
    ]
    if result.bend:
        found += [
            Evidence(f"growth of {part.name} per unit of work", round(part.growth_ns), "ns", "breakdown")
            for part in result.bend.parts
            if part.growth_ns > 0
        ]
    return found


def _cliff(result: ScalingResult, book: RuleBook) -> Finding | None:
    cliff, rule = result.selection.cliff, book["SCALE-CLIFF"]
    if cliff is None or (severity := rule.judge(kept=cliff.kept_ratio)) is None:
        return None
    return rule.finding(
        severity,
        fields={
            "before": cliff.before_gpus,
            "after": cliff.after_gpus,
            "scale": sizes_word(result.curve.scale),
            "kept": cliff.kept_ratio,
        },
        impact=Impact(step_ratio=round(1 - cliff.kept_ratio, 4)),
        confidence=SURE if cliff.next_marginal is not None else UNSURE,
        evidence=(Evidence("speed per GPU kept when leaving the node", cliff.kept_ratio, "ratio", "scaling table"),),
    )


def curve_regression(base: ScalingResult, new: ScalingResult, rules: RuleBook | None = None) -> list[Finding]:
    """One curve against another at the sizes both measured: slower by more than noise and the rule's threshold.

    Both must be in the same unit; sizes left out of either curve are not compared.
    """
    rule: Rule = (rules or RuleBook())["SCALE-REGRESSION"]
    if base.curve.kind != new.curve.kind or base.curve.unit.lower() != new.curve.unit.lower():
        return []
    before = {point.gpus: point for point in base.selection.used}
    noise = Z90 * math.hypot(base.noise.ratio, new.noise.ratio)
    changes: list[tuple[int, float]] = []
    for point in new.selection.used:
        if other := before.get(point.gpus):
            rates = (to_rate(p.value, p.gpus, new.curve.kind, "weak") for p in (other, point))
            changes.append((point.gpus, math.log(next(rates) / next(rates))))
    least = max(noise, -math.log1p(-rule.limit("loss")))
    slower = [(gpus, change) for gpus, change in changes if change > least]
    if not slower:
        return []
    worst_gpus, worst = max(slower, key=lambda item: item[1])
    loss = -math.expm1(-worst)
    return [
        rule.finding(
            rule.judge(loss=loss),
            fields={
                "slower": len(slower),
                "common": len(changes),
                "worst": worst_gpus,
                "loss": loss,
                "grows": _grows(changes, least),
            },
            impact=Impact(step_ratio=round(math.expm1(worst), 4)),
            confidence=SURE if len(slower) > 1 else 0.7,
            evidence=tuple(
                Evidence(f"throughput change at {gpus}", math.expm1(-change), "ratio", "both tables")
                for gpus, change in changes
            ),
        )
    ]


def _grows(changes: Sequence[tuple[int, float]], least: float) -> str:
    if len(changes) < 2:
        return "One common size does not tell whether the loss grows with the size."
    rise = changes[-1][1] - changes[0][1]
    if rise > least:
        return "The loss grows with the size: communication or waiting."
    return "The loss is the same at every size: look at compute, input or the host, not at the network."
