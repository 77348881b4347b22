"""Chunks of event text to columns. Host operators, runtime calls and everything else take three typed decoders."""

from __future__ import annotations

import gc
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from diagnose.ingest.kineto import categories, events
from diagnose.ingest.kineto.columns import ActivityColumns, CallColumns, Names, Threads
from diagnose.ingest.kineto.damage import DamageLog
from diagnose.ingest.kineto.numbers import identifier
from diagnose.ingest.kineto.partition import Sorter
from diagnose.ingest.kineto.rows import RowBuilder
from diagnose.ingest.kineto.salvage import Salvage, decode_list
from diagnose.ingest.kineto.times import InexactTimeError, text_ns, times_ns
from diagnose.store.rank_trace import NO_CORRELATION, OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.ingest.kineto.chunks import Chunk

_IN_OBJECT, _IN_LIST = 2, 1


class Uncategorised(NamedTuple):
    """A complete event without category, kept until the process names tell what it is."""

    name: str
    pid: object
    thread: int
    start_ns: int
    dur_ns: int
    args: events.FullArgs | None


class Decoder:
    """Decodes the chunks of one file into columns; ``add`` each, ``finish``, then read the fields.

    With ``shapes`` operators keep a hash of their input dimensions. ``rest`` is what follows the list of events when
    its end was met inside a chunk: nothing behind it belongs to the trace.
    """

    def __init__(self, *, is_list: bool = False, shapes: bool = False) -> None:
        self.damage = DamageLog()
        self.names = Names()
        self.threads = Threads()
        self.rows = RowBuilder(self.names, self.threads)
        self.activities = ActivityColumns()
        self.runtime = CallColumns()
        self.operators = CallColumns()
        self.annotations = CallColumns()
        self.python_calls = CallColumns()
        self.process_names: dict[object, str] = {}
        self.thread_names: dict[int, str] = {}
        self.uncategorised: list[Uncategorised] = []
        self.window: dict[str, int] = {}
        self.categories: Counter[str] = Counter()
        self.events = 0
        self._shapes = shapes
        self._sorter: Sorter | None = None
        self._salvage = Salvage(self.damage, enclosing=_IN_LIST if is_list else _IN_OBJECT)

    @property
    def rest(self) -> bytes | None:
        """Text behind the end of the list, None while it was not met."""
        return self._salvage.rest

    def add(self, chunk: Chunk) -> None:
        """Decode all events of a chunk."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            if self._salvage.pending is None and self._add_sound(chunk):
                return
            for rows, text in self._salvage.events(chunk):
                self._add_full(rows, text)
        finally:
            if collecting:
                gc.enable()

    def finish(self, tail: bytes) -> None:
        """Take what can be used of an event that the file ends in."""
        for rows, text in self._salvage.flush(tail):
            self._add_full(rows, text)

    def _add_sound(self, chunk: Chunk) -> bool:
        """Decode a chunk, or none of it when any of its text is damaged."""
        if self._sorter is None or self._sorter.layout is not chunk.layout:
            self._sorter = Sorter(chunk.layout)
        light, calls, full, skipped = self._sorter.sort(chunk.pieces)
        opening, close = chunk.layout.open, chunk.layout.close
        light_text, call_text = _as_list(light, opening, close), _as_list(calls, opening, close)
        full_text = b",".join((b"[" + chunk.first, *(opening + piece + close for piece in full))) + b"]"
        light_rows = _decoded(events.shaped_decoder if self._shapes else events.light_decoder, light_text)
        call_rows = _decoded(events.call_decoder, call_text)
        full_rows = decode_list(full_text)
        if light_rows is None or call_rows is None or full_rows is None:
            return False
        glued = []
        if len(light_rows) == len(light):
            self._add_light(light_rows, light_text)
        else:
            glued.append(light_text)
        if len(call_rows) == len(calls):
            self._add_calls(call_rows, call_text)
        else:
            glued.append(call_text)
        self._add_full(full_rows, full_text)
        for text in glued:
            self._add_full(events.full_decoder.decode(text), text)
        self.events += skipped
        return True

    def _add_light(self, rows: Sequence[Any], text: bytes) -> None:
        if not rows:
            return
        start_ns, dur_ns = _times(rows, text)
        self.events += len(rows)
        self.categories["cpu_op"] += len(rows)
        names, threads = self.names, self.threads
        refs = [self.rows.shape(row.args) for row in rows] if self._shapes else None
        self.operators.add(
            start_ns, dur_ns, [names[row.name] for row in rows], [threads[row.tid] for row in rows], refs
        )

    def _add_calls(self, rows: Sequence[events.Call], text: bytes) -> None:
        if not rows:
            return
        start_ns, dur_ns = _times(rows, text)
        self.events += len(rows)
        self.categories["runtime"] += len(rows)
        names, threads = self.names, self.threads
        refs = [
            NO_CORRELATION if row.args is None or row.args.correlation is None else row.args.correlation for row in rows
        ]
        if max(refs) >= 1 << 63:
            refs = [NO_CORRELATION if (found := identifier(ref)) is None else found for ref in refs]
        self.runtime.add(start_ns, dur_ns, [names[row.name] for row in rows], [threads[row.tid] for row in rows], refs)

    def _add_full(self, rows: Sequence[events.Full], text: bytes) -> None:
        start_ns, dur_ns = _times(rows, text)
        self.events += len(rows)
        chosen: dict[str, list[int]] = {name: [] for name in categories.KINDS}
        activity_rows: list[tuple[int, ...]] = []
        for index, row in enumerate(rows):
            self.categories[row.cat or row.ph] += 1
            if row.ph == "M":
                self._metadata(row)
            elif row.ph == "X":
                kind = categories.kind(row)
                if kind == "device":
                    activity_rows.append(self.rows.activity_of(row))
                if kind is not None:
                    chosen[kind].append(index)
                elif not row.cat and row.name is not None:
                    self._keep_uncategorised(row, int(start_ns[index]), int(dur_ns[index]))
            elif (
                row.ph == "i"
                and isinstance(row.name, str)
                and row.name.startswith(("Iteration Start", "Record Window End"))
            ):
                self.window[row.name.split(":")[0]] = int(start_ns[index])
        picked = chosen["device"]
        self.activities.add(start_ns[picked], dur_ns[picked], activity_rows)
        for kind, columns in (
            ("runtime", self.runtime), ("operator", self.operators), ("annotation", self.annotations),
            ("python", self.python_calls), ("overhead", self.python_calls),
        ):  # fmt: skip
            if picked := chosen[kind]:
                prefix = OVERHEAD if kind == "overhead" else ""
                columns.add(
                    start_ns[picked],
                    dur_ns[picked],
                    [self.names[f"{prefix}{rows[index].name}"] for index in picked],
                    [self.threads[rows[index].tid] for index in picked],
                    [self.rows.reference(rows[index], kind, shapes=self._shapes) for index in picked],
                )

    def _metadata(self, row: events.Full) -> None:
        if row.args is None or row.args.name is None:
            return
        if row.name == "process_name":
            self.process_names[row.pid] = str(row.args.name)
        elif row.name == "thread_name":
            self.thread_names[self.threads[row.tid]] = str(row.args.name)

    def _keep_uncategorised(self, row: events.Full, start_ns: int, dur_ns: int) -> None:
        self.uncategorised.append(
            Uncategorised(str(row.name), row.pid, self.threads[row.tid], start_ns, dur_ns, row.args)
        )


def _times(rows: Sequence[Any], text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and durations; a duration that is absent is zero, one that is no number UNKNOWN."""
    exact: list[events.ExactTime] | None = None
    try:
        start_ns = times_ns([row.ts for row in rows])
    except InexactTimeError:
        exact = events.exact_decoder.decode(text)
        start_ns = np.array([text_ns(bytes(row.ts)) for row in exact], np.int64)
    try:
        dur_ns = times_ns([0 if row.dur is None else row.dur for row in rows])
    except InexactTimeError:
        exact = exact or events.exact_decoder.decode(text)
        dur_ns = np.array(
            [0 if bytes(row.dur) in (b"", b"null") else text_ns(bytes(row.dur)) for row in exact], np.int64
        )
    return start_ns, dur_ns


def _as_list(pieces: list[bytes], opening: bytes, close: bytes) -> bytes:
    return b"[" + opening + (close + b"," + opening).join(pieces) + close + b"]" if pieces else b"[]"


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any | None:  # noqa: ANN401 - the decoder's own type
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
