"""Connections whose ends lie on different rails, where something says that rails do not meet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.comm_audit.inits import stuck_processes
from diagnose.analysis.comm_audit.records import where
from diagnose.analysis.comm_audit.transports import rail_crossings
from diagnose.model import Evidence

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Queries
    from diagnose.analysis.comm_audit.view import View

_PAIRS = """
SELECT comm_id, channel, connection, source, target,
       max(nic) FILTER (direction = 'send') AS send_nic, max(nic) FILTER (direction = 'receive') AS receive_nic,
       max(source_device) AS source_device, max(target_device) AS target_device, min(kind) AS kind,
       min(host) AS host, min(pid) AS pid, min(path) AS path, min(line) AS line, min(rank) AS rank,
       min(direction) AS direction, min(nic) AS nic
FROM (SELECT c.*, m.comm_id FROM channel c LEFT JOIN communicator m
      ON m.path = c.path AND m.host IS NOT DISTINCT FROM c.host AND m.pid IS NOT DISTINCT FROM c.pid AND m.comm = c.comm
      WHERE c.family = 'NET' AND c.network NOT IN ('Socket', 'FastSocket') AND c.proxy IS NULL)
GROUP BY comm_id, channel, connection, source, target
ORDER BY path, line LIMIT 200000
"""


class RailMismatch(NamedTuple):
    """Crossing connections with what makes them a problem. ``stuck``: the initialisation does not end."""

    rows: list[dict[str, Any]]
    text: str
    reason: str
    stuck: bool
    evidence: list[Evidence]


def rails(tables: Queries, view: View) -> RailMismatch | None:
    """Crossings on a job that asked for none (NCCL_CROSS_NIC=0), else None: crossing is normal on routed fabrics."""
    asked = [
        row
        for row in view.records.env.iter_rows(named=True)
        if row["name"] == "NCCL_CROSS_NIC" and row["value"] == "0" and row["origin"] == "environment"
    ]
    nics = {row["device_index"] for row in view.records.nets.iter_rows(named=True) if row["kind"] == "ib"}
    if not asked or len(nics) == 1:
        return None
    rows = rail_crossings(tables.query(_PAIRS))
    if not rows:
        return None
    first = rows[0]
    stuck = bool(stuck_processes(view.records, tables)) or _never_complete(view)
    if first["send_nic"] is not None and first["receive_nic"] is not None:
        ends = f"NIC {first['send_nic']} to NIC {first['receive_nic']}"
    else:
        ends = f"local GPU {first['source_device']} to local GPU {first['target_device']} (own NIC {first['nic']})"
    pairs = len({(row["source"], row["target"]) for row in rows})
    example = f"rank {first['source']} to rank {first['target']}: {ends}"
    text = f"{len(rows)} connections of {pairs} pairs of ranks cross rails, {example}"
    reason = "NCCL_CROSS_NIC=0 asks for no crossing" + ("; no communicator is complete" if stuck else "")
    evidence = [Evidence("NCCL_CROSS_NIC=0 is set", source=where(row["path"], row["line"])) for row in asked[:1]]
    return RailMismatch(rows[:8], text, reason, stuck, evidence)


def _never_complete(view: View) -> bool:
    comms = view.records.comms
    done = comms.filter(comms["state"].is_in(["complete", "destroyed"]) | comms["connected"].fill_null(value=False))
    return not comms.is_empty() and done.is_empty()
