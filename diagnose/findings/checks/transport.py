"""Transports between nodes: is RDMA on, on every host?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.transports import inside_hosts, is_socket, networks
from diagnose.analysis.comm_audit.view import View, because, line_evidence, named, names, reasons, view
from diagnose.findings.through_hosts import through_hosts
from diagnose.model import Evidence, NotChecked
from diagnose.units import opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, Severity

_DATACENTER_GPUS = 8


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Findings on transports; nothing where there is no communication log."""
    seen = view(facts.tables)
    if seen.records.empty:
        return
    yield from _sockets(facts, seen)


def _sockets(facts: Facts, seen: View) -> Iterator[Finding]:
    found = networks(seen.records)
    on_socket = sorted((host for host, names_ in found.items() if all(map(is_socket, names_))), key=str)
    on_rdma = sorted((host for host in found if host not in on_socket), key=str)
    kinds = sorted({name for names_ in found.values() for name in names_})
    multi = seen.scale.multi_node
    if not found or multi is False:
        return
    if on_socket and on_rdma:
        yield from _some_sockets(facts, seen, on_socket, on_rdma, found)
    elif on_socket and multi:
        yield _all_sockets(facts, seen, on_socket)
    elif on_socket:
        yield from _plugin_unused(facts, seen, on_socket)
    elif len(kinds) > 1 and any(len(names_) == 1 for names_ in found.values()) and len(found) > 1:
        text = "; ".join(f"{host}: {', '.join(sorted(names_))}" for host, names_ in sorted(found.items(), key=str))
        yield facts.rules["COM-NET-MIXED"].finding(
            fields={"networks": text[:400]}, hosts=named(found), evidence=_link_lines(seen, list(found))
        )


def _some_sockets(
    facts: Facts, seen: View, on_socket: list[str | None], on_rdma: list[str | None], found: dict[str | None, set[str]]
) -> Iterator[Finding]:
    others = sorted({name for host in on_rdma for name in found[host] if not is_socket(name)})
    why = [*reasons(seen, on_socket), *_without_device(facts, on_socket)]
    moved = through_hosts(facts, named(on_socket))
    yield facts.rules["COM-SOCKET-SOME"].finding(
        fields={
            "hosts": names(on_socket),
            "network": names(sorted({name for host in on_socket for name in found[host]})),
            "others": names(others),
            "reason": because(why),
            "moved": f" {opening(moved.text)}." if moved else "",
        },
        hosts=named(on_socket),
        ranks=seen.ranks.of(_processes(seen, on_socket)),
        devices=_interfaces(seen, on_socket),
        impact=facts.impact(moved.lost_ns) if moved else None,
        persistence="persistent",
        evidence=[
            *_link_lines(seen, on_socket)[:1],
            *why[:2],
            *(moved.evidence() if moved else []),
            *_link_lines(seen, on_rdma, rdma=True)[:1],
            *_link_lines(seen, on_socket)[1:],
        ],
    )


def _without_device(facts: Facts, hosts: list[str | None]) -> list[Evidence]:
    """Hosts whose processes looked for an RDMA device and found none."""
    rows = facts.tables.query(
        "SELECT host, min(path) AS path, arg_min(line, path) AS line, any_value(value) AS value FROM comm_topology "
        "WHERE kind = 'nic' AND name = 'NET/IB' GROUP BY host ORDER BY host NULLS LAST"
    )
    return [
        Evidence(f"{row['host'] or 'a host'}: {row['value']} by NET/IB", source=f"{row['path']}:{row['line']}")
        for row in rows.iter_rows(named=True)
        if row["host"] in hosts
    ]


def _lacking_rdma(facts: Facts, seen: View, hosts: list[str | None]) -> tuple[list[str | None], list[Evidence]]:
    """Where all connections use sockets though only some hosts lack RDMA devices: those, with their lines."""
    have = {row["host"] for row in seen.records.nets.iter_rows(named=True) if row["kind"] == "ib"}
    lacking = [host for host in hosts if host not in have]
    lines = _without_device(facts, lacking) if have and lacking else []
    return (lacking, lines) if lines else (hosts, [])


