"""Everything the checks of one run share: records, scale, ranks; and the short texts that name places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.comm_audit.ranks import Ranks, ranks
from diagnose.analysis.comm_audit.records import Records, load, where
from diagnose.analysis.comm_audit.scale import Scale, scale
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diagnose.analysis.comm_audit.records import Queries

MOST_NAMES = 6
"""Names in one sentence; more are counted."""


class View(NamedTuple):
    """Records with what follows from them."""

    records: Records
    scale: Scale
    ranks: Ranks


def view(tables: Queries) -> View:
    """The view of a run."""
    records = load(tables)
    return View(records, scale(records), ranks(records))


def names(values: Iterable[object], *, most: int = MOST_NAMES) -> str:
    """A list for a sentence: the first names and how many more."""
    found = [str(value) for value in dict.fromkeys(values) if value is not None]
    if not found:
        return "an unnamed host"
    more = len(found) - most
    return ", ".join(found[:most]) + (f" and {more} more" if more > 0 else "")


def line_evidence(rows: Iterable[dict[str, Any]], text: str = "", *, most: int = 4) -> list[Evidence]:
    """Evidence from rows with path and line; ``text`` is a format string over the row's columns."""
    found: list[Evidence] = []
    for row in rows:
        if len(found) >= most:
            break
        sentence = text.format_map(row) if text else str(row.get("message") or row.get("kind") or "")
        found.append(Evidence(sentence, source=where(row["path"], row["line"])))
    return found


def reasons(view: View, hosts: Iterable[str | None] | None = None) -> list[Evidence]:
    """Lines that explain why RDMA was not taken: settings, plugins that failed, devices that are missing."""
    wanted = None if hosts is None else set(hosts)
    found = []
    for row in view.records.env.iter_rows(named=True):
        if wanted is not None and row["host"] not in wanted:
            continue
        if (row["name"], row["value"]) in {("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")}:
            found.append(Evidence(f"{row['name']}={row['value']} is set", source=where(row["path"], row["line"])))
    for row in view.records.events.iter_rows(named=True):
        known = row["code"] in {"ofi_failed", "net_none", "nic_open_failed"}
        if known and (wanted is None or row["host"] in wanted):
            found.append(Evidence(row["message"][:160], source=where(row["path"], row["line"])))
    return found[:4]


def named(hosts: Iterable[str | None]) -> list[str]:
    """The hosts that have a name, in order."""
    return sorted({host for host in hosts if host is not None})


def because(evidence: list[Evidence]) -> str:
    """The first reason as a sentence, nothing without one."""
    return f"Why: {evidence[0].text}." if evidence else ""
