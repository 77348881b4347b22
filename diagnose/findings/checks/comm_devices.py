"""NICs and interfaces: equal on all hosts, enough, of one fabric, and none that leads nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.devices import complete_lists, interfaces, nics_used, red_flag
from diagnose.analysis.comm_audit.pci import slow_links
from diagnose.analysis.comm_audit.transports import is_socket, networks
from diagnose.analysis.comm_audit.view import View, line_evidence, names, view
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, NotChecked

_MIXED_EVENTS = frozenset({"net_count_mixed", "nic_open_failed"})
_FAILED = frozenset({"connect_failed", "connect_retry"})


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Findings on devices; a job on one node needs neither NICs nor an interface."""
    seen = view(facts.tables)
    if seen.records.empty:
        return
    if seen.scale.multi_node is not False:
        yield from _different(facts, seen)
        yield from _counts(facts, seen)
        yield from _mixed(facts, seen)
        yield from _interfaces(facts, seen)
    yield from _pci(facts, seen)


def _different(facts: Facts, seen: View) -> Iterator[Finding]:
    lists = complete_lists(seen.records)
    sizes = {host: len(rows) for host, rows in lists.items()}
    events = [row for row in seen.records.events.iter_rows(named=True) if row["code"] in _MIXED_EVENTS]
    if len(set(sizes.values())) < 2 and not events:
        return
    most = max(sizes.values(), default=0)
    poor = [host for host, size in sizes.items() if size < most] if len(set(sizes.values())) > 1 else []
    if not poor:
        poor = sorted({row["host"] for row in events if row["code"] == "nic_open_failed" and row["host"]})
    counts = ", ".join(f"{host} {size}" for host, size in sorted(sizes.items())[:8])
    said = next((row["message"] for row in events), "")
    yield facts.rules["COM-NIC-DIFFER"].finding(
        fields={
            "text": f"NICs by host: {counts or 'not listed'}{'. ' if said else ''}{said[:200]}",
            "hosts": names(poor),
        },
        hosts=poor,
        ranks=seen.ranks.of(row for row in seen.records.processes.iter_rows(named=True) if row["host"] in poor),
        devices=[row["subject"] for row in events if row["subject"]],
        evidence=[
            *line_evidence(events, "{message}"),
            *line_evidence((rows[0] for rows in lists.values()), "list of {host} begins with {name}"),
        ],
    )


def _counts(facts: Facts, seen: View) -> Iterator[Finding]:
    used = nics_used(seen.records)
    fewer, unused = [], []
    for host, rows in complete_lists(seen.records).items():
        gpus = seen.scale.gpus_per_host.get(host, 0)
        if 0 < len(rows) < gpus:
            fewer.append((host, f"{host}: {len(rows)} NICs for {gpus} GPUs", rows[0]))
        idle = [row["name"] for row in rows if row["device_index"] not in used.get(host, set())]
        if used.get(host) and idle and gpus > 1:
            unused.append((host, f"{host}: no connection uses {names(idle)}", rows[0]))
    for code, found in (("COM-NIC-FEWER", fewer), ("COM-NIC-UNUSED", unused)):
        if found:
            yield facts.rules[code].finding(
                fields={"text": names((text for _, text, _ in found), most=3)},
                hosts=[host for host, _, _ in found],
                evidence=line_evidence((row for _, _, row in found), "list of {host} begins with {name}"),
            )


def _mixed(facts: Facts, seen: View) -> Iterator[Finding]:
    used = nics_used(seen.records)
    for host, rows in complete_lists(seen.records).items():
        layers = {row["link_layer"] for row in rows if row["link_layer"]}
        if len(layers) < 2:
            continue
        active = {row["link_layer"] for row in rows if row["device_index"] in used.get(host, set())}
        yield facts.rules["COM-NIC-MIXED"].finding(
            "warning" if len(active) > 1 else "info",
            fields={"hosts": host, "devices": names((f"{row['name']}/{row['link_layer']}" for row in rows), most=8)},
            hosts=[host],
            devices=[row["name"] for row in rows],
            evidence=line_evidence(rows, "{name}/{link_layer}"),
        )


