"""Connections inside hosts and between rails: do GPUs of one host reach each other directly, do rails match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.rails import rails
from diagnose.analysis.comm_audit.transports import inside_hosts
from diagnose.analysis.comm_audit.view import View, line_evidence, named, names, view
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, NotChecked


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Findings on links inside hosts and on rails."""
    seen = view(facts.tables)
    if seen.records.empty:
        return
    yield from _inside(facts, seen)
    yield from _rails(facts, seen)


def _restriction(seen: View) -> dict[str, Any] | None:
    """A setting of the user that forbids or narrows peer-to-peer access."""
    for row in seen.records.env.iter_rows(named=True):
        if row["origin"] != "environment":
            continue
        disabled = row["name"] == "NCCL_P2P_DISABLE" and row["value"] not in {"0", ""}
        if disabled or (row["name"] == "NCCL_P2P_LEVEL" and row["value"] != "SYS"):
            return row
    return None


def _inside(facts: Facts, seen: View) -> Iterator[Finding]:
    hosts = inside_hosts(seen.records)
    shm = [row for row in hosts if row.shm and not row.p2p]
    p2p = [row for row in hosts if row.p2p and not row.shm]
    if seen.scale.multi_node is False:
        net = [row for row in seen.records.links.iter_rows(named=True) if row["family"] == "NET"]
        if net:
            yield facts.rules["COM-NET-INSIDE"].finding(
                fields={
                    "lines": sum(row["lines"] for row in net),
                    "hosts": names(row["host"] for row in net),
                    "network": net[0]["network"],
                },
                hosts=named(row["host"] for row in net),
                evidence=line_evidence(net, "{lines} lines via {kind}/{nic}"),
            )
    if not shm:
        return
    lines = sum(row.shm for row in shm)
    affected = named(row.host for row in shm)
    evidence = line_evidence([row.example for row in shm if row.example], "{lines} lines via {kind}")
    setting = _restriction(seen)
    text = names(row.host for row in shm)
    if setting is not None:
        said = f"{setting['name']}={setting['value']}"
        source = Evidence(said, source=f"{setting['path']}:{setting['line']}")
        yield facts.rules["COM-P2P-ENV"].finding(
            fields={"setting": said, "name": setting["name"], "lines": lines, "hosts": text},
            hosts=affected,
            evidence=[source, *evidence],
        )
    elif p2p:
        yield facts.rules["COM-P2P-SOME"].finding(
            fields={"hosts": text, "others": names(row.host for row in p2p)}, hosts=affected, evidence=evidence
        )
    else:
        yield facts.rules["COM-SHM"].finding(
            fields={"lines": lines, "hosts": text}, hosts=affected, confidence=0.8, evidence=evidence
        )


def _rails(facts: Facts, seen: View) -> Iterator[Finding]:
    found = rails(facts.tables, seen)
    if found is None:
        return
    yield facts.rules["COM-RAIL"].finding(
        "critical" if found.stuck else "warning",
        fields={"text": found.text, "reason": found.reason},
        hosts=named(row["host"] for row in found.rows),
        ranks=seen.ranks.of(found.rows),
        devices=[f"NIC {row['nic']}" for row in found.rows if row["nic"] is not None],
        confidence=0.8 if found.stuck else 0.6,
        evidence=[
            *line_evidence(found.rows, "channel {channel}: {source} -> {target} {direction} via {kind}/{nic}"),
            *found.evidence,
        ],
    )
