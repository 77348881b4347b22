"""Single events to rows of columns: device activities, arguments of communication, hashes of shapes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from diagnose.comm_names import comm_span, is_comm_kernel
from diagnose.ingest.kineto import categories
from diagnose.ingest.kineto.comm_args import comm_args, rank_list
from diagnose.ingest.kineto.events import FullArgs
from diagnose.ingest.kineto.numbers import identifier, small, whole
from diagnose.store.rank_trace import COMM, COMPUTE, NO_CORRELATION, NO_SHAPE, UNKNOWN, CommArgs

if TYPE_CHECKING:
    from diagnose.ingest.kineto.columns import Names, Threads
    from diagnose.ingest.kineto.events import Full, ShapeArgs

_NO_ARGS = FullArgs()
_MOST_DIMS_BYTES = 4096


class RowBuilder:
    """Builds rows of one file; ``comm_args`` is what rows refer to, ``ranks`` what communication says of this rank."""

    def __init__(self, names: Names, threads: Threads) -> None:
        self.comm_args: list[CommArgs] = []
        self.ranks: set[int] = set()
        self._names = names
        self._threads = threads
        self._signatures: dict[tuple[object, bytes, bytes], int] = {}
        self._shapes: dict[bytes, int] = {b"": NO_SHAPE}

    def activity_of(self, event: Full) -> tuple[int, ...]:
        """The row of a device event for ActivityColumns."""
        args = event.args or _NO_ARGS
        name = str(event.name)
        klass = categories.DEVICE[event.cat or ""]
        if klass == COMPUTE and (args.collective is not None or is_comm_kernel(name)):
            klass = COMM
        return self.activity(name, klass, args, event.pid, event.tid)

    def activity(self, name: str, klass: int, args: FullArgs, pid: object, tid: object) -> tuple[int, ...]:
        """(name, class, device, stream, correlation, bytes, signature, args)."""
        stream = whole(args.stream)
        device = small(args.device)
        reference = -1
        if klass == COMM and args.collective is not None:
            reference = self._keep(args)
        correlation = identifier(args.correlation)
        size = whole(args.bytes)
        return (
            self._names[name],
            klass,
            device if device is not None and device >= 0 else max(small(pid) or 0, 0),
            self._threads[tid] if stream is None else stream,
            NO_CORRELATION if correlation is None else correlation,
            UNKNOWN if size is None else size,
            self._signature(name, args),
            reference,
        )

    def reference(self, event: Full, kind: str, *, shapes: bool) -> int:
        """What the column ``ref`` of a host event holds: a correlation, a place in ``comm_args`` or a shape."""
        args = event.args
        if args is None:
            return -1
        if kind == "runtime":
            correlation = identifier(args.correlation)
            return NO_CORRELATION if correlation is None else correlation
        if comm_span(str(event.name)) is not None:
            return self._keep(args)
        if shapes and kind == "operator":
            return self._shape(bytes(args.input_dims) or bytes(args.input_dims_old))
        return -1

    def shape(self, args: ShapeArgs | None) -> int:
        """Hash of input dimensions as a column ``ref`` holds it: below -1, NO_SHAPE for none."""
        return NO_SHAPE if args is None else self._shape(bytes(args.input_dims) or bytes(args.input_dims_old))

    def _keep(self, args: FullArgs) -> int:
        kept = comm_args(args)
        self.comm_args.append(kept)
        member = small(args.rank)
        if member is not None and (ranks := rank_list(args.group_ranks)) is not None and 0 <= member < len(ranks):
            self.ranks.add(ranks[member])
        return len(self.comm_args) - 1

    def _shape(self, dims: bytes) -> int:
        found = self._shapes.get(dims)
        if found is None:
            digest = hashlib.blake2b(b"".join(dims[:_MOST_DIMS_BYTES].split()), digest_size=7).digest()
            found = self._shapes[dims] = -2 - int.from_bytes(digest)
        return found

    def _signature(self, name: str, args: FullArgs) -> int:
        """Hash of name, grid and block: the same work on every rank."""
        grid = bytes(args.grid)
        block = bytes(args.block)
        key = (name, grid, block)
        found = self._signatures.get(key)
        if found is None:
            text = b"\0".join((name.encode("utf-8", "replace"), b"".join(grid.split()), b"".join(block.split())))
            found = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), signed=True)
            self._signatures[key] = found
        return found
