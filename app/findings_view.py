"""Choosing among findings, and the pages where each can be looked into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import data

from diagnose.units import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.findings.rules import Rule
    from diagnose.report.document import Document, FindingEntry

MOST = 60
_STEP_CAUSES = ("input_stall", "checkpoint", "warm_up", "gc_pause", "allocator")
_NETWORK_CAUSES = (
    "nic_slow", "link_errors", "congestion", "oversubscription", "bandwidth_bound", "latency_bound", "wrong_protocol", "no_rdma", "partial_rdma", "no_gdr", "partial_gdr",
    "wrong_interface", "rail_mismatch", "p2p_disabled", "intra_node_link", "version_mismatch", "comm_error", "traffic_mixing", "hang",
)  # fmt: skip
NODE_CAUSES = (
    "throttling",
    "hardware_error",
    "host_slow",
    "gpu_slow",
    "gpu_memory_slow",
    "mixed_hardware",
    "nic_slow",
    "link_errors",
)


def by_fingerprint(document: Document, fingerprint: str | None) -> FindingEntry | None:
    """The finding of a link."""
    return next((item for item in document.findings if item.fingerprint == fingerprint), None)


def explained_by(document: Document, finding: FindingEntry) -> tuple[FindingEntry, ...]:
    """Findings that follow from this one."""
    return tuple(
        item for item in document.findings if item.code in finding.explains and item.fingerprint != finding.fingerprint
    )


def causes(document: Document) -> list[str]:
    """Causes that occur."""
    return sorted({item.cause for item in document.findings})


def filtered(document: Document, levels: Sequence[str], cause: str | None, words: str) -> list[FindingEntry]:
    """Findings of these severities and this cause that contain all the words."""
    wanted = words.lower().split()
    return [
        item
        for item in document.findings
        if item.severity in levels and cause in (None, item.cause) and all(word in _searched(item) for word in wanted)
    ]


def places(finding: FindingEntry) -> list[tuple[str, str, dict[str, object]]]:
    """Pages to go on with: page, words, parameters."""
    found: list[tuple[str, str, dict[str, object]]] = [
        ("ranks", f"Rank {rank} beside its peers", {"rank": rank}) for rank in finding.ranks[:4]
    ]
    if finding.steps != "all" and finding.steps:
        found.append(("steps", f"Step {finding.steps[0]}", {"step": finding.steps[0]}))
    elif finding.cause in _STEP_CAUSES:
        found.append(("steps", "Steps", {}))
    if finding.cause in _NETWORK_CAUSES:
        found += [("network", "Network", {}), ("collectives", "Collectives", {})]
    if finding.hosts or finding.cause in NODE_CAUSES:
        found.append(("nodes", "Node metrics", {"host": finding.hosts[0]} if finding.hosts else {}))
    if finding.cause == "data_quality":
        found.append(("quality", "Data quality", {}))
    return found


def rule(finding: FindingEntry) -> Rule | None:
    """The rule behind a finding."""
    book = data.rules()
    return next((item for item in book if item.code == finding.code), None)


def thresholds(found: Rule) -> list[tuple[str, str, str]]:
    """Thresholds of a rule in words: name, levels, reason."""
    rows = []
    for name, item in found.thresholds.items():
        word = "at least" if item.direction == "above" else "at most"
        levels = ((level, getattr(item, level)) for level in ("info", "warning", "critical"))
        rows.append(
            (
                name,
                ", ".join(
                    f"{level} {word} {format_value(value, item.unit)}" for level, value in levels if value is not None
                ),
                item.why,
            )
        )
    return rows


def _searched(item: FindingEntry) -> str:
    ranks = " ".join(f"rank {rank}" for rank in item.ranks)
    return " ".join((item.code, item.title, item.message, item.cause, ranks, *item.hosts, *item.devices)).lower()
