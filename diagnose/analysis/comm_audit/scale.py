"""How large the job is: hosts, nodes, ranks, as far as the records tell; absence is not evidence.

Severity depends on it: a missing network plugin is nothing on one node and everything on two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Records

MOST_GPUS_OF_A_HOST = 16
"""HGX-2 has 16; more ranks than that need a second host, or a rack with NVLink, which prints its own nNodes."""


class Scale(NamedTuple):
    """Size of the job. ``multi_node`` is None when nothing tells."""

    multi_node: bool | None
    why: str
    hosts: tuple[str, ...]
    nranks: int | None
    gpus_per_host: dict[str, int]


def scale(records: Records) -> Scale:
    """The size that communicators, hosts and connections imply."""
    comms, links = records.comms, records.links
    hosts = tuple(sorted({str(host) for host in records.processes["host"] if host is not None}))
    nranks = _greatest(comms["nranks"].to_list())
    nodes = _greatest(comms["nnodes"].to_list())
    per_host = _gpus(records)
    net = sorted({str(kind) for kind in links.filter(links["family"].is_in(["NET", "COLLNET"]))["kind"]})
    multi, why = _several_nodes(records, nodes=nodes, hosts=len(hosts), nranks=nranks, net=net)
    return Scale(multi, why, hosts, nranks, per_host)


def _several_nodes(
    records: Records, *, nodes: int | None, hosts: int, nranks: int | None, net: list[str]
) -> tuple[bool | None, str]:
    if nodes is not None and nodes > 1:
        return True, f"nNodes {nodes}"
    if nodes == 1 and hosts < 2:
        return False, "nNodes 1"
    if hosts > 1:
        return True, f"{hosts} hosts"
    if net:
        return True, f"connections over {net[0]}"
    if nranks is not None and nranks > MOST_GPUS_OF_A_HOST:
        return True, f"{nranks} ranks"
    if _one_host_holds_all(records, nranks):
        return False, f"all {nranks} ranks on one host"
    return None, "neither nodes nor connections are stated"


def _gpus(records: Records) -> dict[str, int]:
    """GPUs of each host that take part: ranks of the greatest local group, else devices seen."""
    found: dict[str, set[object]] = {}
    local: dict[str, int] = {}
    for row in records.comms.iter_rows(named=True):
        host = str(row["host"])
        found.setdefault(host, set()).add(row["bus_id"] or row["cuda_device"] or row["pid"])
        local[host] = max(local.get(host, 0), row["local_ranks"] or 0)
    return {host: max(len(devices), local.get(host, 0)) for host, devices in found.items()}


def _one_host_holds_all(records: Records, nranks: int | None) -> bool:
    if nranks is None:
        return False
    largest = records.comms.filter(records.comms["nranks"] == nranks)
    members = {(row["path"], row["comm_rank"]) for row in largest.iter_rows(named=True)}
    return len(members) >= nranks


def _greatest(values: list[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
