"""GPUDirect RDMA between nodes: on, off, or on some connections only; and what the logs do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.transports import gdr_status, is_socket, networks, path_type
from diagnose.analysis.comm_audit.view import View, because, line_evidence, named, names, view
from diagnose.model import Evidence, NotChecked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

COLLECT = (
    "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING NCCL_DEBUG_FILE=/logs/nccl.%h.%p on every rank "
    "(and NCCL_DEBUG_TIMESTAMP_LEVELS=WARN,INFO from 2.26 on)"
)
_QUESTION = "Which transport does each connection take, and is GPUDirect RDMA used?"


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Findings on GPUDirect; nothing where there is no communication log."""
    seen = view(facts.tables)
    if seen.records.empty:
        return
    yield from _gdr(facts, seen)
    yield from _unanswered(seen)


def _gdr(facts: Facts, seen: View) -> Iterator[Finding]:
    status = gdr_status(seen.records)
    if seen.scale.multi_node is False:
        return
    distances = _distances(facts)
    notes = [
        row for row in seen.records.events.iter_rows(named=True) if row["code"] in {"gdr_off_reason", "gdr_no_module"}
    ]
    evidence = [*line_evidence(notes, "{message}", most=2), *distances[:2]]
    reason = because(evidence)
    if status.state == "none":
        networks_ = sorted({row["network"] for row in status.off})
        omni = any(str(name).startswith("hfi1") for name in seen.records.nets["name"].to_list())
        yield facts.rules["COM-GDR-OFF"].finding(
            fields={
                "lines": status.off_lines,
                "network": names(networks_),
                "hosts": names(row["host"] for row in status.off),
                "reason": reason
                or (
                    "hfi1 devices are Omni-Path, which moves GPU memory by its own library or not at all."
                    if omni
                    else ""
                ),
            },
            hosts=named(row["host"] for row in status.off),
            ranks=seen.ranks.of(status.off),
            devices=_nic_names(seen, status.off),
            confidence=0.7 if omni else 0.95,
            evidence=[*line_evidence(status.off, "{lines} lines via {kind}/{nic}"), *evidence],
        )
    elif status.state == "some":
        odd = sorted(status.off, key=lambda row: -row["lines"])
        places = [
            f"{row['host'] or 'a host'} NIC {row['nic']} {row['direction'] or ''} ({row['lines']} lines)" for row in odd
        ]
        yield facts.rules["COM-GDR-SOME"].finding(
            fields={
                "off": status.off_lines,
                "total": status.off_lines + status.on_lines,
                "where": names(places),
                "reason": reason,
            },
            hosts=named(row["host"] for row in odd),
            ranks=seen.ranks.of(odd),
            devices=_nic_names(seen, odd),
            evidence=[
                *line_evidence(odd, "{lines} lines via {kind}/{nic}"),
                *line_evidence(status.on, "{lines} lines via {kind}/{nic}", most=2),
                *evidence,
            ],
        )
    elif status.state == "unknown" and distances and seen.scale.multi_node:
        yield facts.rules["COM-GDR-DISTANCE"].finding(
            fields={"text": distances[0].text}, hosts=seen.scale.hosts, confidence=0.7, evidence=distances[:4]
        )


def _distances(facts: Facts) -> list[Evidence]:
    """GPUs for which every NIC is too far: "distance 8 > 5" with the path types of that release."""
    rows = facts.tables.query(
        "SELECT t.path, t.line, t.host, split_part(t.name, ' HCA ', 1) AS gpu, t.name, t.value, p.version"
        " FROM comm_topology t LEFT JOIN comm_process p"
        " ON p.path = t.path AND p.pid IS NOT DISTINCT FROM t.pid AND p.host IS NOT DISTINCT FROM t.host"
        " WHERE t.kind = 'gdr' ORDER BY t.path, t.line"
    )
    states: dict[tuple[object, object], list[dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        states.setdefault((row["path"], row["gpu"]), []).append(row)
    found = []
    for group in states.values():
        if all(row["value"].startswith("Disabled") for row in group):
            _, have, limit = group[0]["value"].split(" ")
            far, near = (path_type(group[0]["version"], int(number)) for number in (have, limit))
            text = f"{group[0]['name']}: distance {far} above the limit {near}, GPUDirect RDMA disabled"
            found.append(Evidence(text, source=f"{group[0]['path']}:{group[0]['line']}"))
    return found


def _nic_names(seen: View, rows: Iterable[dict[str, Any]]) -> list[str]:
    known = {
        (row["host"], row["device_index"]): row["name"]
        for row in seen.records.nets.iter_rows(named=True)
        if row["kind"] in {"ib", "ofi"}
    }
    return sorted({known.get((row["host"], row["nic"]), f"NIC {row['nic']}") for row in rows})


def _unanswered(seen: View) -> Iterator[NotChecked]:
    if seen.records.processes.is_empty():
        return
    if seen.records.links.is_empty():
        yield NotChecked(_QUESTION, "the logs hold no connection line (level too low, or the part is missing)", COLLECT)
    elif seen.scale.multi_node and gdr_status(seen.records).state == "unknown" and not _only_sockets(seen):
        yield NotChecked(
            "Is GPUDirect RDMA used between nodes?", "no connection line states it; not stated is not off", COLLECT
        )


def _only_sockets(seen: View) -> bool:
    return all(is_socket(name) for found in networks(seen.records).values() for name in found)
