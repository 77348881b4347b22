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
        "per_host": [_host(records, host) for host in size.hosts],
    }


def _interfaces(records: Records) -> dict[str, list[str]]:
    """Names by use, over all hosts."""
    result = {}
    for kind in _INTERFACE_KINDS:
        names = {row["name"] for rows in interfaces(records, (kind,)).values() for row in rows}
        if names:
            result[kind] = sorted(names)
    return result


def _host(records: Records, host: str) -> dict[str, Any]:
    links = list(records.links.filter(records.links["host"] == host).iter_rows(named=True))
    kinds: dict[str, int] = {}
    for row in links:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["lines"]
    nics = nic_lists(records).get(host, {})
    used = nics_used(records).get(host, set())
    nets = records.nets.filter(records.nets["host"] == host)
    rates = {row["name"]: row["bytes_per_s"] for row in nets.iter_rows(named=True) if row["bytes_per_s"] is not None}
    gdr = {row["gdr"] for row in links if row["gdr"] is not None}
    return {
        "host": host,
        "processes": records.processes.filter(records.processes["host"] == host).height,
        "network": ", ".join(sorted(networks(records).get(host, set()))) or None,
        "by_kind": dict(sorted(kinds.items())),
        "gdr": "unknown" if not gdr else "some" if len(gdr) > 1 else "all" if True in gdr else "none",
        "nics": [
            {"index": index, "name": row["name"], "used": index in used, "bytes_per_s": rates.get(row["name"])}
            for index, row in sorted(nics.items())
        ],
    }
