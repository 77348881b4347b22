"""Cutting a stream of JSON into chunks of whole events, in bounded memory, and keeping what surrounds the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.kineto.layout import Layout, events_start, learn_layout, object_end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.streams import ByteStream

BLOCK_BYTES = 4 << 20
_HEADER_LIMIT_BYTES = 256 << 20
_CARRY_LIMIT_BYTES = 32 << 20


class Chunk(NamedTuple):
    """Events as text without their opening and closing (``layout``); ``offset`` is the first one's place.

    ``odd`` are whole texts of events that start otherwise, in front of the first piece.
    """

    pieces: list[bytes]
    odd: list[bytes]
    layout: Layout
    offset: int


class TraceText:
    """The text of one trace: chunks of events, then ``header`` and ``trailer`` around them.

    ``truncated_at`` is the byte offset of an event that the file ends inside of.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.header = b""
        self.trailer = b""
        self.truncated_at: int | None = None
        self.size_bytes = 0
        self.found_events = False

    def chunks(self) -> Iterator[Chunk]:
        """All events. Use once."""
        blocks = self._stream.blocks(BLOCK_BYTES)
        text = self._seek_events(blocks)
        if text is None:
            return
        offset = self.size_bytes - len(text)
        layout = learn_layout(text)
        while True:
            if layout is None:
                layout = learn_layout(text)
            cut = self._last_start(text, layout)
            if layout is not None and cut:
                yield self._split(text[:cut], layout, offset)
                offset += cut
                text = text[cut:]
            block = next(blocks, None)
            if block is None:
                break
            self.size_bytes += len(block)
            text += block
        layout = layout or Layout(b"\0", b"{", b"}", None)
        yield from self._finish(text, layout, offset)

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
            if len(head) > _HEADER_LIMIT_BYTES:
                break
        self.header = head
        return None

    @staticmethod
    def _last_start(text: bytes, layout: Layout | None) -> int | None:
        """Where the last event of the text starts: everything before it is whole."""
        if layout is not None:
            found = text.rfind(layout.separator)
            if found >= 0:
                return found + len(layout.separator) - len(layout.open)
        if len(text) < _CARRY_LIMIT_BYTES:
            return None
        end = 0
        position = text.find(b"{")
        while position >= 0 and (after := object_end(text, position)) is not None:
            end = after
            position = text.find(b"{", after)
        return end or None

    @staticmethod
    def _split(text: bytes, layout: Layout, offset: int) -> Chunk:
        """The events of a text that starts with one and ends after one."""
        first = text.find(b"{")
        pieces = text[first:].split(layout.separator)
        last = pieces[-1].rstrip(b" \t\r\n,")
        pieces[-1] = last[:-1] if last.endswith(b"}") else last
        if pieces[0].startswith(layout.open):
            pieces[0] = pieces[0][len(layout.open) :]
            return Chunk(pieces, [], layout, offset)
        return Chunk(pieces[1:], [pieces[0] + layout.close], layout, offset)

    def _finish(self, text: bytes, layout: Layout, offset: int) -> Iterator[Chunk]:
        position = end = 0
        while True:
            position = _skip(text, end)
            if position >= len(text) or text[position] != ord("{"):
                break
            after = object_end(text, position)
            if after is None:
                self.truncated_at = offset + position
                break
            end = after
            if (cut := text.find(layout.separator, end)) > end + _CARRY_LIMIT_BYTES:
                end = cut
        if end:
            yield self._split(text[:end], layout, offset)
        if self.truncated_at is not None:
            return
        self.trailer = text[end:]
        if not self.trailer.lstrip(b" \t\r\n,").startswith(b"]"):
            self.truncated_at = offset + end


def _skip(text: bytes, position: int) -> int:
    while position < len(text) and text[position] in b" \t\r\n,":
        position += 1
    return position
