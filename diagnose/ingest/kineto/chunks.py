"""Cutting a stream of JSON into chunks of whole events, in bounded memory, and keeping what surrounds the events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.ingest.kineto.layout import NO_LAYOUT, Layout, events_start, learn_layout, object_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.streams import ByteStream

BLOCK_BYTES = 256 << 10
_TEXT_LIMIT_BYTES = 256 << 20
"""No header, event or trailer is longer; what would be is not read further."""

_CARRY_LIMIT_BYTES = 32 << 20
_BLANK = b" \t\r\n"
_LIST_END = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[^"]+"\s*:|\}|$))')
_AFTER_EVENT = re.compile(rb"\s*(?:[,\]]|$)")
_MAX_LIST_ENDS = 50
_MOST_STARTS = 64
_EVENT_BYTES = 1 << 20


class Chunk(NamedTuple):
    """Events as text: ``first`` is whole, each of ``pieces`` lacks the opening and closing of the ``layout``.

    ``offset`` is the place of ``first`` in the file. Any of them may hold further events that start otherwise.
    """

    first: bytes
    pieces: list[bytes]
    layout: Layout
    offset: int

    def texts(self) -> Iterator[tuple[bytes, int]]:
        """All events as whole texts, with their places."""
        offset = self.offset
        gap = len(self.layout.separator) - len(self.layout.open) - len(self.layout.close)
        for text in (self.first, *(self.layout.open + piece + self.layout.close for piece in self.pieces)):
            if text:
                yield text, offset
                offset += len(text) + gap


class TraceText:
    """The text of one trace: chunks of events, then ``header`` and ``trailer`` around them.

    ``truncated_at`` is the byte offset of an event that the file ends inside of, ``tail`` what there is of it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.header = b""
        self.trailer = b""
        self.tail = b""
        self.truncated_at: int | None = None
        self.size_bytes = 0
        self.found_events = False

    @property
    def is_list(self) -> bool:
        """Whether the events are the whole document, without metadata around them."""
        return self.found_events and self.header.lstrip(b"\xef\xbb\xbf" + _BLANK) == b"["

    def chunks(self) -> Iterator[Chunk]:
        """All events. Use once."""
        blocks = self._stream.blocks(BLOCK_BYTES)
        text = self._seek_events(blocks)
        if text is None:
            return
        offset = self.size_bytes - len(text)
        layout = None
        walk_at = _CARRY_LIMIT_BYTES
        while True:
            if layout is None:
                layout = learn_layout(text, complete=False)
            cut = _last_start(text, layout)
            if not cut and len(text) >= walk_at:
                cut, walk_at = _walk(text), 2 * len(text)
            if cut:
                yield _split(text[:cut], layout or NO_LAYOUT, offset)
                offset += cut
                text, walk_at = text[cut:], _CARRY_LIMIT_BYTES
            block = next(blocks, None) if len(text) < _TEXT_LIMIT_BYTES else None
            if block is None:
                break
            self.size_bytes += len(block)
            text += block
        yield from self._finish(text, layout or learn_layout(text, complete=True) or NO_LAYOUT, offset)

    def _seek_events(self, blocks: Iterator[bytes]) -> bytes | None:
        head = b""
        for block in blocks:
            self.size_bytes += len(block)
            head += block
            start = events_start(head)
            if start is not None:
                self.found_events = True
                self.header = head[:start]
                return head[start:]
            if len(head) > _TEXT_LIMIT_BYTES:
                break
        self.header = head
        return None

    def _finish(self, text: bytes, layout: Layout, offset: int) -> Iterator[Chunk]:
        """The last events, and what follows the list. ``text`` starts with an event or behind the last one."""
        end = _walk(text)
        rest = text[end:].lstrip(_BLANK + b",")
        if rest and not rest.startswith(b"]"):
            end = _list_end(text, end) or end
            rest = text[end:].lstrip(_BLANK + b",")
        if text[:end].strip(_BLANK + b","):
            yield _split(text[:end], layout, offset)
        if rest.startswith(b"]"):
            self.trailer = rest
        else:
            self.truncated_at = offset + len(text) - len(rest)
            self.tail = rest


def _last_start(text: bytes, layout: Layout | None) -> int:
    """Where one of the last events of the text starts, everything before it being whole; 0 when none can be seen.

    Objects inside an event may look like one: what is taken for an event is whole and has a phase and a process.
    """
    if layout is None:
        return 0
    found = len(text)
    for _ in range(_MOST_STARTS):
        found = text.rfind(layout.separator, 0, found)
        if found < 0:
            return 0
        start = found + len(layout.separator) - len(layout.open)
        end = object_end(text, start, _EVENT_BYTES)
        if end is not None and text.find(b'"ph"', start, end) > 0 and text.find(b'"pid"', start, end) > 0:
            return start
    return 0


def _split(text: bytes, layout: Layout, offset: int) -> Chunk:
    """The events of a text that starts with one and ends after one."""
    start = text.find(b"{")
    pieces = text[start:].rstrip(_BLANK + b",").split(layout.separator)
    if len(pieces) == 1:
        return Chunk(pieces[0], [], layout, offset + start)
    pieces[-1] = pieces[-1].removesuffix(b"}")
    return Chunk(pieces[0] + layout.close, pieces[1:], layout, offset + start)


def _walk(text: bytes) -> int:
    """Position behind the last of the whole events that the text starts with."""
    end = 0
    while True:
        start = end
        while start < len(text) and text[start] in _BLANK + b",":
            start += 1
        if start >= len(text) or text[start] != ord("{"):
            return end
        after = object_end(text, start)
        if after is None or not _AFTER_EVENT.match(text, after):
            return end
        end = after


def _list_end(text: bytes, start: int) -> int | None:
    """Where the list ends in a text whose events are damaged: the first place after which sound metadata follows."""
    first = None
    for number, match in enumerate(_LIST_END.finditer(text, start)):
        first = match.end() if first is None else first
        try:
            msgspec.json.decode(b'{"_":[' + text[match.end() :])
        except (msgspec.DecodeError, UnicodeDecodeError):
            if number >= _MAX_LIST_ENDS:
                break
        else:
            return match.end()
    return first
