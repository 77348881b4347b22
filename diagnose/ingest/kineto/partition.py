"""Which decoder each event of a chunk takes, told from how its text starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.kineto import categories

if TYPE_CHECKING:
    from diagnose.ingest.kineto.layout import Layout

_LONGEST_CATEGORY = max(map(len, (b"python_function", b"cpu_op", *categories.FAST_RUNTIME)))
_MOST_HEADS = 100_000
"""Writers have a few hundred; a file made of different ones would fill the memory."""


class Sorted(NamedTuple):
    """Pieces for the three decoders, and the number of events that nobody needs."""

    light: list[bytes]
    calls: list[bytes]
    full: list[bytes]
    skipped: int


class Sorter:
    """Sorts the pieces of one layout. What a complete event is stands in its first bytes, of which there are few kinds:
    each is judged once.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._operators: list[bytes] = []
        self._calls: list[bytes] = []
        self._python: list[bytes] = []
        self._arrows: list[bytes] = []
        self._marks: list[bytes] = []
        self._full: list[bytes] = []
        self._heads: dict[bytes, list[bytes]] = {}
        if layout.category is not None:
            before, between = layout.category
            self._start = b'X"' + before
            self._operator = self._start + b'cpu_op"'
            self._runtime = tuple(self._start + name + b'"' for name in categories.FAST_RUNTIME)
            self._frame = self._start + b'python_function"'
            self._communication = tuple(self._operator + between + name for name in categories.FULL_OPERATORS)
            self._long = len(self._start) + _LONGEST_CATEGORY + 1
            self._others = {b"s": self._arrows, b"f": self._arrows, b"t": self._arrows, b"i": self._marks}

    def sort(self, pieces: list[bytes]) -> Sorted:
        """The pieces of one chunk. Those of a layout that does not show what an event is are all for the full decoder."""
        if self.layout.category is None:
            return Sorted([], [], pieces, 0)
        groups = (self._operators, self._calls, self._python, self._arrows, self._marks, self._full)
        for group in groups:
            group.clear()
        heads, others, full, long = self._heads, self._others, self._full, self._long
        for piece in pieces:
            mark = piece[:1]
            if mark == b"X":
                head = piece[:long]
                (heads[head] if head in heads else self._learn(head)).append(piece)
            else:
                others.get(mark, full).append(piece)
        communication = self._communication
        light = [piece for piece in self._operators if not piece.startswith(communication)]
        if len(light) < len(self._operators):
            full += [piece for piece in self._operators if piece.startswith(communication)]
        skipped = self._skip_arrows() + self._skip_marks() + self._skip_frames()
        return Sorted(light, list(self._calls), list(full), skipped)

    def _learn(self, head: bytes) -> list[bytes]:
        if head.startswith(self._operator):
            group = self._operators
        elif head.startswith(self._runtime):
            group = self._calls
        else:
            group = self._python if head.startswith(self._frame) else self._full
        if len(self._heads) < _MOST_HEADS:
            self._heads[head] = group
        return group

    def _skip_arrows(self) -> int:
        """Arrows between events, but those with an event glued to them."""
        if b"{" not in b"".join(self._arrows):
            return len(self._arrows)
        glued = [piece for piece in self._arrows if b"{" in piece]
        self._full += glued
        return len(self._arrows) - len(glued)

    def _skip_marks(self) -> int:
        """Marks of memory."""
        kept = [piece for piece in self._marks if b"[memory]" not in piece or piece.count(b"{") > 1]
        self._full += kept
        return len(self._marks) - len(kept)

    def _skip_frames(self) -> int:
        """Python frames, but the few that explain idle time."""
        kept = [piece for piece in self._python if categories.is_useful_frame(piece) or piece.count(b"{") > 1]
        self._full += kept
        return len(self._python) - len(kept)
