"""Where the events of a trace lie in its bytes, and how the writer laid them out.

All events of one file come from one serialiser, so the text between two events (close, comma, open, first key) is
a constant. Learning it from the file lets a chunk be cut at events with one memory search, whatever the writer:
Kineto of any age, ``json.dump``, compact. Events that do not start with it stay glued to the one before and are
decoded with it; a piece that is no whole event is joined with the next: nothing depends on the guess being right.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_NEXT_EVENT = re.compile(rb'\s*,(\s*)\{(\s*)"(\w+)"(\s*:\s*)("?)')
_SOME_EVENT = re.compile(rb'\{\s*"(?:ph|name|cat|ts|pid|tid|dur|args)"\s*:')
_CATEGORY = re.compile(rb'X"(\s*,\s*"cat"\s*:\s*")\w+"(\s*,\s*"name"\s*:\s*")')
_FIRST_KEYS = (b"ph", b"name", b"cat")
_SAMPLE_EVENTS = 50
_SAMPLE_FAILURES = 5
_EVENT_LIMIT_BYTES = 1 << 20


class Layout(NamedTuple):
    """``separator`` = ``close`` + what follows up to the value of the first key; ``open`` starts an event."""

    separator: bytes
    open: bytes
    close: bytes
    category: tuple[bytes, bytes] | None
    """Text around the category of a complete event that starts with its phase; None for other orders of keys."""


NO_LAYOUT = Layout(b"\0", b"{", b"}", None)
"""For files with fewer than two events: nothing is split."""


def events_start(text: bytes | bytearray) -> int | None:
    """Position just after the opening bracket of the event list; None while it has not been seen."""
    match = _EVENTS_KEY.search(text)
    if match:
        return match.end()
    stripped = text[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped.startswith(b"["):
        return text.index(b"[") + 1
    return None


def object_end(text: bytes, start: int, limit: int | None = None) -> int | None:
    """Position after the JSON object that opens at ``start``; None when it is cut, or longer than ``limit`` bytes."""
    depth = 0
    stop = len(text) if limit is None else min(len(text), start + limit)
    for token in _TOKEN.finditer(text, start, stop):
        mark = text[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def closing(text: bytes, depth: int) -> int | None:
    """Position after the bracket that closes ``depth`` open ones; None when the text ends before."""
    for token in _TOKEN.finditer(text):
        mark = text[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def learn_layout(text: bytes, *, complete: bool) -> Layout | None:
    """The layout of the events in ``text``, which starts inside the list; None while fewer than two were seen.

    ``complete`` says that nothing follows. Damaged events at the start are passed over: those that have no end though
    all of the text is there, or a million bytes of it.
    """
    position = text.find(b"{")
    best: tuple[int, Layout] | None = None
    counted: set[bytes] = set()
    failures = 0
    for _ in range(_SAMPLE_EVENTS):
        if position < 0:
            break
        end = object_end(text, position, _EVENT_LIMIT_BYTES)
        if end is None:
            failures += 1
            is_damaged = complete or len(text) - position > _EVENT_LIMIT_BYTES
            other = _SOME_EVENT.search(text, position + 1) if is_damaged and failures < _SAMPLE_FAILURES else None
            position = other.start() if other else -1
            continue
        follow = _NEXT_EVENT.match(text, end)
        if follow is None:
            break
        for layout in _candidates(text, position, end, follow):
            if layout.separator in counted:
                continue
            counted.add(layout.separator)
            count = text.count(layout.separator)
            if best is None or count > best[0]:
                best = count, layout
        position = text.index(b"{", follow.end(1))
    if best is None:
        return None
    layout = best[1]
    category = _CATEGORY.search(text) if b'"ph"' in layout.open else None
    return layout._replace(category=(category[1], category[2])) if category else layout


def _candidates(text: bytes, start: int, end: int, follow: re.Match[bytes]) -> list[Layout]:
    """Layouts that fit the place between one event and the next, for every first key that events may have."""
    before, inside, key, colon, quote = follow.groups()
    body = text[start : end - 1]
    close = body[len(body.rstrip()) :] + b"}"
    comma = text[end : follow.start(1)]
    found = []
    for candidate in dict.fromkeys((key, *_FIRST_KEYS)):
        opening = b"{" + inside + b'"' + candidate + b'"' + colon + (quote or b"")
        found.append(Layout(close + comma + before + opening, opening, close, None))
    return found
