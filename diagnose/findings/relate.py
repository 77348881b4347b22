"""What belongs together: the symptom in the traces and its physical cause in metrics and logs.

Where counters or logs of a slow rank's or link's host show the cause, that cause leads: it takes over the price, the ranks
and the evidence of the traces, and the symptom and lesser causes of that host are folded under it. A symptom without a
proven cause gains what its host's counters show, or that they look normal. Transfers that block without a culprit give
their price to a cause that metrics or logs prove.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diagnose.analysis.node_metrics.correlate import evidence_for
from diagnose.model import SEVERITIES, Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.findings.facts import Tables

_OF_LINKS = frozenset(
    {"nic_slow", "link_errors", "congestion", "traffic_mixing", "wrong_interface", "no_rdma", "partial_rdma", "hardware_error"}
)  # fmt: skip
_SYMPTOMS: dict[str, frozenset[str]] = {
    "RANK-GPU": frozenset({"throttling", "gpu_slow", "hardware_error", "gpu_memory_slow", "intra_node_link"}),
    "RANK-MEMORY": frozenset({"throttling", "gpu_memory_slow", "hardware_error"}),
    "RANK-HOST": frozenset({"host_slow", "throttling", "gc_pause"}),
    "RANK-GC": frozenset({"host_slow", "throttling"}),
    "RANK-INPUT": frozenset({"input_stall", "host_slow", "traffic_mixing"}),
    "RANK-COPY": frozenset({"intra_node_link", "hardware_error"}),
    "RANK-CHECKPOINT": frozenset({"input_stall", "checkpoint"}),
    "NET-SLOW-NIC": _OF_LINKS,
    "NET-LOSSY": _OF_LINKS,
}
_NETWORK_SYMPTOMS = frozenset({"NET-BANDWIDTH", "NET-TAIL", "NET-LATENCY", "NET-OVERSUBSCRIPTION"})
_NETWORK_CAUSES = frozenset(
    {"nic_slow", "link_errors", "congestion", "traffic_mixing", "wrong_interface", "no_rdma", "partial_rdma", "no_gdr", "partial_gdr", "rail_mismatch",
     "wrong_protocol"}
)  # fmt: skip
_MIN_CONFIDENCE = 0.6
_GENERAL_CAUSES = frozenset({"gpu_slow", "nic_slow", "host_slow", "congestion", "wrong_interface", "intra_node_link"})
"""They say that a part is slow and not why: a cause that says why goes before them."""

_EVIDENCE = 2


def related(findings: Sequence[Finding], tables: Tables) -> list[Finding]:
    """The same findings, with evidence, price and ``explains`` carried between those that belong together."""
    result = list(findings)
    for symptom in findings:
        causes = _SYMPTOMS.get(symptom.code)
        if causes is None or not symptom.hosts or symptom.severity == "info":
            continue
        fitting = [
            item
            for item in result
            if item.code not in _SYMPTOMS and item.code not in _NETWORK_SYMPTOMS
            and item.cause in causes and set(item.hosts) & set(symptom.hosts)
        ]  # fmt: skip
        proven = [item for item in fitting if item.severity != "info" and item.confidence >= _MIN_CONFIDENCE]
        if not fitting:
            result = _replaced(result, symptom, _with_counters(symptom, tables))
        elif not proven:
            result = _replaced(result, symptom, _with_evidence(symptom, fitting))
        else:
            cause = min(proven, key=_directness)
            lesser = [item for item in fitting if item is not cause]
            result = _replaced(result, cause, _leading(cause, symptom, lesser))
            for item in lesser:
                result = _replaced(result, item, _under(item, cause, symptom))
    return _with_price(result)


def _replaced(findings: list[Finding], old: Finding, new: Finding) -> list[Finding]:
    return [new if item is old else item for item in findings]


def _directness(finding: Finding) -> tuple[bool, int, int, float, str]:
    """Why before what, then severity, the dearest, the surest."""
    cost = finding.impact.ns_per_step or 0
    return (
        finding.cause in _GENERAL_CAUSES, SEVERITIES.index(finding.severity), -cost, -finding.confidence, finding.code
    )  # fmt: skip


def _leading(cause: Finding, symptom: Finding, lesser: Sequence[Finding]) -> Finding:
    """The proven cause with what the traces measured of it."""
    same = set(symptom.hosts) >= set(cause.hosts)
    traces = Evidence(f"traces: {symptom.message}", source=symptom.code)
    others = tuple(item.evidence[0] for item in lesser if item.evidence)
    dearer = (symptom.impact.ns_per_step or 0) > 0
    codes = (*cause.explains, symptom.code, *(item.code for item in lesser))
    return msgspec.structs.replace(
        cause,
        severity=min(cause.severity, symptom.severity, key=SEVERITIES.index),
        ranks=symptom.ranks if same and symptom.ranks else cause.ranks,
        steps=symptom.steps,
        persistence=symptom.persistence or cause.persistence,
        impact=symptom.impact if dearer else cause.impact,
        evidence=(
            *cause.evidence[:_EVIDENCE],
            traces,
            *symptom.evidence[:_EVIDENCE],
            *others,
            *cause.evidence[_EVIDENCE:],
        ),
        explains=tuple(dict.fromkeys(code for code in codes if code != cause.code)),
        confidence=round(min(max(cause.confidence, symptom.confidence) + 0.04, 0.99), 3),
    )


def _under(finding: Finding, cause: Finding, symptom: Finding) -> Finding:
    """A lesser sign of the same fault: it costs no more than the fault, and does not explain it."""
    price = (
        symptom.impact if (finding.impact.ns_per_step or 0) > (symptom.impact.ns_per_step or 0) > 0 else finding.impact
    )
    kept = tuple(code for code in finding.explains if code not in (cause.code, symptom.code))
    return msgspec.structs.replace(finding, impact=price, explains=kept)


def _with_evidence(finding: Finding, fitting: Sequence[Finding]) -> Finding:
    """Signs that prove nothing by themselves stand beside the traces' own evidence."""
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
    )


def _with_counters(finding: Finding, tables: Tables) -> Finding:
    """What the counters of its hosts say where no rule does; nothing where there are none at all."""
    hosts = list(finding.hosts[:_EVIDENCE])
    if tables.query("SELECT 1 FROM metric_sample LIMIT 1").is_empty():
        return finding
    found = [line for lines in evidence_for(tables, hosts, None).values() for line in lines[:_EVIDENCE]]
    return msgspec.structs.replace(finding, evidence=(*finding.evidence, *found))


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
