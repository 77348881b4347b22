"""The wire of each rank: host, NICs, transport between nodes, and the rate these NICs could carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.comm_audit.ranks import ranks
from diagnose.analysis.comm_audit.records import load
from diagnose.analysis.comm_audit.scale import scale

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Queries, Records

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "host": pl.String,
    "nics": pl.List(pl.String),
    "network": pl.String,
    "gdr": pl.Boolean,
    "nic_count": pl.Int32,
    "nic_bytes_per_s": pl.Float64,
    "host_bytes_per_s": pl.Float64,
    "rank_bytes_per_s": pl.Float64,
    "source": pl.String,
}


def node_links(tables: Queries) -> pl.DataFrame:
    """One row a rank that the logs name.

    Columns: ``nics`` that the host offers to the network in use; ``network`` of its connections to other nodes (else of
    its communicators); ``gdr`` whether all of them use GPUDirect RDMA, null when not stated; ``host_bytes_per_s`` NIC
    count times NIC rate, ``rank_bytes_per_s`` its share (host rate over the host's ranks); rates in bytes/s, null where
    no log states the NIC's rate; ``source`` file:line.
    """
    records = load(tables)
    names = ranks(records)
    gpus = scale(records).gpus_per_host
    offers = _offers(records)
    used = _used(records)
    rows = []
    for process in records.processes.iter_rows(named=True):
        found = names.of([process])
        if not found or process["host"] is None:
            continue
        host = str(process["host"])
        network, gdr = used.get((process["path"], host, process["pid"]), (process["network"], None))
        nics, rate = offers.get((host, _kind(network)), ([], None))
        total = rate * len(nics) if rate is not None and nics else None
        rows.append(
            {
                "rank": found[0],
                "host": host,
                "nics": nics,
                "network": network,
                "gdr": gdr,
                "nic_count": len(nics) or None,
                "nic_bytes_per_s": rate,
                "host_bytes_per_s": total,
                "rank_bytes_per_s": total / gpus[host] if total is not None and gpus.get(host) else None,
                "source": f"{process['path']}:{process['first_line']}",
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA).unique("rank", keep="first").sort("rank")


def _offers(records: Records) -> dict[tuple[str, str], tuple[list[str], float | None]]:
    """NIC names of (host, kind of list) and the lowest rate that is stated for one."""
    names: dict[tuple[str, str], dict[object, str]] = {}
    rates: dict[tuple[str, str], float] = {}
    for row in records.nets.iter_rows(named=True):
        key = (str(row["host"]), str(row["kind"]))
        position = row["device_index"] if row["device_index"] is not None else row["name"]
        if row["kind"] != "ofi" or "#" not in row["name"] or position not in names.get(key, {}):
            names.setdefault(key, {})[position] = row["name"]
        if row["bytes_per_s"] is not None:
            rates[key] = min(rates.get(key, row["bytes_per_s"]), row["bytes_per_s"])
    return {
        key: ([found[position] for position in sorted(found, key=str)], rates.get(key)) for key, found in names.items()
    }


def _used(records: Records) -> dict[tuple[str, str, int | None], tuple[str | None, bool | None]]:
    found: dict[tuple[str, str, int | None], tuple[str | None, bool | None]] = {}
    for row in records.links.iter_rows(named=True):
        if row["family"] != "NET":
            continue
        key = (row["path"], str(row["host"]), row["pid"])
        _, before = found.get(key, (None, row["gdr"]))
        found[key] = (row["network"], before and row["gdr"])
    return found


def _kind(network: str | None) -> str:
    if network is None or network.startswith("IB") or network in {"gIB", "UCX"}:
        return "ib"
    return "ofi" if "ibfabric" in network else "socket"
