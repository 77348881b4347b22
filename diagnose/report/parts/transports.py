"""The report's ``transports``: what the fabric is according to the communication logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.devices import interfaces, nic_lists, nics_used
from diagnose.analysis.comm_audit.records import load
from diagnose.analysis.comm_audit.scale import scale
from diagnose.analysis.comm_audit.transports import by_kind, gdr_status, networks

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Records
    from diagnose.findings.facts import Tables

_INTERFACE_KINDS = ("bootstrap", "socket", "oob")


def transports(tables: Tables) -> dict[str, Any]:
    """The section: network in use, connection lines by transport, GPUDirect RDMA, interfaces, and each host.

    ``by_kind`` counts lines as printed, without device numbers; rates are bytes/s, null where no log states them.
    """
    records = load(tables)
    found = networks(records)
    names = sorted({name for used in found.values() for name in used})
    size = scale(records)
    return {
        "network": ", ".join(names) or None,
        "by_kind": by_kind(records),
        "gdr": gdr_status(records).state,
        "nodes": {"multi_node": size.multi_node, "why": size.why, "hosts": len(size.hosts), "nranks": size.nranks},
        "versions": sorted({str(text) for text in records.processes["version"] if text is not None}),
        "interfaces": _interfaces(records),
        "per_host": _hosts(records, size.hosts),
    }


def _interfaces(records: Records) -> dict[str, list[str]]:
    """Names by use, over all hosts."""
    result = {}
    for kind in _INTERFACE_KINDS:
        names = {row["name"] for rows in interfaces(records, (kind,)).values() for row in rows}
        if names:
            result[kind] = sorted(names)
    return result


def _hosts(records: Records, hosts: tuple[str, ...]) -> list[dict[str, Any]]:
    links: dict[str, list[dict[str, Any]]] = {}
    for row in records.links.iter_rows(named=True):
        links.setdefault(row["host"], []).append(row)
    rates: dict[str, dict[str, float]] = {}
    for row in records.nets.iter_rows(named=True):
        if row["bytes_per_s"] is not None:
            rates.setdefault(row["host"], {})[row["name"]] = row["bytes_per_s"]
    counts = dict(records.processes.group_by("host").len().iter_rows())
    used, lists, nets = nics_used(records), nic_lists(records), networks(records)
    return [
        {
            "host": host,
            "processes": counts.get(host, 0),
            "network": ", ".join(sorted(nets.get(host, set()))) or None,
            **_connections(links.get(host, [])),
            "nics": [
                {
                    "index": index,
                    "name": row["name"],
                    "used": index in used.get(host, set()),
                    "bytes_per_s": rates.get(host, {}).get(row["name"]),
                }
                for index, row in sorted(lists.get(host, {}).items())
            ],
        }
        for host in hosts
    ]


def _connections(links: list[dict[str, Any]]) -> dict[str, Any]:
    kinds: dict[str, int] = {}
    for row in links:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["lines"]
    gdr = {row["gdr"] for row in links if row["gdr"] is not None}
    state = "unknown" if not gdr else "some" if len(gdr) > 1 else "all" if True in gdr else "none"
    return {"by_kind": dict(sorted(kinds.items())), "gdr": state}
