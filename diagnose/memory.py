"""Memory of large runs: what is freed goes back to the system. Both need glibc, and do nothing elsewhere."""

from __future__ import annotations

import ctypes
import sys

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_LARGE_BYTES = 4 << 20
"""Columns of half a million rows. glibc would raise its own limit to 32 MB with the first that is freed,
and keep what is below it.
"""

_TOP_BYTES = 64 << 20
"""Free memory at the end of the heap that stays: asking for the first limit alone would bring this one to 128 kB."""


def free_large_at_once() -> None:
    """Columns lie outside the heap, whose holes stay with the process."""
    set_option = _libc("mallopt")
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        set_option(_M_TRIM_THRESHOLD, _TOP_BYTES)


def give_back_freed() -> None:
    """Release free pages in the middle of the heap, which many small pieces leave."""
    trim = _libc("malloc_trim")
    if trim is not None:
        trim(0)


def _libc(name: str) -> ctypes._CFuncPtr | None:  # type: ignore[name-defined,unused-ignore]
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
