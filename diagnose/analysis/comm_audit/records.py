"""The communication tables of one run, reduced to what the audit needs; frames stay small for thousands of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import polars as pl


class Queries(Protocol):
    """The reading half of a store."""

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Run a SELECT."""
        ...


class Records(NamedTuple):
    """Frames of the audit.

    ``links``: channel rows by (path, host, pid, rank, kind, nic, gdr, direction) with summed lines and first line.
    The others are the tables themselves; ``nets`` and ``env`` without the processes that repeat their host's.
    """

    processes: pl.DataFrame
    comms: pl.DataFrame
    links: pl.DataFrame
    events: pl.DataFrame
    env: pl.DataFrame
    nets: pl.DataFrame

    @property
    def empty(self) -> bool:
        """No communication log at all."""
        return self.processes.is_empty() and self.events.is_empty()


_LINKS = """
SELECT path, host, pid, min(rank) AS rank, kind, family, network, nic, gdr, direction,
       sum(lines)::BIGINT AS lines, min(line) AS line, count(DISTINCT (source, target)) AS pairs
FROM channel GROUP BY path, host, pid, kind, family, network, nic, gdr, direction
ORDER BY path, line, kind
"""
_ENV = """
SELECT name, value, origin, host, min(path) AS path, arg_min(line, path) AS line, count(*) AS processes
FROM comm_env GROUP BY name, value, origin, host ORDER BY name, value, host
"""
_NETS = """
SELECT host, kind, device_index, name, max(port) AS port, max(link_layer) AS link_layer, max(address) AS address,
       max(bytes_per_s) AS bytes_per_s, bool_or(gdr_capable) AS gdr_capable, min(path) AS path,
       arg_min(line, path) AS line, count(DISTINCT (path, pid)) AS processes
FROM comm_net GROUP BY host, kind, device_index, name ORDER BY host, kind, device_index, name
"""


def load(tables: Queries) -> Records:
    """The records of a run; every frame is empty when there are none."""
    return Records(
        processes=tables.query("SELECT * FROM comm_process ORDER BY path, first_line"),
        comms=tables.query("SELECT * FROM communicator ORDER BY path, line"),
        links=tables.query(_LINKS),
        events=tables.query("SELECT * FROM comm_event ORDER BY path, line, code"),
        env=tables.query(_ENV),
        nets=tables.query(_NETS),
    )


def where(path: object, line: object) -> str:
    """The source of a fact, as reports print it."""
    return f"{path}:{line}"
