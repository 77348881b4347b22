"""Which transport connections take: by kind, host and rank; GPUDirect RDMA; sockets among RDMA; links inside a host."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from diagnose.analysis.comm_audit.records import Records

Gdr = Literal["all", "some", "none", "unknown"]

SOCKET_NETWORKS = ("Socket", "FastSocket")
OWN_GPU_DIRECT = re.compile(r"FasTrak|GPUDirectTCPX", re.IGNORECASE)
"""Networks that move GPU memory by their own means and never print GDRDMA."""

GDR_STATED_SINCE = (2, 6)
"""Before, connection lines could leave GPUDirect out though it was on (NVIDIA/nccl issue 392)."""

ODD_LINES_RATIO = 0.02
"""Share of lines below which a different suffix may be one torn line and is not believed (measured: 0.5 to 0.9 % of
lines are torn where ranks share one stream)."""


_PATH_TYPES: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = (
    ((2, 27), ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")),
    ((2, 26), ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "DIS")),
    ((2, 18), ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "DIS")),
    ((2, 12), ("LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS")),
    ((2, 8), ("LOC", "NVL", "NVB", "PIX", "PXB", "PHB", "SYS")),
    ((2, 6), ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS", "NET")),
    ((2, 4), ("PIX", "PXB", "PHB", "NODE", "SYS")),
)
"""Names of the numbers in "distance", by the first release that counts so."""


class GdrStatus(NamedTuple):
    """GPUDirect RDMA over all RDMA connections; ``off`` are the link rows without it."""

    state: Gdr
    on_lines: int
    off_lines: int
    off: list[dict[str, Any]]
    on: list[dict[str, Any]]


def by_kind(records: Records) -> dict[str, int]:
    """Connection lines of each transport, as printed and without device numbers."""
    counts: dict[str, int] = {}
    for row in records.links.iter_rows(named=True):
        counts[row["kind"]] = counts.get(row["kind"], 0) + row["lines"]
    return dict(sorted(counts.items()))


def is_socket(network: str | None) -> bool:
    """Whether a network is TCP."""
    return network in SOCKET_NETWORKS


def gdr_status(records: Records) -> GdrStatus:
    """Whether RDMA connections go straight to GPU memory. "Not stated" is not "off"."""
    rows = [
        row
        for row in records.links.iter_rows(named=True)
        if row["gdr"] is not None and not is_socket(row["network"]) and not OWN_GPU_DIRECT.search(row["network"] or "")
    ]
    on, off = [row for row in rows if row["gdr"]], [row for row in rows if not row["gdr"]]
    on_lines, off_lines = (sum(row["lines"] for row in part) for part in (on, off))
    if not rows:
        return GdrStatus("unknown", 0, 0, [], [])
    if not on:
        old = {version(text) for text in records.processes["version"] if text is not None}
        state: Gdr = "unknown" if old and max(old) < GDR_STATED_SINCE else "none"
    elif not off or _odd(off_lines, on_lines):
        state = "all"
    elif _odd(on_lines, off_lines):
        state = "none"
    else:
        state = "some"
    return GdrStatus(state, on_lines, off_lines, off, on)


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version such as 2.27.3+cuda12.9."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+", 1)[0])[:3])


def path_type(library_version: str | None, number: int) -> str:
    """The name of a path type; the bare number where the release is unknown: 8 is PHB in 2.27 and SYS in 2.26."""
    if library_version is not None:
        found = version(library_version)
        for since, kinds in _PATH_TYPES:
            if found >= since:
                return f"{kinds[number]} ({number})" if number < len(kinds) else str(number)
    return str(number)


def networks(records: Records) -> dict[str | None, set[str]]:
    """Networks that each host uses for connections, else for its communicators. Hosts without a name are None."""
    found: dict[str | None, set[str]] = {}
    for row in records.links.iter_rows(named=True):
        if row["family"] == "NET" and row["network"]:
            found.setdefault(row["host"], set()).add(row["network"])
    for row in records.processes.iter_rows(named=True):
        if row["network"] and row["host"] not in found:
            found.setdefault(row["host"], set()).add(row["network"])
    return found


class HostLinks(NamedTuple):
    """Lines of connections inside one host by family."""

    host: str | None
    p2p: int
    shm: int
    net: int
    example: dict[str, Any] | None
    """A row that is not P2P."""


def inside_hosts(records: Records) -> list[HostLinks]:
    """Lines of each host by family: P2P and SHM cannot leave it, NET stays inside where the job has one node."""
    totals: dict[str | None, dict[str, int]] = {}
    examples: dict[str | None, dict[str, Any]] = {}
    for row in records.links.iter_rows(named=True):
        found = totals.setdefault(row["host"], {})
        found[row["family"]] = found.get(row["family"], 0) + row["lines"]
        if row["family"] == "SHM":
            examples.setdefault(row["host"], row)
    return [
        HostLinks(host, found.get("P2P", 0), found.get("SHM", 0), found.get("NET", 0), examples.get(host))
        for host, found in sorted(totals.items(), key=lambda item: str(item[0]))
    ]


def rail_crossings(pairs: pl.DataFrame) -> list[dict[str, Any]]:
    """Connections whose two ends use different rails.

    ``pairs``: one row a (channel, connection, source, target) with send_nic, receive_nic, source_device, target_device.
    Both NICs decide where both ends are seen; else the local device index of the far end against the own NIC.
    """
    crossings = []
    for row in pairs.iter_rows(named=True):
        if row["send_nic"] is not None and row["receive_nic"] is not None:
            if row["send_nic"] != row["receive_nic"]:
                crossings.append(row)
        elif (
            _small(row["source_device"])
            and _small(row["target_device"])
            and row["source_device"] != row["target_device"]
        ):
            crossings.append(row)
    return crossings


def hosts_of(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The named hosts of rows."""
    return sorted({str(row["host"]) for row in rows if row["host"] is not None})


def _small(device: object) -> bool:
    return isinstance(device, str) and device.isdecimal() and len(device) <= 2


def _odd(few: int, many: int) -> bool:
    return few < 2 or few / (few + many) < ODD_LINES_RATIO
