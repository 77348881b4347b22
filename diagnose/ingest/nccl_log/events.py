"""Messages that matter, kept once for a process and subject, with a count: echoes outnumber causes ten to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.ingest.nccl_log.prefix import time_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagnose.ingest.comm_rows import Rows

MAX_EVENTS = 200_000
"""Different events of one log; more are counted with the last of their kind."""
MAX_TEXT = 400

_SUBJECT = ("peer", "subject", "detail", "status", "comm_group", "op", "seq", "enqueued", "comm_rank")


class Events:
    """Events of one log in the order of their first occurrence."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: dict[tuple[object, ...], dict[str, object]] = {}
        self._last: dict[str, dict[str, object]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(
        self,
        code: str,
        role: str,
        level: str,
        *,
        line: int,
        text: str,
        stamp: bytes,
        fields: Mapping[str, object],
    ) -> dict[str, object]:
        """Count an event; its first occurrence gives line, time and text. Returns the kept row."""
        key = (
            code,
            fields.get("host"),
            fields.get("pid"),
            fields.get("rank"),
            *(fields.get(name) for name in _SUBJECT),
        )
        row = self._kept.get(key)
        if row is None and len(self._kept) >= MAX_EVENTS:
            row = self._last.get(code)
        if row is not None:
            row["count"] = int(row["count"]) + 1  # type: ignore[call-overload]
            row["last_line"] = line
            return row
        row = {
            "path": self._path,
            "line": line,
            "last_line": line,
            "t_ns": time_ns(stamp),
            "code": code,
            "role": role,
            "level": level,
            "message": text[:MAX_TEXT],
            "count": 1,
            **fields,
        }
        self._kept[key] = self._last[code] = row
        return row

    def write(self, rows: Rows) -> None:
        """Hand all events on."""
        for row in self._kept.values():
            rows.add("comm_event", row)

    def has(self, *codes: str) -> bool:
        """Whether an event of one of these codes was seen."""
        return any(code in self._last for code in codes)
