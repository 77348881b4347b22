"""What belongs together: the symptom in the traces and its physical cause in metrics and logs.

A slow rank or link gains the evidence of what its host's counters and logs show, and that finding is folded under it.
Transfers that block without a culprit are the other way round: a cause that metrics or logs prove gets their price and
explains them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diagnose.model import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

_SYMPTOMS: dict[str, frozenset[str]] = {
    "RANK-GPU": frozenset({"throttling", "gpu_slow", "hardware_error", "gpu_memory_slow", "intra_node_link"}),
    "RANK-MEMORY": frozenset({"throttling", "gpu_memory_slow", "hardware_error"}),
    "RANK-HOST": frozenset({"host_slow", "throttling", "gc_pause"}),
    "RANK-GC": frozenset({"host_slow", "throttling"}),
    "RANK-INPUT": frozenset({"input_stall", "host_slow", "traffic_mixing"}),
    "RANK-COPY": frozenset({"intra_node_link", "hardware_error"}),
    "RANK-CHECKPOINT": frozenset({"input_stall", "checkpoint"}),
    "NET-SLOW-NIC": frozenset(
        {
            "nic_slow",
            "link_errors",
            "congestion",
            "traffic_mixing",
            "wrong_interface",
            "no_rdma",
            "partial_rdma",
            "hardware_error",
        }
    ),
}
_NETWORK_SYMPTOMS = frozenset({"NET-BANDWIDTH", "NET-TAIL", "NET-LATENCY", "NET-OVERSUBSCRIPTION"})
_NETWORK_CAUSES = frozenset(
    {"nic_slow", "link_errors", "congestion", "traffic_mixing", "wrong_interface", "no_rdma", "partial_rdma", "no_gdr", "partial_gdr", "rail_mismatch",
     "wrong_protocol"}
)  # fmt: skip
_MIN_CONFIDENCE = 0.6
_EVIDENCE = 2


def related(findings: Sequence[Finding]) -> list[Finding]:
    """The same findings, with evidence, price and ``explains`` carried between those that belong together."""
    result = list(findings)
    physical = [
        finding for finding in result if finding.code not in _SYMPTOMS and finding.code not in _NETWORK_SYMPTOMS
    ]
    result = [_with_physical_evidence(finding, physical) for finding in result]
    return _with_price(result)


def _with_physical_evidence(finding: Finding, physical: Sequence[Finding]) -> Finding:
    causes = _SYMPTOMS.get(finding.code)
    if causes is None or not finding.hosts:
        return finding
    fitting = [other for other in physical if other.cause in causes and set(other.hosts) & set(finding.hosts)]
    if not fitting:
        return finding
    extra = tuple(
        Evidence(f"{other.code}: {item.text}", item.value, item.unit, item.source)
        for other in fitting
        for item in other.evidence[:_EVIDENCE]
    )
    codes = tuple(other.code for other in fitting if other.code not in finding.explains)
    return msgspec.structs.replace(
        finding,
        evidence=finding.evidence[:_EVIDENCE] + extra + finding.evidence[_EVIDENCE:],
        explains=finding.explains + codes,
        confidence=round(min(finding.confidence + 0.04, 0.99), 3),
    )


def _with_price(findings: list[Finding]) -> list[Finding]:
    """Give the blocking transfers' price to a proven cause of them, the surest one."""
    blocked = [
        item for item in findings if item.code in _NETWORK_SYMPTOMS and item.severity != "info" and not item.hosts
    ]
    proven = [
        item for item in findings
        if item.cause in _NETWORK_CAUSES and item.code not in _NETWORK_SYMPTOMS and item.code not in _SYMPTOMS
        and item.severity != "info" and item.confidence >= _MIN_CONFIDENCE
    ]  # fmt: skip
    if not blocked or not proven:
        return findings
    dearest = max(blocked, key=lambda item: item.impact.ns_per_step or 0)
    best = max(proven, key=lambda item: (item.severity == "critical", item.impact.ns_per_step or 0, item.confidence))
    bandwidth = tuple(item for item in dearest.evidence if item.unit == "bytes/s")
    price = dearest.impact if (best.impact.ns_per_step or 0) < (dearest.impact.ns_per_step or 0) else best.impact
    better = msgspec.structs.replace(
        best,
        impact=price,
        evidence=best.evidence + bandwidth,
        explains=tuple(dict.fromkeys((*best.explains, *(item.code for item in blocked)))),
    )
    return [better if item is best else item for item in findings]
