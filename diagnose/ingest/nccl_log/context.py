"""Where the facts of a record go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from diagnose.ingest.comm_rows import Rows
    from diagnose.ingest.nccl_log.prefix import Head
    from diagnose.ingest.nccl_log.state import Process

MAX_TEXT = 400


class Context(NamedTuple):
    """Where facts go: the rows, the log, the record's process, prefix and line."""

    rows: Rows
    path: str
    process: Process
    head: Head
    line: int

    def row(self, table: str, **values: object) -> None:
        """Add a row with the columns that all tables of logs share."""
        base = {"path": self.path, "line": self.line, "host": self.process.host, "pid": self.process.pid}
        self.rows.add(table, {**base, **values})

    def topology(self, kind: str, name: str, value: str, rate: float | None = None, size: int | None = None) -> None:
        """Add a fact on the layout once for a process."""
        if (key := (kind, name, value)) in self.process.topology:
            return
        self.process.topology.add(key)
        comm = self.process.current(self.head.tid, self.head.device)
        self.row(
            "comm_topology",
            comm=None if comm is None else comm.comm,
            kind=kind,
            name=name,
            value=value[:MAX_TEXT],
            bytes_per_s=rate,
            size_bytes=size,
        )
