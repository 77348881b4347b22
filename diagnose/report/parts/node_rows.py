"""Hosts that differ from their peers, as rows for tables and sparklines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.report.parts.nodes import nodes
from diagnose.units import format_value

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables

_ROWS = 50
_POINTS = 60


def node_rows(tables: Tables) -> list[dict[str, Any]]:
    """One row a (host, device, measure) that differs; empty without node metrics."""
    if not tables.query("SELECT count(*) FROM metric_sample").item():
        return []
    section = nodes(tables)
    lines = {
        (line.get("host"), line.get("device"), line.get("measure")): line.get("points")
        for line in section["sparklines"]
    }
    rows = []
    for host in section["hosts"]:
        for entry in host["differs"]:
            row = {
                "host": host["host"], "device": entry["device"], "measure": entry["measure"],
                "here": format_value(entry["value"], entry["unit"]), "peers": format_value(entry["peers_median"], entry["unit"]),
            }  # fmt: skip
            points = lines.get((host["host"], entry["device"], entry["measure"]))
            if points and len(points) >= 3:
                stride = max(len(points) // _POINTS, 1)
                row["over_time"] = [value for _, value in points[::stride] if value is not None]
            rows.append(row)
    return rows[:_ROWS]
