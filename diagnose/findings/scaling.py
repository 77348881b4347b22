"""Findings of scaling curves: plateau and its cause, cliff between tiers, bad points, one curve against another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from diagnose.analysis.scaling.predict import Z90
from diagnose.analysis.scaling.table import to_rate
from diagnose.model import Evidence, Finding, Impact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import ScalingResult
    from diagnose.model import Severity

CRITICAL_EFFICIENCY = 0.6
WARNING_EFFICIENCY = 0.8
INFO_EFFICIENCY = 0.95
"""Efficiency at the largest size: below 60 % nearly half the machine is lost, below 80 % a fifth."""

SMALLEST_REGRESSION = 0.03
"""Runs differ by 1 % without a cause: below 3 % two curves are not called different."""

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
_GENERAL = (
    "Record traces at two sizes and give their stores to `diagnose scaling`: the parts name what bends the curve.",
)


def scaling_findings(result: ScalingResult) -> list[Finding]:
    """Findings of one curve, the worst first."""
    found = [finding for finding in (_plateau(result), _cliff(result)) if finding is not None]
    found += [_bad_data(code, text) for code, text, _ in result.warnings if code in _DATA_TITLES]
    return found


_DATA_TITLES = {
    "data_quality": "A point contradicts the others",
    "outlier": "A point lies off the curve",
    "non_monotone": "Efficiency rises and falls",
    "super_linear": "Super-linear scaling: the configuration changed",
    "configuration_changed": "The table mixes configurations",
}


def _plateau(result: ScalingResult) -> Finding | None:
    if result.curved is None or len(result.measured) < 2:
        return None
    last = result.measured[-1]
    marginal_low = result.plateau is not None and result.plateau.gpus is not None
    if last.efficiency >= INFO_EFFICIENCY and not marginal_low:
        return None
    severity: Severity = "info"
    if last.efficiency < CRITICAL_EFFICIENCY:
        severity = "critical"
    elif last.efficiency < WARNING_EFFICIENCY or marginal_low:
        severity = "warning"
    first = result.measured[0].gpus
    scale = result.curve.scale
    culprit = result.bend.culprit if result.bend else None
    evidence = [
        Evidence(
            f"parallel efficiency at {last.gpus} {scale}, relative to {first}",
            last.efficiency,
            "ratio",
            "scaling table",
        )
    ]
    evidence += [
        Evidence(item.text, item.gpus, scale, "fit")
        for item in (result.efficiency_floor, result.plateau)
        if item is not None
    ]
    if result.bend:
        evidence += [
            Evidence(f"growth of {part.name} per unit of work", round(part.growth_ns), "ns", "breakdown")
            for part in result.bend.parts
            if part.growth_ns > 0
        ]
    message = (
        f"{last.gpus} {scale} run at {last.efficiency:.0%} of the efficiency of {first}: {last.speedup:.2f} "
        f"times the speed on {last.ideal:.4g} times the size."
    )
    message += (
        f" {result.bend.text[0].upper()}{result.bend.text[1:]}."
        if result.bend and culprit
        else " What bends the curve is not known from throughput alone."
    )
    return Finding(
        code="scaling_plateau",
        title="More GPUs help less and less",
        severity=severity,
        cause="scaling_plateau",
        message=message,
        impact=Impact(step_ratio=1 - last.efficiency),
        confidence=0.9 if len(result.measured) >= 3 else 0.5,
        evidence=tuple(evidence),
        actions=_ACTIONS.get(culprit or "", _GENERAL),
    )


def _cliff(result: ScalingResult) -> Finding | None:
    cliff = result.selection.cliff
    if cliff is None:
        return None
    severity: Severity = "warning" if cliff.kept_ratio < WARNING_EFFICIENCY else "info"
    return Finding(
        code="scaling_tier_cliff",
        title="Leaving the node costs speed",
        severity=severity,
        cause="scaling_plateau",
        message=(
            f"From {cliff.before_gpus} to {cliff.after_gpus} {result.curve.scale} each GPU keeps "
            f"{cliff.kept_ratio:.0%} of its speed: the network between nodes carries what the links inside a node "
            "carried before."
        ),
        impact=Impact(step_ratio=1 - cliff.kept_ratio),
        confidence=0.9 if cliff.next_marginal is not None else 0.5,
        evidence=(Evidence("speed per GPU kept when leaving the node", cliff.kept_ratio, "ratio", "scaling table"),),
        actions=(
            "Check the transports of a two-node run (`diagnose run` with NCCL logs): RDMA, GPUDirect, NICs used.",
            "Shard inside the node first, so that less data crosses the network.",
        ),
    )


def _bad_data(code: str, text: str) -> Finding:
    return Finding(
        code=f"scaling_{code}",
        title=_DATA_TITLES[code],
        severity="info",
        cause="data_quality",
        message=text[0].upper() + text[1:] + ".",
        actions=("Measure the point again with the same model, batch and software, or leave it out.",),
    )


def curve_regression(base: ScalingResult, new: ScalingResult) -> list[Finding]:
    """One curve against another at the sizes both measured: slower by more than noise and 3 %.

    Both must be in the same unit; sizes left out of either curve are not compared.
    """
    if base.curve.kind != new.curve.kind or base.curve.unit.lower() != new.curve.unit.lower():
        return []
    before = {point.gpus: point for point in base.selection.used}
    noise = Z90 * math.hypot(base.noise[0], new.noise[0])
    changes: list[tuple[int, float]] = []
    for point in new.selection.used:
        if other := before.get(point.gpus):
            rates = (to_rate(p.value, p.gpus, new.curve.kind, "weak") for p in (other, point))
            changes.append((point.gpus, math.log(next(rates) / next(rates))))
    slower = [(gpus, change) for gpus, change in changes if change > max(noise, math.log1p(SMALLEST_REGRESSION))]
    if not slower:
        return []
    worst_gpus, worst = max(slower, key=lambda item: item[1])
    loss = -math.expm1(-worst)
    return [
        Finding(
            code="scaling_regression",
            title="Slower than the base curve",
            severity="critical" if loss > 0.1 else "warning",
            cause="regression",
            message=(
                f"At {len(slower)} of {len(changes)} common sizes the new curve is slower, most at "
                f"{worst_gpus}: {loss:.1%} less throughput. {_grows(changes)}"
            ),
            impact=Impact(step_ratio=math.expm1(worst)),
            confidence=0.9 if len(slower) > 1 else 0.7,
            evidence=tuple(
                Evidence(f"throughput change at {gpus}", math.expm1(-change), "ratio", "both tables")
                for gpus, change in changes
            ),
            actions=(
                "Compare two runs at the worst size with `diagnose compare`: it names the part of the step that grew.",
            ),
        )
    ]


def _grows(changes: Sequence[tuple[int, float]]) -> str:
    if len(changes) < 2:
        return "One common size does not tell whether the loss grows with the size."
    rise = changes[-1][1] - changes[0][1]
    if rise > math.log1p(SMALLEST_REGRESSION):
        return "The loss grows with the size: communication or waiting."
    return "The loss is the same at every size: look at compute, input or the host, not at the network."
