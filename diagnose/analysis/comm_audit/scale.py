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
    if nodes is not None and nodes > 1:
        return Scale(True, f"nNodes {nodes}", hosts, nranks, per_host)
    if nodes == 1 and len(hosts) < 2:  # noqa: PLR2004 - two hosts
        return Scale(False, "nNodes 1", hosts, nranks, per_host)
    if len(hosts) > 1:
        return Scale(True, f"{len(hosts)} hosts", hosts, nranks, per_host)
    if net:
        return Scale(True, f"connections over {net[0]}", hosts, nranks, per_host)
    if nranks is not None and nranks > MOST_GPUS_OF_A_HOST:
        return Scale(True, f"{nranks} ranks", hosts, nranks, per_host)
    complete = _one_host_holds_all(records, nranks)
    if complete:
        return Scale(False, f"all {nranks} ranks on one host", hosts, nranks, per_host)
    return Scale(None, "neither nodes nor connections are stated", hosts, nranks, per_host)


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
