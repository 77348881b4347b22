"""Communicators whose initialisation does not end, and those that take long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.comm_audit.transports import version

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Queries, Records

LAZY_SINCE = (2, 22)
"""From then on connections are made after the initialisation: a connection line proves that it ended."""


class StuckInit(NamedTuple):
    """Communicators that started and did not complete. ``partly``: other members completed."""

    rows: list[dict[str, Any]]
    partly: bool
    completed: int


def stuck_processes(records: Records, tables: Queries) -> list[dict[str, Any]]:
    """Communicator rows with Init START, without COMPLETE, and without anything that only comes after it."""
    started = records.comms.filter(records.comms["state"] == "started")
    if started.is_empty():
        return []
    versions = {
        (row["path"], row["host"], row["pid"]): row["version"] for row in records.processes.iter_rows(named=True)
    }
    linked = {
        (row["path"], row["host"], row["pid"])
        for row in tables.query("SELECT DISTINCT path, host, pid FROM channel WHERE family <> 'COLLNET'").iter_rows(
            named=True
        )
    }
    called = {
        (row["path"], row["host"], row["pid"])
        for row in tables.query("SELECT DISTINCT path, host, pid FROM comm_coll").iter_rows(named=True)
    }
    stuck = []
    for row in started.iter_rows(named=True):
        key = (row["path"], row["host"], row["pid"])
        lazy = version(versions.get(key) or "0") >= LAZY_SINCE or versions.get(key) is None
        if row["connected"] or key in called or (key in linked and lazy):
            continue
        stuck.append(row)
    return stuck


def stuck_init(records: Records, tables: Queries) -> StuckInit | None:
    """Whether an initialisation hangs, None when all end or nothing is said."""
    rows = stuck_processes(records, tables)
    if not rows:
        return None
    complete = records.comms.filter(records.comms["state"].is_in(["complete", "destroyed"]))
    same = complete.filter(complete["comm_id"].is_in([row["comm_id"] for row in rows if row["comm_id"] is not None]))
    return StuckInit(rows, partly=not same.is_empty(), completed=complete.height)