def _all_sockets(facts: Facts, seen: View, hosts: list[str | None]) -> Finding:
    why = _expected(seen)
    rows = [row for row in seen.records.links.iter_rows(named=True) if is_socket(row["network"])]
    severity: Severity = "critical" if why else "warning"
    interfaces = _interfaces(seen, hosts)
    culprits, lacking = _lacking_rdma(facts, seen, hosts)
    if lacking:
        why = f"Why: {names(item.text for item in lacking)}, and a communicator has one network for all its ranks."
    return facts.rules["COM-SOCKET-ALL"].finding(
        severity,
        fields={
            "lines": sum(row["lines"] for row in rows),
            "hosts": names(hosts),
            "network": "Socket",
            "interface": names(interfaces) if interfaces else "an interface that the log does not name",
            "why": f"the job spans nodes ({seen.scale.why})",
            "reason": why or "Nothing in the log says that RDMA was expected here.",
        },
        hosts=named(culprits),
        ranks=seen.ranks.of(_processes(seen, culprits)),
        devices=interfaces,
        confidence=0.95 if rows else 0.85,
        evidence=[*lacking, *_link_lines(seen, hosts), *reasons(seen)],
    )


def _expected(seen: View) -> str:
    """What says that RDMA was expected; empty when nothing does."""
    if found := reasons(seen):
        return f"Why: {found[0].text}."
    plugin = next((row["plugin"] for row in seen.records.processes.iter_rows(named=True) if row["plugin"]), None)
    if plugin is not None:
        return f"The network plugin {plugin} was loaded but not used."
    if seen.records.processes["nvls"].any() or any(row.p2p for row in inside_hosts(seen.records)):
        return "The hosts have NVLink or peer-to-peer GPUs: such machines have RDMA NICs as a rule."
    if max(seen.scale.gpus_per_host.values(), default=0) >= _DATACENTER_GPUS:
        return "The hosts have eight or more GPUs: such machines have RDMA NICs as a rule."
    return ""


def _plugin_unused(facts: Facts, seen: View, hosts: list[str | None]) -> Iterator[Finding]:
    """Sockets on a job of unknown size: worth a word only where a plugin was loaded for something else."""
    rows = [row for row in _processes(seen, hosts) if row["plugin"]]
    if not rows:
        return
    interfaces = _interfaces(seen, hosts)
    found = reasons(seen, hosts)
    yield facts.rules["COM-PLUGIN-UNUSED"].finding(
        fields={
            "hosts": names(hosts),
            "plugin": rows[0]["plugin"],
            "interface": f" over {names(interfaces)}" if interfaces else "",
            "reason": because(found),
        },
        hosts=named(hosts),
        ranks=seen.ranks.of(rows),
        devices=interfaces,
        confidence=0.7,
        evidence=[
            *(
                Evidence(
                    f"plugin {row['plugin']}, network {row['network']}", source=f"{row['path']}:{row['first_line']}"
                )
                for row in rows[:2]
            ),
            *found,
        ],
    )


def _link_lines(seen: View, hosts: list[str | None], *, rdma: bool = False) -> list[Evidence]:
    rows = [
        row
        for row in seen.records.links.iter_rows(named=True)
        if row["host"] in hosts and row["family"] == "NET" and not (rdma and is_socket(row["network"]))
    ]
    if rows:
        return line_evidence(rows, "{lines} lines via {kind}/{nic}", most=3)
    return [
        Evidence(f"Using network {row['network']}", source=f"{row['path']}:{row['first_line']}")
        for row in _processes(seen, hosts)
        if row["network"]
    ][:3]


def _processes(seen: View, hosts: Iterable[str | None]) -> list[dict[str, Any]]:
    wanted = set(hosts)
    return [row for row in seen.records.processes.iter_rows(named=True) if row["host"] in wanted]


def _interfaces(seen: View, hosts: Iterable[str | None]) -> list[str]:
    wanted = set(hosts)
    rows = [row for row in seen.records.nets.iter_rows(named=True) if row["host"] in wanted]
    found = {row["name"] for row in rows if row["kind"] == "socket"} or {
        row["name"] for row in rows if row["kind"] == "bootstrap"
    }
    return sorted(found)
