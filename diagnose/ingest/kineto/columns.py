"""Columns that grow chunk by chunk, and codes for names."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from diagnose.ingest.kineto.numbers import identifier, whole
from diagnose.store.rank_trace import Activities, Calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_NUMBERED = re.compile(r"(?:stream|thread)?\s*(\d{1,18})", re.IGNORECASE)


class Names(dict[str, int]):
    """Name to code; a new name gets the next one."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code

    def order(self) -> NDArray[np.int64]:
        """For each code the place of its name in the order of the alphabet."""
        places = np.empty(len(self), np.int64)
        places[[self[name] for name in sorted(self)]] = np.arange(len(self))
        return places


class Threads(dict[object, int]):
    """Thread id as written (int, digits, "stream 7", other text) to an integer."""

    def __missing__(self, thread: object) -> int:
        code = whole(thread)
        if code is None:
            code = identifier(thread)
        if code is None:
            named = _NUMBERED.fullmatch(str(thread))
            code = identifier(named[1]) if named else None
        if code is None:
            code = -int.from_bytes(hashlib.blake2b(str(thread).encode("utf-8", "replace"), digest_size=6).digest())
        self[thread] = code
        return code


_CALL_TYPES = (np.int64, np.int64, np.int32, np.int64, np.int64)
_BLOCK_ROWS = 1 << 20
"""Many small parts are joined to blocks of this size, which lie outside the heap: freed, they leave no holes in it."""


class CallColumns:
    """Columns of Calls."""

    def __init__(self) -> None:
        self._parts: list[list[NDArray[Any]]] = []
        self._blocks = 0
        self._small = 0

    def add(
        self,
        start_ns: NDArray[np.int64],
        dur_ns: NDArray[np.int64],
        names: Sequence[int],
        threads: Sequence[int],
        refs: Sequence[int] | None,
    ) -> None:
        """Append one chunk of rows; ``refs`` None means none has one."""
        ref = np.full(len(start_ns), -1, np.int64) if refs is None else np.array(refs, np.int64)
        self._parts.append([start_ns, dur_ns, np.array(names, np.int32), np.array(threads, np.int64), ref])
        self._small += len(start_ns)
        if self._small >= _BLOCK_ROWS:
            self._parts[self._blocks :] = [_columns(self._parts[self._blocks :], _CALL_TYPES)]
            self._blocks, self._small = self._blocks + 1, 0

    def calls(self, name_order: NDArray[np.int64]) -> Calls:
        """All rows ordered by start, longer first among equals, so that parents precede children, then by name."""
        calls = Calls(*_columns(self._parts, _CALL_TYPES))
        start = calls.start_ns
        if not (start[1:] >= start[:-1]).all():
            return calls.take(np.lexsort(_order(calls, name_order)))
        same = np.flatnonzero(start[1:] == start[:-1])
        tied = np.union1d(same, same + 1)
        if len(tied):  # they stay within their places, so that nothing else need be copied
            few = calls.take(tied)
            few = few.take(np.lexsort(_order(few, name_order)))
            columns: list[tuple[NDArray[Any], NDArray[Any]]] = list(zip(calls, few, strict=True))
            for column, values in columns:
                column[tied] = values
        return calls


def _order(calls: Calls, name_order: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return calls.thread, name_order[calls.name], -calls.dur_ns, calls.start_ns


_ACTIVITY_TYPES = (np.int64, np.int64, np.int32, np.int8, np.int32, np.int64, np.int64, np.int64, np.int64, np.int32)


class ActivityColumns:
    """Columns of Activities, row by row: they are few."""

    def __init__(self) -> None:
        self._parts: list[list[NDArray[Any]]] = []

    def add(self, start_ns: NDArray[np.int64], dur_ns: NDArray[np.int64], rows: list[tuple[int, ...]]) -> None:
        """Append; each row is (name, class, device, stream, correlation, bytes, signature, args)."""
        if rows:
            table = np.array(rows, np.int64)
            columns = (table[:, place].astype(kind) for place, kind in enumerate(_ACTIVITY_TYPES[2:]))
            self._parts.append([start_ns, dur_ns, *columns])

    def activities(self) -> Activities:
        """All rows ordered by start; equal ones in an order that the file's has no part in."""
        found = Activities(*_columns(self._parts, _ACTIVITY_TYPES))
        order = (found.correlation, found.signature, found.stream, found.dur_ns, found.start_ns)
        return found.take(np.lexsort(order))


def _columns(parts: list[list[NDArray[Any]]], types: Sequence[type[np.integer[Any]]]) -> list[NDArray[Any]]:
    """The columns of all parts, which are empty afterwards: nothing is held twice but the column being joined."""
    columns: list[NDArray[Any]] = []
    for kind in types:
        pieces = [part.pop(0) for part in parts]
        columns.append(np.concatenate(pieces).astype(kind, copy=False) if pieces else np.empty(0, kind))
    parts.clear()
    return columns
