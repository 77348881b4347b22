"""Opening inputs as streams of decompressed bytes: plain, gzip, zstd, members of zip and tar, local paths and URLs.

A stream that ends early or breaks keeps what came before and says why in ``damage``; it never raises for that.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import zstandard

from diagnose.errors import SourceError
from diagnose.ingest.urls import is_url, open_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from diagnose.ingest.base import Source

isal_zlib: Any
try:
    from isal import isal_zlib
except ImportError:  # a processor without it: zlib is slower and right
    isal_zlib = None

HEAD_BYTES = 65_536
_READ_BYTES = 131_072
_COMPRESSED_READ_BYTES = 16_384
"""Traces shrink to a twentieth: what one read gives should fit the processor's cache while it is cut and decoded."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31
_GZIP_DAMAGE: tuple[type[Exception], ...] = (zlib.error, isal_zlib.error) if isal_zlib else (zlib.error,)
_DAMAGE: tuple[type[Exception], ...] = (
    *_GZIP_DAMAGE, OSError, EOFError, zstandard.ZstdError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip
_REFUSED: tuple[type[Exception], ...] = (*_DAMAGE, KeyError, ImportError, ValueError, RuntimeError)
"""An encrypted archive is a RuntimeError."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class ByteStream(io.RawIOBase):
    """Decompressed bytes of one source, read forward only. ``reopen`` opens the same bytes again, for rescue."""

    def __init__(self, handle: IO[bytes], *, reopen: Callable[[], IO[bytes]] | None = None) -> None:
        self._handle = handle
        self._reopen = reopen
        self._pending = bytearray()
        self.damage: str | None = None
        self._blocks = self._decode()

    def blocks(self, size: int) -> Iterator[bytes]:
        """Blocks of about ``size`` bytes (never less, but for the last)."""
        parts: list[bytes] = [bytes(self._pending)] if self._pending else []
        self._pending.clear()
        length = sum(map(len, parts))
        for block in self._blocks:
            parts.append(block)
            length += len(block)
            if length >= size:
                yield b"".join(parts)
                parts, length = [], 0
        if parts:
            yield b"".join(parts)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object, /) -> int:
        """Fill ``buffer``; 0 at the end."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._pending:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._pending += block
        count = min(len(view), len(self._pending))
        view[:count] = self._pending[:count]
        del self._pending[:count]
        return count

    def close(self) -> None:
        """Close the file below."""
        self._handle.close()
        super().close()

    def _decode(self) -> Iterator[bytes]:
        try:
            first = self._handle.read(_COMPRESSED_READ_BYTES)
            if first.startswith(_GZIP):
                yield from self._gunzip(first)
            elif first.startswith(_ZSTD):
                yield from self._inflate(first, _ZSTD, lambda: zstandard.ZstdDecompressor().decompressobj())
            else:
                while first:
                    yield first
                    first = self._handle.read(_READ_BYTES)
        except _DAMAGE as error:
            self.damage = f"cannot be read to its end: {error}"

    def _gunzip(self, first: bytes) -> Iterator[bytes]:
        """Gzip by the fast decompressor; after an error the slow one gets what the fast one held back."""
        length = 0
        try:
            for block in self._inflate(first, _GZIP, _gzip_decompressor):
                length += len(block)
                yield block
        except _GZIP_DAMAGE as error:
            self.damage = f"holds damaged compressed data: {error}"
            if self._reopen is not None:
                with self._reopen() as handle:
                    yield from _rescued(handle, length)

    def _inflate(self, data: bytes, magic: bytes, make: Callable[[], _Decompressor]) -> Iterator[bytes]:
        decoder = make()
        while data:
            if block := decoder.decompress(data):
                yield block
            if not decoder.eof:
                data = self._handle.read(_COMPRESSED_READ_BYTES)
                continue
            data = decoder.unused_data or self._handle.read(_COMPRESSED_READ_BYTES)
            if not data:
                return
            if not data.startswith(magic):
                if data.strip(b"\0"):
                    self.damage = "has bytes behind the end of the compressed data; they were ignored"
                return
            decoder = make()
        if not decoder.eof:
            self.damage = "ends in the middle of its compressed data: the writer was killed or is still running"


def _gzip_decompressor() -> _Decompressor:
    if isal_zlib is None:
        return zlib.decompressobj(_GZIP_WINDOW)
    found: _Decompressor = isal_zlib.decompressobj(_GZIP_WINDOW)
    return found


def _rescued(handle: IO[bytes], skip: int) -> Iterator[bytes]:
    """What a damaged gzip file holds behind ``skip`` decompressed bytes and before the damage, byte by byte there."""
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    length = 0
    while data := handle.read(_READ_BYTES):
        before = decoder.copy()
        try:
            parts = [decoder.decompress(data)]
            broken = False
        except zlib.error:
            parts, broken = _byte_by_byte(before, data), True
        for part in parts:
            fresh = part[max(skip - length, 0) :]
            length += len(part)
            if fresh:
                yield fresh
        if broken or decoder.eof:
            return


def _byte_by_byte(decoder: _Decompressor, data: bytes) -> list[bytes]:
    parts = []
    for place in range(len(data)):
        try:
            parts.append(decoder.decompress(data[place : place + 1]))
        except zlib.error:
            break
    return [b"".join(parts)]


def open_source(source: Source) -> ByteStream:
    """The decompressed content of a source.

    Raises:
        SourceError: it cannot be opened; the message says which and why.
    """

    def reopen() -> IO[bytes]:
        return _open_raw(placed(source.path, source.folder), source.member)

    try:
        return ByteStream(reopen(), reopen=reopen)
    except _REFUSED as error:
        raise SourceError(f"cannot open {source.label}: {error}") from error


def placed(path: str, folder: str | None) -> str:
    """A path as typed in ``folder``, for a process that works elsewhere."""
    return path if folder is None or is_url(path) else os.path.join(folder, path)  # noqa: PTH118 - "./a" stays "./a"


def open_path(path: str) -> IO[bytes]:
    """Open a local path or an fsspec URL for reading, undecoded.

    Raises:
        OSError: it cannot be opened, for whatever reason the driver of a URL has.
    """
    if not is_url(path):
        return Path(path).open("rb")
    return open_url(path)


def open_tar(outer: IO[bytes], path: str, *, streaming: bool) -> tarfile.TarFile:
    """A tar archive, compressed or not; ``streaming`` for one pass over its members."""
    if path.lower().endswith(".zst"):
        return tarfile.open(fileobj=zstandard.ZstdDecompressor().stream_reader(outer), mode="r|")
    return tarfile.open(fileobj=outer, mode="r|*" if streaming else "r:*")


class _Member(io.RawIOBase):
    """A member of an archive that closes the archive and the file below it as well."""

    def __init__(self, handle: IO[bytes], below: ExitStack) -> None:
        self._inner = handle
        self._below = below

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._inner.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._below.close()
        super().close()


def _open_raw(path: str, member: str | None) -> IO[bytes]:
    if member is None:
        return open_path(path)
    with ExitStack() as stack:
        outer = stack.enter_context(open_path(path))
        if path.lower().endswith(".zip"):
            archive = stack.enter_context(zipfile.ZipFile(outer))
            handle: IO[bytes] | None = stack.enter_context(archive.open(member))
        else:
            tar = stack.enter_context(open_tar(outer, path, streaming=False))
            found = next((item for item in tar if item.name == member), None)
            handle = tar.extractfile(found) if found is not None else None
        if handle is None:
            raise KeyError(f"{member} is no file in {path}")
        return io.BufferedReader(_Member(handle, stack.pop_all()), _READ_BYTES)