def _interfaces(facts: Facts, seen: View) -> Iterator[Finding]:
    nets = networks(seen.records)
    failed = [row for row in seen.records.events.iter_rows(named=True) if row["code"] in _FAILED]
    addresses = " ".join(str(row["peer"]) for row in failed)
    flagged: dict[str | None, list[tuple[dict[str, Any], str]]] = {}
    for host, rows in interfaces(seen.records, ("socket", "bootstrap", "oob")).items():
        carries = all(map(is_socket, nets.get(host, {"Socket"})))
        for row in rows:
            why = red_flag(row["name"], row["address"])
            if (
                why is not None
                and (carries or row["kind"] == "bootstrap")
                and not (row["kind"] == "socket" and not carries)
            ):
                flagged.setdefault(host, []).append((row, why))
    if flagged:
        yield _wrong(facts, seen, flagged, failed, addresses)
    firsts = {
        host: rows[0]["name"] for host, rows in interfaces(seen.records, ("bootstrap",)).items() if host is not None
    }
    if len(set(firsts.values())) > 1:
        sockets = all(is_socket(name) for found in nets.values() for name in found) and bool(nets)
        text = ", ".join(f"{host} {name}" for host, name in sorted(firsts.items())[:8])
        yield facts.rules["COM-IF-UNEQUAL"].finding(
            "warning" if sockets else "info",
            fields={"interfaces": text},
            hosts=sorted(firsts),
            devices=sorted(set(firsts.values())),
        )


def _wrong(
    facts: Facts,
    seen: View,
    flagged: dict[str | None, list[tuple[dict[str, Any], str]]],
    failed: list[dict[str, Any]],
    addresses: str,
) -> Finding:
    """Critical where a connection takes or misses such an interface, a warning where it is only in the list."""
    pairs = [pair for found in flagged.values() for pair in found]
    used = {(row["host"], row["nic"]) for row in seen.records.links.iter_rows(named=True) if is_socket(row["network"])}
    carrying = [row for row, _ in pairs if row["kind"] == "socket" and (row["host"], row["device_index"]) in used]
    only = [row for row, _ in pairs if row["kind"] == "bootstrap" and row["device_index"] == 0]
    missed = "fe80" in addresses.lower() or "169.254." in addresses
    severe = bool(carrying or missed or only)
    shown = carrying or [row for row, _ in pairs]
    reason = (
        "Connections use it."
        if carrying
        else "Connections to such an address failed."
        if missed
        else "Ranks meet over it."
        if only
        else ""
    )
    return facts.rules["COM-IF-WRONG"].finding(
        "critical" if severe else "warning",
        fields={
            "hosts": names(flagged),
            "interfaces": names(f"{row['name']} ({why})" for row, why in pairs),
            "use": "traffic between hosts" if shown[0]["kind"] == "socket" else "the first contact",
            "reason": reason,
        },
        hosts=[host for host in flagged if host is not None],
        devices=sorted({row["name"] for row in shown}),
        confidence=0.95 if severe else 0.6,
        evidence=[*line_evidence(shown, "{kind} list: {name} {address}"), *line_evidence(failed, "{message}", most=2)],
    )


def _pci(facts: Facts, seen: View) -> Iterator[Finding]:
    for host, links in slow_links(facts.tables, seen.records).items():
        worst = links[0]
        text = (
            f"{host or 'a host'}: {worst.node} has {worst.rate / 1e9:g} GB/s, its siblings {worst.sibling / 1e9:g} GB/s"
        )
        yield facts.rules["COM-PCI"].finding(
            "warning" if worst.odd else "info",
            fields={"text": text},
            hosts=[host] if host else [],
            devices=[link.node for link in links],
            confidence=0.8 if worst.odd else 0.5,
            evidence=[Evidence(link.text, link.rate, "bytes/s", link.source) for link in links[:4]],
        )
