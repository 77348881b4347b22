"""Sound events out of damaged chunks, in their order; what was wrong is noted with its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from diagnose.ingest.kineto import events
from diagnose.ingest.kineto.layout import closing, object_end
from diagnose.ingest.kineto.repair import as_plain_json, repaired, whole_objects, words_as_null

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diagnose.ingest.kineto.chunks import Chunk
    from diagnose.ingest.kineto.damage import DamageLog

_BATCH = 512
_MOST_PARTS = 64
_PLACE = re.compile(rb'[{}\[\]]|"(?:[^"\\]|\\.)*"', re.DOTALL)
_GOES_ON = re.compile(rb"\s*(?:,\s*\{|[\]}]|$)")

Text = tuple[bytes, int]
"""The text of one or more events, and its byte offset."""

Decoded = tuple[list[events.Full], bytes]
"""Events, and the list they were decoded from."""


class Salvage:
    """``rest`` is set to what follows the list of events once its end was met inside a chunk."""

    def __init__(self, damage: DamageLog, *, enclosing: int) -> None:
        self.rest: bytes | None = None
        self.pending: Text | None = None
        self._damage = damage
        self._enclosing = enclosing
        """Brackets open around an event."""

    def events(self, chunk: Chunk) -> Iterator[Decoded]:
        """All events of a chunk that can be had. One cut at its end waits for the next chunk."""
        texts = [*([self.pending] if self.pending else []), *chunk.texts()]
        self.pending = None
        place = 0
        while place < len(texts) and self.rest is None:
            batch = texts[place : place + _BATCH]
            decoded = self._batch(batch)
            if decoded is not None:
                yield decoded
                place += len(batch)
                continue
            good, place = self._singly(texts, place)
            if good:
                text = _as_list(good)
                yield events.full_decoder.decode(text), text

    def flush(self, tail: bytes = b"") -> Iterator[Decoded]:
        """Whole events inside what was left over at the end of the file."""
        if self.pending is not None:
            text, offset = self.pending
            self._damage.note("unreadable_event", text, offset)
            tail = text + tail
        self.pending = None
        good = [part for part in whole_objects(tail) if decoded(part) is not None]
        if good:
            text = _as_list(good)
            yield events.full_decoder.decode(text), text

    def _batch(self, texts: Sequence[Text]) -> Decoded | None:
        text = _as_list([item for item, _ in texts])
        if (rows := decode_list(text)) is not None:
            return rows, text
        text, words = words_as_null(text)
        if not words or (rows := decode_list(text)) is None:
            return None
        example, offset = next(item for item in texts if decoded(item[0]) is None)
        self._damage.note("bare_word", example, offset, words)
        return rows, text

    def _singly(self, texts: list[Text], place: int) -> tuple[list[bytes], int]:
        """Sound texts from ``place`` on up to the end of its batch, and the place after them."""
        good: list[bytes] = []
        end = min(place + _BATCH, len(texts))
        while place < end and self.rest is None:
            text, offset = texts[place]
            used = 1
            if decoded(text) is not None:
                good.append(text)
            elif (mended := self._mended(text, offset)) is not None:
                good.append(mended)
            elif joined := self._joined(texts, place):
                if place + joined[1] > len(texts):
                    self.pending = joined[0], offset
                else:
                    good.append(joined[0])
                used = joined[1]
            else:
                good += self._parts(text, offset)
            place += used
        return good, place

    def _mended(self, text: bytes, offset: int) -> bytes | None:
        mended, kinds = repaired(text)
        if decoded(mended) is None:
            plain = as_plain_json(mended)
            if plain is None or decoded(plain) is None:
                return None
            mended = plain
            kinds["unusable_value"] += 1
        for kind, count in kinds.items():
            self._damage.note(kind, text, offset, count)
        return mended

    def _joined(self, texts: list[Text], place: int) -> tuple[bytes, int] | None:
        """An event that was taken for several because objects inside it look like events, and how many it was.

        One more than there are means that the next chunk may go on with it.
        """
        parts = [texts[place][0]]
        depth = _depth(parts[0])
        while depth > 0 and len(parts) < _MOST_PARTS:
            following = place + len(parts)
            if following == len(texts):
                return b",".join(parts), len(parts) + 1
            part = texts[following][0]
            if b'"ph"' in part and b'"pid"' in part and _depth(part) == 0:
                return None
            parts.append(part)
            depth += _depth(part)
        joined = b",".join(parts)
        return (joined, len(parts)) if len(parts) > 1 and decoded(joined) is not None else None

    def _parts(self, text: bytes, offset: int) -> list[bytes]:
        """What of a text that is no event can be used; the end of the list may lie in it."""
        mended = repaired(text)[0]
        end = object_end(mended, 0)
        behind = b"" if end is None else mended[end:].lstrip()
        if behind.startswith(b"]"):
            close = closing(behind, self._enclosing)
            if close is not None and not _GOES_ON.match(behind, close):
                self.rest = behind
                mended = mended[:end]
                return [mended] if decoded(mended) is not None else []
        self._damage.note("unreadable_event", text, offset)
        return [part for part in whole_objects(mended) if decoded(part) is not None]


def decode_list(text: bytes) -> list[events.Full] | None:
    """The events of a list, None when it is damaged."""
    try:
        return events.full_decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def decoded(text: bytes) -> list[events.Full] | None:
    """The events of a text without the brackets of a list, None when it is damaged."""
    return decode_list(b"[" + text + b"]")


def _as_list(texts: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(texts) + b"]"


def _depth(text: bytes) -> int:
    """Brackets opened and not closed."""
    depth = 0
    for token in _PLACE.finditer(text):
        mark = token[0]
        depth += 1 if mark in b"{[" else -1 if mark in b"}]" else 0
    return depth
