"""PCI paths of GPUs in NCCL's topology dump: a GPU whose path carries less than its siblings'.

The dump is a tree by indentation; the path of a GPU is as fast as its slowest link below the CPU.
Source: NCCL src/graph/topo.cc (ncclTopoPrintRec).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Queries, Records

BELOW_RATIO = 0.6
"""Half the width or a lower generation gives 0.5 of the siblings' rate; rates of equal links are printed equal."""
NEARLY_DEAD_BYTES_PER_S = 1.5e9
"""Below one lane of generation 3 with overhead: no sound slot of a GPU is that slow."""
FEWEST_SIBLINGS = 4
"""With two or three GPUs nothing tells a broken link from a slot behind a chipset."""


class SlowLink(NamedTuple):
    """One GPU's path. ``odd``: a minority of the host's GPUs, or nearly dead."""

    node: str
    rate: float
    sibling: float
    odd: bool
    text: str
    source: str


def slow_links(tables: Queries, records: Records) -> dict[str | None, list[SlowLink]]:
    """Slow GPU paths of each host, slowest first."""
    del records
    rows = tables.query(
        "SELECT path, line, host, pid, name, value, bytes_per_s, size_bytes AS indent FROM comm_topology"
        " WHERE kind = 'link' ORDER BY path, pid, line"
    )
    found: dict[str | None, list[SlowLink]] = {}
    dumps: dict[tuple[object, object], list[dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        dumps.setdefault((row["host"], row["pid"]), []).append(row)
    for (host, _), dump in dumps.items():
        if host in found:
            continue
        paths = _gpu_paths(dump)
        rates = sorted(rate for rate, _ in paths)
        if len(rates) < 2:
            continue
        best = rates[-1]
        slow = [(rate, row) for rate, row in paths if rate < BELOW_RATIO * best]
        if slow:
            found[host if isinstance(host, str) else None] = [
                SlowLink(
                    node=row["name"],
                    rate=rate,
                    sibling=best,
                    odd=rate < NEARLY_DEAD_BYTES_PER_S
                    or (len(paths) >= FEWEST_SIBLINGS and len(slow) * 2 <= len(paths)),
                    text=row["value"].strip(),
                    source=f"{row['path']}:{row['line']}",
                )
                for rate, row in sorted(slow, key=lambda item: item[0])
            ]
    return found


def _gpu_paths(dump: list[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """The slowest PCI link of each GPU's path, with the row of that link."""
    stack: list[dict[str, Any]] = []
    paths = []
    for row in dump:
        while stack and stack[-1]["indent"] >= row["indent"]:
            stack.pop()
        stack.append(row)
        link, node = row["name"].split(" ", 1)
        if link == "PCI" and node.startswith("GPU/"):
            slowest = min(
                (item for item in stack if item["name"].startswith("PCI ")), key=lambda item: item["bytes_per_s"]
            )
            paths.append((float(slowest["bytes_per_s"]), slowest))
    return paths
