"""Physical lines of a log that may matter, cheaply: a block without any cue costs a few searches, however long it is.

Unwraps the collectors that hide lines inside other text: Docker's json-file, JSON loggers, CRI (with partial lines).
Source: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_LINE_BYTES = 16_384
"""Longer lines are cut: the library's own buffers end at 2 KiB, so the rest is other text or damage."""

TAIL_BYTES = 32_768

_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP]) ?(.*)", re.DOTALL)
_WRAPPED = re.compile(rb"^(?:\{|20\d\d-\d\d-\d\dT)", re.MULTILINE)
_JSON_TEXT_KEYS = ("log", "message", "msg", "textPayload", "@message", "text", "line")
_JSON_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts")


class Take(Protocol):
    """What is done with a line: its number, its text, and the collector's own time (empty without one)."""

    def __call__(self, number: int, text: bytes, stamp: bytes, /) -> None:
        """Take a line."""
        ...


class Scanner:
    """Finds lines with cues and hands them on. ``follow`` asks for the next lines whatever they hold."""

    def __init__(self, first_cue: bytes, other_cues: Iterable[bytes]) -> None:
        self._first = first_cue
        self._others = tuple(other_cues)
        self._partial: dict[bytes, tuple[int, bytes, bytes]] = {}
        self.follow = 0
        self.lines = 0
        self.bytes = 0
        self.tail = b""

    def scan(self, blocks: Iterable[bytes], take: Take) -> Iterator[None]:
        """Hand lines that hold a cue, or were asked for, to ``take``, unwrapped; pauses after each block."""
        carry = b""
        for block in blocks:
            self.bytes += len(block)
            end = block.rfind(b"\n") + 1
            if not end:
                carry = (carry + block)[-8 * MAX_LINE_BYTES :]
                continue
            data = carry + block[:end]
            carry = block[end:]
            self.tail = (self.tail + data)[-TAIL_BYTES:] if len(data) < TAIL_BYTES else data[-TAIL_BYTES:]
            self._block(data, take)
            yield
        if carry:
            self.tail = (self.tail + carry)[-TAIL_BYTES:]
            self._block(carry + b"\n", take)
            yield

    def _block(self, data: bytes, take: Take) -> None:
        first = self._first if self._first in data else None
        lines = data[:-1].split(b"\n") if first is not None else []
        rest = data if first is None else b"\n".join([raw for raw in lines if first not in raw])
        cues = [cue for cue in self._others if cue in rest]
        if first is None and not cues and not self.follow and not self._partial:
            self.lines += data.count(b"\n")
            return
        lines = lines or data[:-1].split(b"\n")
        plain = _WRAPPED.search(data) is None
        for number, raw in enumerate(lines, self.lines + 1):
            if first is not None and first in raw:
                pass
            elif self.follow:
                self.follow -= 1
            else:
                for cue in cues:
                    if cue in raw:
                        break
                else:
                    continue
            if len(raw) > MAX_LINE_BYTES:
                raw = raw[:MAX_LINE_BYTES]
            if plain or not _is_wrapped(raw):
                take(number, raw, b"")
            else:
                self._unwrap(number, raw, take)
        self.lines += len(lines)

    def _unwrap(self, number: int, raw: bytes, take: Take) -> None:
        if raw[:1] == b"{":
            text, stamp = _json_text(raw)
            for part in (text or raw).split(b"\n"):
                if part:
                    take(number, part, stamp)
            return
        match = _CRI.fullmatch(raw)
        if match is None:
            take(number, raw, b"")
            return
        stamp, stream, flag, text = match.groups()
        if stream in self._partial:
            number, head, stamp = self._partial.pop(stream)
            text = head + text
        if flag == b"P":
            self._partial[stream] = (number, text[:MAX_LINE_BYTES], stamp)
            self.follow = max(self.follow, 1)
            return
        take(number, text, stamp)


def _is_wrapped(raw: bytes) -> bool:
    return (raw[:1] == b"{" and raw.rstrip()[-1:] == b"}") or (raw[:2] == b"20" and raw[10:11] == b"T")


def _json_text(raw: bytes) -> tuple[bytes | None, bytes]:
    try:
        record = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, b""
    if not isinstance(record, dict):
        return None, b""
    payload = record.get("jsonPayload")
    stamp = next((record[key] for key in _JSON_TIME_KEYS if isinstance(record.get(key), str)), "")
    for candidate in (record, payload if isinstance(payload, dict) else {}):
        for key in _JSON_TEXT_KEYS:
            if isinstance(value := candidate.get(key), str):
                return value.encode("utf-8", "replace"), stamp.encode("utf-8", "replace")
    return None, b""
