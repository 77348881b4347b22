"""Every reader there is, by priority. A new format is one module with ``FORMATS`` and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Format

BUILTIN: tuple[str, ...] = (
    "flight_recorder",
    "nccl_inspector",
    "nccl_log",
    "nccl_tests",
    "node_metrics",
    "training_log",
)
"""Modules below ``diagnose.ingest``, imported when first needed."""

_TEXT_LOGS = (range(200, 300), range(400, 450))
"""Priorities of log readers: one standard output holds NCCL lines, step lines and tracebacks, so all of them read it."""


def load_formats() -> list[Format]:
    """All record formats in the order in which they are asked."""
    found = [item for name in BUILTIN for item in import_module(f"diagnose.ingest.{name}").FORMATS]
    return sorted(found, key=lambda item: item.priority)


def matching_formats(head: bytes, name: PurePosixPath, formats: list[Format]) -> list[Format]:
    """The first format that claims the content; for text logs every log reader that finds something in it."""
    claimed = [item for item in formats if item.sniff(head, name)]
    if not claimed:
        return []
    if not _is_log(claimed[0]):
        return claimed[:1]
    return [item for item in claimed if _is_log(item)]


def _is_log(item: Format) -> bool:
    return any(item.priority in priorities for priorities in _TEXT_LOGS)
