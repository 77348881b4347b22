"""Files that lie next to traces and are none: recognised by content, so that the report says why they were skipped."""

from __future__ import annotations

import re
from typing import NamedTuple


class Unread(NamedTuple):
    """What a file is, and what to give instead."""

    kind: str
    why: str


_NODES = re.compile(rb'"nodes"\s*:\s*\[')
_JSON_START = re.compile(rb"^\s*[\[{]")


def recognise(head: bytes) -> Unread:
    """What an unreadable file is, as far as its first bytes tell."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{") and b'"schema"' in text and (_NODES.search(text) or b'"start_ts"' in text):
        return Unread(
            "execution-trace",
            "an execution trace (schema and nodes, no times of device work); a profiler trace is needed",
        )
    if b"rocprofiler-sdk-tool" in text[:4096]:
        return Unread("rocprof", "a rocprofiler output; export a PyTorch profiler trace instead")
    if head.startswith(b"SQLite format 3"):
        return Unread(
            "sqlite", "an SQLite file (Nsight Systems exports look like this); export a PyTorch profiler trace instead"
        )
    if not _JSON_START.match(text) and (b"XPlane" in head or b"/host:CPU" in head):
        return Unread("jax-xplane", "a JAX/XLA profile (XPlane); only PyTorch profiler traces are read")
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return Unread(
            "pickle", "a Python pickle that is no Flight Recorder dump (a memory snapshot?); it is not opened"
        )
    if head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF")):
        return Unread("picture", "a picture or document")
    if head.startswith((b"PAR1", b"ARROW1", b"\x7fELF", b"PK\x03\x04")):
        return Unread("binary", "a binary file of another kind")
    if re.match(rb"^\s*\[\s*\[", text):
        return Unread("memory-timeline", "a memory timeline (list of lists)")
    if _JSON_START.match(text):
        return Unread("json", "JSON of no known kind")
    if not text:
        return Unread("empty", "an empty file")
    return Unread("unknown", "of no known kind")
