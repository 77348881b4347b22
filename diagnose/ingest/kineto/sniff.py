"""Is this a profiler trace? And which neighbours of one it is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePosixPath

_OBJECT_MARKS = (
    b'"traceEvents"',
    b'"deviceProperties"',
    b'"distributedInfo"',
    b'"baseTimeNanoseconds"',
    b'"computeProperties"',
)
_LIST_START = re.compile(rb"^\s*\[\s*\{")
_EVENT_KEYS = re.compile(rb'"ph"\s*:\s*"\w"')


def is_trace(head: bytes, name: PurePosixPath) -> bool:
    """Whether the content is a Chrome trace as Kineto and its relatives write it."""
    del name
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _LIST_START.match(text):
        return _EVENT_KEYS.search(text) is not None
    if not text.startswith(b"{"):
        return False
    if b'"traceEvents"' in text:
        return True
    return sum(mark in text for mark in _OBJECT_MARKS) >= 2 or (
        b'"schemaVersion"' in text and any(mark in text for mark in _OBJECT_MARKS)
    )
