"""Chunks of event text to columns. Host operators, runtime calls and everything else take three typed decoders."""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from diagnose.comm_names import comm_span, is_comm_kernel
from diagnose.ingest.kineto import events
from diagnose.ingest.kineto.columns import ActivityColumns, CallColumns, Names, Threads
from diagnose.ingest.kineto.comm_args import comm_args
from diagnose.ingest.kineto.repair import repaired, whole_objects
from diagnose.ingest.kineto.times import InexactTimeError, text_ns, times_ns
from diagnose.store.rank_trace import COMM, COMPUTE, MEMCPY, MEMSET, NO_CORRELATION, UNKNOWN, CommArgs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from diagnose.ingest.kineto.chunks import Chunk

_OPERATOR_CATS = frozenset({"cpu_op", "Operator", "operator"})
_ANNOTATION_CATS = frozenset({"user_annotation", "collective_comm"})
_RUNTIME_CATS = frozenset(
    {"cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime", "mtia_runtime", "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"}
)
_DEVICE_CATS = {
    "kernel": COMPUTE, "Kernel": COMPUTE, "mtia_ccp_events": COMPUTE,
    "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
}  # fmt: skip
_FAST_RUNTIME = (b"cuda_runtime", b"cuda_driver", b"Runtime", b"mtia_runtime", b"xpu_runtime", b"xpu_driver")
_COMM_OPS = (b"record_param_comms", b"c10d::", b"_c10d_", b"nccl:", b"gloo:", b"hccl:", b"xccl:", b"Profiler", b"enumerate", b"Optimizer")
_ANNOTATION_NAMES = ("ProfilerStep#", "enumerate(DataLoader)", "Optimizer.", "## ", "[pytorch|profiler")
_PYTHON_MARKS = (b"__next__", b"gc.collect", b"<built-in function collect")
_SALVAGE_BATCH = 512


class Damage(NamedTuple):
    """One kind of damage: how often, and one example with its place."""

    count: int
    example: str
    offset: int | None


class Uncategorised(NamedTuple):
    """A complete event without category, kept until the process names tell what it is."""

    name: str
    pid: object
    thread: int
    start_ns: int
    dur_ns: int
    args: events.FullArgs | None


