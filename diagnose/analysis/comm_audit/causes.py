"""The first cause of a failure among its echoes: they outnumber it ten to one and stand on every host.

Order: within a process the position in its log; between processes the printed time; where neither decides, a message
that can start a failure goes before one that only follows. A closed connection points at the host that closed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Records


class Cause(NamedTuple):
    """All events of one code that can have started a failure; ``rows`` in their order, ``echoes`` counted."""

    code: str
    rows: list[dict[str, Any]]
    first: bool


def causes(records: Records, codes: frozenset[str]) -> list[Cause]:
    """Events of these codes by code; the first one in time is marked."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in records.events.iter_rows(named=True):
        if row["code"] in codes and row["role"] == "cause":
            found.setdefault(row["code"], []).append(row)
    if not found:
        return []
    everything = [row for rows in found.values() for row in rows]
    timed = all(row["t_ns"] is not None for row in everything)
    one_log = len({row["path"] for row in everything}) == 1

    def order(row: dict[str, Any]) -> tuple[int, int]:
        return (row["t_ns"] if timed and not one_log else 0, row["line"])

    first = min(everything, key=order)["code"]
    return [
        Cause(code, sorted(rows, key=order), code == first)
        for code, rows in sorted(found.items(), key=lambda item: order(min(item[1], key=order)))
    ]


def echo_count(records: Records) -> int:
    """Messages that only follow from another failure."""
    rows = records.events.filter(records.events["role"] == "echo")
    return int(rows["count"].sum() or 0)
