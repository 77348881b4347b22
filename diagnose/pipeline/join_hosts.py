"""Hosts of metrics that name none: the path of the file often names one that traces or logs know."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from diagnose.ingest.identity import short_host

if TYPE_CHECKING:
    from diagnose.pipeline.identify import HostMap
    from diagnose.store.writer import StoreWriter

_TABLES = ("metric_sample", "host_device", "node_event")
_KNOWN_SQL = """
SELECT host FROM rank WHERE host IS NOT NULL
UNION SELECT host FROM comm_process WHERE host IS NOT NULL
UNION SELECT host FROM metric_sample WHERE host IS NOT NULL
"""


def join_hosts(writer: StoreWriter, host_map: HostMap) -> None:
    """Fill the host of rows without one from the user's map, else from the only known host in the path of their source."""
    known = sorted(writer.query(_KNOWN_SQL).get_column("host").to_list(), key=len, reverse=True)
    for table in _TABLES:
        sources = (
            writer.query(f"SELECT DISTINCT source FROM {table} WHERE host IS NULL AND source IS NOT NULL")
            .get_column("source")
            .to_list()
        )
        found = {
            source: host
            for source in sources
            if (host := host_map.host(None, source) or _named(source, known)) is not None
        }
        if found:
            frame = pl.DataFrame({"source": list(found), "found": [short_host(host) for host in found.values()]})
            writer.update_hosts(table, frame)


def _named(path: str, known: list[str]) -> str | None:
    """The one known host that stands in the path as a word of its own."""
    hits = {host for host in known if re.search(rf"(?<![\w-]){re.escape(host)}(?![\w-])", path, re.IGNORECASE)}
    return hits.pop() if len(hits) == 1 else None
