"""What stands in front of a record: the library's own prefix and the tags of launchers and collectors.

Sources: NCCL src/debug.cc (prefix), Open MPI --tag-output, srun --label, pdsh, torchrun --tee, Ray, kubectl --prefix.
"""

from __future__ import annotations

import re
from calendar import timegm
from datetime import UTC, datetime
from typing import NamedTuple

MARK = re.compile(rb"NCCL (INFO|WARN|TRACE|CALL|ABORT)(?: |$)")
PROCESS = re.compile(rb"([A-Za-z0-9][\w.\-]*):(\d{1,10}):(\d{1,10}) (?:\[ ?(\d{1,3}) ?\] )?")
OLD_MARK = re.compile(rb"[\w.\-]+:\d+:\d+ \[\d+\] (INFO|WARN) ")
"""NCCL 2.2 and older print no "NCCL"."""

_DEVICE_ONLY = re.compile(rb"\[ ?(\d{1,3}) ?\] $")
_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_RANK_TAGS = (
    re.compile(rb"\[rank(\d{1,7})\]"),
    re.compile(rb"\[\d+,(\d{1,7})\]<std(?:out|err)>"),
    re.compile(rb"^\s*\[(\d{1,7})\] "),
)
_HEADS_KEPT = 100_000
MAX_RANK = 10_000_000


class Head(NamedTuple):
    """The prefix of a record; ``place`` is where a WARN was raised in the library's source."""

    host: bytes | None
    pid: int | None
    tid: int | None
    device: int | None
    rank: int | None
    place: bytes


class Heads:
    """Parses prefixes; equal ones only once. Times stay outside: they would make every prefix a new one."""

    def __init__(self) -> None:
        self._cache: dict[bytes, Head] = {}
        self.hosts: set[bytes] = set()
        self._pids: dict[int, set[bytes]] = {}

    def parse(self, head: bytes, *, glued: bool = False) -> Head:
        """The prefix before "NCCL <level>". ``glued``: the record follows another one without a blank."""
        if head[:2] == b"[2" and (end := head.find(b"] ")) > 0:
            head = head[end + 2 :]
        key = head if not glued else b"\0" + head
        found = self._cache.get(key)
        if found is not None:
            return found
        match = None
        for match in PROCESS.finditer(head):  # noqa: B007 - the last match counts
            pass
        if match is None:
            device = _DEVICE_ONLY.search(head)
            result = Head(None, None, None, int(device[1]) if device else None, None, b"")
        else:
            result = Head(
                self._host(match[1], int(match[2]), glued=glued),
                int(match[2]),
                int(match[3]),
                None if match[4] is None else int(match[4]),
                rank_tag(head[: match.start()]),
                head[match.end() :].strip(),
            )
        if len(self._cache) > _HEADS_KEPT:
            self._cache.clear()
        self._cache[key] = result
        return result

    def _host(self, name: bytes, pid: int, *, glued: bool) -> bytes:
        """The host; a name that hangs on to other text, or lost its beginning, gives way to a known one."""
        if name in self.hosts:
            self._pids.setdefault(pid, set()).add(name)
            return name
        others = self.hosts if glued else self._pids.get(pid, ())
        for other in others:
            if name.endswith(other) if glued else other.endswith(name):
                return other
        if not glued and len(self.hosts) < _HEADS_KEPT:
            self.hosts.add(name)
            self._pids.setdefault(pid, set()).add(name)
        return name


def rank_tag(wrapper: bytes) -> int | None:
    """The global rank that a launcher's tag names; a task label of srun or a local rank is none."""
    if not wrapper:
        return None
    for pattern in _RANK_TAGS:
        if match := pattern.search(wrapper):
            return int(match[1])
    return None


def time_ns(text: bytes) -> int | None:
    """The first date and time in a text as unix time, read as UTC: logs do not name their zone."""
    match = _STAMP.search(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        seconds = timegm(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timetuple())
    except ValueError:
        return None
    fraction = (match[7] or b"0").ljust(9, b"0")[:9]
    return seconds * 1_000_000_000 + int(fraction)