class Decoder:
    """Decodes chunks of one file into columns; use ``add`` for each, then read the fields."""

    def __init__(self) -> None:
        self.names = Names()
        self.threads = Threads()
        self.activities = ActivityColumns()
        self.runtime = CallColumns()
        self.operators = CallColumns()
        self.annotations = CallColumns()
        self.python_calls = CallColumns()
        self.comm_args: list[CommArgs] = []
        self.process_names: dict[object, str] = {}
        self.thread_names: dict[int, str] = {}
        self.uncategorised: list[Uncategorised] = []
        self.window: dict[str, int] = {}
        self.damage: dict[str, Damage] = {}
        self.categories: Counter[str] = Counter()
        self.events = 0
        self._prefixes: tuple[bytes, tuple[bytes, ...], tuple[bytes, ...], bytes] | None = None
        self._layout: object = None
        self._signatures: dict[tuple[object, bytes, bytes], int] = {}

    def add(self, chunk: Chunk) -> None:
        """Decode all events of a chunk."""
        light, calls, full = self._partition(chunk)
        opening, close = chunk.layout.open, chunk.layout.close
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._add_light(_as_list(light, opening, close), len(light), chunk)
            self._add_calls(_as_list(calls, opening, close), len(calls), chunk)
            self._add_full_pieces([*chunk.odd, *(opening + piece + close for piece in full)], chunk.offset)
        finally:
            if collecting:
                gc.enable()

    def note(self, kind: str, example: bytes | str, offset: int | None, count: int = 1) -> None:
        """Count damage of a kind; the first example stays."""
        if isinstance(example, bytes):
            example = example[:160].decode("utf-8", "replace")
        old = self.damage.get(kind)
        self.damage[kind] = Damage(count, example, offset) if old is None else old._replace(count=old.count + count)

    def _partition(self, chunk: Chunk) -> tuple[list[bytes], list[bytes], list[bytes]]:
        layout = chunk.layout
        if layout.category is None:
            return [], [], chunk.pieces
        if self._layout is not layout:
            before, between = layout.category
            start = b'X"' + before
            self._layout = layout
            self._prefixes = (
                start + b'cpu_op"' + between,
                tuple(start + b'cpu_op"' + between + name for name in _COMM_OPS),
                tuple(start + cat + b'"' for cat in _FAST_RUNTIME),
                start + b'python_function"',
            )
        operator, communication, runtime, python = self._prefixes or (b"", (), (), b"")
        light: list[bytes] = []
        calls: list[bytes] = []
        full: list[bytes] = []
        skipped = 0
        for piece in chunk.pieces:
            mark = piece[:1]
            if mark == b"X":
                if piece.startswith(operator):
                    (full if piece.startswith(communication) else light).append(piece)
                elif piece.startswith(runtime):
                    calls.append(piece)
                elif piece.startswith(python) and not _has_mark(piece) and piece.count(b"{") <= 1:
                    skipped += 1
                else:
                    full.append(piece)
            elif (mark in b"sft" and piece.find(b"{") < 0) or (mark == b"i" and b"[memory]" in piece and piece.count(b"{") <= 1):
                skipped += 1
            else:
                full.append(piece)
        self.events += skipped
        return light, calls, full

    def _add_light(self, text: bytes, expected: int, chunk: Chunk) -> None:
        if not expected:
            return
        rows = _decoded(events.light_decoder, text)
        if rows is None or len(rows) != expected:
            self._add_full_pieces(_split_list(text, chunk), chunk.offset)
            return
        start_ns, dur_ns = self._times(rows, text)
        self.events += expected
        self.categories["cpu_op"] += expected
        names, threads = self.names, self.threads
        self.operators.add(start_ns, dur_ns, [names[row.name] for row in rows], [threads[row.tid] for row in rows], None)

    def _add_calls(self, text: bytes, expected: int, chunk: Chunk) -> None:
        if not expected:
            return
        rows = _decoded(events.call_decoder, text)
        if rows is None or len(rows) != expected:
            self._add_full_pieces(_split_list(text, chunk), chunk.offset)
            return
        start_ns, dur_ns = self._times(rows, text)
        self.events += expected
        self.categories["runtime"] += expected
        names, threads = self.names, self.threads
        refs = [NO_CORRELATION if row.args is None or row.args.correlation is None else row.args.correlation for row in rows]
        self.runtime.add(start_ns, dur_ns, [names[row.name] for row in rows], [threads[row.tid] for row in rows], refs)

    def _times(self, rows: Sequence[Any], text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        try:
            start_ns = times_ns([row.ts for row in rows])
        except InexactTimeError:
            exact = events.exact_decoder.decode(text)
            start_ns = np.array([text_ns(bytes(row.ts)) for row in exact], np.int64)
        return start_ns, times_ns([0 if row.dur is None else row.dur for row in rows])

    def _add_full_pieces(self, pieces: list[bytes], offset: int) -> None:
        for first in range(0, len(pieces), _SALVAGE_BATCH):
            batch = pieces[first : first + _SALVAGE_BATCH]
            text = b"[" + b",".join(batch) + b"]"
            rows = _decoded(events.full_decoder, text)
            if rows is None:
                batch = [good for piece in batch for good in self._salvage(piece, offset)]
                text = b"[" + b",".join(batch) + b"]"
                rows = events.full_decoder.decode(text)
            self._add_full(rows, text)

    def _salvage(self, piece: bytes, offset: int) -> list[bytes]:
        """What of a damaged text can be decoded, after mending."""
        if _decoded(events.full_decoder, b"[" + piece + b"]") is not None:
            return [piece]
        mended, kinds = repaired(piece)
        if _decoded(events.full_decoder, b"[" + mended + b"]") is not None:
            for kind in kinds:
                self.note(kind, piece, offset)
            return [mended]
        parts = [part for part in whole_objects(mended) if _decoded(events.one_full_decoder, part) is not None]
        self.note("unreadable_event", piece, offset)
        return parts

    def _add_full(self, rows: Sequence[events.Full], text: bytes) -> None:
        start_ns, dur_ns = self._times(rows, text)
        self.events += len(rows)
        chosen: dict[str, list[int]] = {"device": [], "runtime": [], "operator": [], "annotation": [], "python": []}
        activity_rows: list[tuple[int, ...]] = []
        for index, row in enumerate(rows):
            self.categories[row.cat or row.ph] += 1
            if row.ph == "M":
                self._metadata(row)
            elif row.ph == "X":
                kind = self._kind(row)
                if kind == "device":
                    activity_rows.append(self._activity(row))
                if kind is not None:
                    chosen[kind].append(index)
                elif not row.cat and row.name is not None:
                    self._keep_uncategorised(row, int(start_ns[index]), int(dur_ns[index]))
            elif row.ph == "i" and isinstance(row.name, str) and row.name.startswith(("Iteration Start", "Record Window End")):
                self.window[row.name.split(":")[0]] = int(start_ns[index])
        picked = chosen["device"]
        self.activities.add(start_ns[picked], dur_ns[picked], activity_rows)
        for kind, columns in (
            ("runtime", self.runtime), ("operator", self.operators), ("annotation", self.annotations), ("python", self.python_calls),
        ):  # fmt: skip
            if picked := chosen[kind]:
                columns.add(
                    start_ns[picked],
                    dur_ns[picked],
                    [self.names[str(rows[index].name)] for index in picked],
                    [self.threads[rows[index].tid] for index in picked],
                    [self._reference(rows[index], kind) for index in picked],
                )

    def _kind(self, row: events.Full) -> str | None:
        cat, name = row.cat, row.name
        if cat in _DEVICE_CATS:
            return "device"
        if cat in _RUNTIME_CATS:
            return "runtime"
        if cat in _OPERATOR_CATS:
            return "annotation" if isinstance(name, str) and name.startswith(_ANNOTATION_NAMES) else "operator"
        if cat in _ANNOTATION_CATS:
            return "annotation"
        return "python" if cat == "python_function" and isinstance(name, str) else None

    def _activity(self, row: events.Full) -> tuple[int, ...]:
        args = row.args or _NO_ARGS
        name = str(row.name)
        klass = _DEVICE_CATS[row.cat]
        if klass == COMPUTE and (args.collective is not None or is_comm_kernel(name)):
            klass = COMM
        return self.activity_row(name, klass, args, row.pid, row.tid)

    def activity_row(self, name: str, klass: int, args: events.FullArgs, pid: object, tid: object) -> tuple[int, ...]:
        """A row for ActivityColumns."""
        stream = args.stream if isinstance(args.stream, int) else self.threads[tid]
        device = args.device if isinstance(args.device, int) else pid if isinstance(pid, int) else 0
        reference = -1
        if klass == COMM and args.collective is not None:
            reference = len(self.comm_args)
            self.comm_args.append(comm_args(args))
        return (
            self.names[name],
            klass,
            device & 0x7FFFFFFF,
            stream if abs(stream) < 1 << 62 else hash(stream) >> 2,
            args.correlation if isinstance(args.correlation, int) else NO_CORRELATION,
            args.bytes if isinstance(args.bytes, int) else UNKNOWN,
            self._signature(name, args),
            reference,
        )

    def _reference(self, row: events.Full, kind: str) -> int:
        args = row.args
        if args is None:
            return -1
        if kind == "runtime":
            return args.correlation if isinstance(args.correlation, int) else NO_CORRELATION
        if comm_span(str(row.name)) is None:
            return -1
        self.comm_args.append(comm_args(args))
        return len(self.comm_args) - 1

    def _signature(self, name: str, args: events.FullArgs) -> int:
        grid = bytes(args.grid)
        block = bytes(args.block)
        key = (name, grid, block)
        found = self._signatures.get(key)
        if found is None:
            text = b"\0".join((name.encode("utf-8", "replace"), b"".join(grid.split()), b"".join(block.split())))
            found = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)
            self._signatures[key] = found
        return found

    def _metadata(self, row: events.Full) -> None:
        if row.args is None or row.args.name is None:
            return
        if row.name == "process_name":
            self.process_names[row.pid] = str(row.args.name)
        elif row.name == "thread_name":
            self.thread_names[self.threads[row.tid]] = str(row.args.name)

    def _keep_uncategorised(self, row: events.Full, start_ns: int, dur_ns: int) -> None:
        self.uncategorised.append(Uncategorised(str(row.name), row.pid, self.threads[row.tid], start_ns, dur_ns, row.args))


_NO_ARGS = events.FullArgs()


def _has_mark(piece: bytes) -> bool:
    return any(mark in piece for mark in _PYTHON_MARKS)


def _as_list(pieces: list[bytes], opening: bytes, close: bytes) -> bytes:
    return b"[" + opening + (close + b"," + opening).join(pieces) + close + b"]" if pieces else b"[]"


def _split_list(text: bytes, chunk: Chunk) -> list[bytes]:
    opening, close = chunk.layout.open, chunk.layout.close
    return [opening + piece + close for piece in text[1 + len(opening) : -1 - len(close)].split(close + b"," + opening)]


def _decoded(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any | None:  # noqa: ANN401 - the decoder's own type
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
