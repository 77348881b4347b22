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


class CallColumns:
    """Columns of Calls."""

    def __init__(self) -> None:
        self._parts: list[
            tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]
        ] = []

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
        self._parts.append((start_ns, dur_ns, np.array(names, np.int32), np.array(threads, np.int64), ref))

    def calls(self, name_order: NDArray[np.int64]) -> Calls:
        """All rows ordered by start, longer first among equals, so that parents precede children, then by name."""
        parts = [_joined([part[index] for part in self._parts], np.int64) for index in range(5)]
        self._parts.clear()
        calls = Calls(parts[0], parts[1], parts[2].astype(np.int32), parts[3], parts[4])
        if _is_sorted(calls.start_ns):
            return calls
        return calls.take(np.lexsort((calls.thread, name_order[calls.name], -calls.dur_ns, calls.start_ns)))


_ACTIVITY_TYPES = (np.int64, np.int64, np.int32, np.int8, np.int32, np.int64, np.int64, np.int64, np.int64, np.int32)


class ActivityColumns:
    """Columns of Activities, row by row: they are few."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, ...]]]] = []

    def add(self, start_ns: NDArray[np.int64], dur_ns: NDArray[np.int64], rows: list[tuple[int, ...]]) -> None:
        """Append; each row is (name, class, device, stream, correlation, bytes, signature, args)."""
        if rows:
            self._parts.append((start_ns, dur_ns, rows))

    def activities(self) -> Activities:
        """All rows ordered by start; equal ones in an order that the file's has no part in."""
        tables = [np.array(part[2], np.int64) for part in self._parts]
        table = np.concatenate(tables) if tables else np.empty((0, 8), np.int64)
        columns = [
            _joined([part[0] for part in self._parts], np.int64),
            _joined([part[1] for part in self._parts], np.int64),
        ]
        columns += [table[:, index] for index in range(8)]
        self._parts.clear()
        found = Activities._make(column.astype(dtype) for column, dtype in zip(columns, _ACTIVITY_TYPES, strict=True))
        order = (found.correlation, found.signature, found.stream, found.dur_ns, found.start_ns)
        return found.take(np.lexsort(order))


def _joined(parts: Sequence[NDArray[Any]], dtype: type[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def _is_sorted(values: NDArray[np.int64]) -> bool:
    return bool(np.all(values[1:] > values[:-1]))
