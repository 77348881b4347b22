"""Opening inputs as streams of decompressed bytes: plain, gzip, zstd, members of zip and tar, local paths and URLs.

A stream that ends early or breaks keeps what came before and says why in ``damage``; it never raises for that.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import zstandard

from diagnose.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.base import Source

HEAD_BYTES = 65_536
_READ_BYTES = 131_072
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


def _gzip_decompressor() -> _Decompressor:
    try:
        from isal import isal_zlib
    except ImportError:  # a processor without it: zlib is slower and right
        return zlib.decompressobj(_GZIP_WINDOW)
    return isal_zlib.decompressobj(_GZIP_WINDOW)  # type: ignore[no-any-return]


class ByteStream(io.RawIOBase):
    """Decompressed bytes of one source, read forward only."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
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
            first = self._handle.read(_READ_BYTES)
            if first.startswith(_GZIP):
                yield from self._inflate(first, gzip=True)
            elif first.startswith(_ZSTD):
                yield from self._inflate(first, gzip=False)
            else:
                while first:
                    yield first
                    first = self._handle.read(_READ_BYTES)
        except (OSError, zlib.error, zstandard.ZstdError, tarfile.TarError, zipfile.BadZipFile) as error:
            self.damage = f"cannot be read to its end: {error}"
        except Exception as error:
            if type(error).__name__ not in {"IsalError", "error"}:
                raise
            self.damage = f"compressed data is damaged: {error}"

    def _inflate(self, data: bytes, *, gzip: bool) -> Iterator[bytes]:
        magic = _GZIP if gzip else _ZSTD
        decoder: _Decompressor = _gzip_decompressor() if gzip else zstandard.ZstdDecompressor().decompressobj()
        while data:
            if block := decoder.decompress(data):
                yield block
            if not decoder.eof:
                data = self._handle.read(_READ_BYTES)
                continue
            data = decoder.unused_data or self._handle.read(_READ_BYTES)
            if data and not data.startswith(magic):
                if data.strip(b"\0"):
                    self.damage = "bytes follow the end of the compressed data; they were ignored"
                return
            decoder = _gzip_decompressor() if gzip else zstandard.ZstdDecompressor().decompressobj()
            if not data:
                return
        if not decoder.eof:
            self.damage = "compressed data ends early: the writer was killed or is still running"


def open_source(source: Source) -> ByteStream:
    """The decompressed content of a source.

    Raises:
        SourceError: it cannot be opened; the message says which and why.
    """
    try:
        return ByteStream(_open_raw(source.path, source.member))
    except (OSError, KeyError, tarfile.TarError, zipfile.BadZipFile, ImportError, ValueError) as error:
        raise SourceError(f"cannot open {source.label}: {error}") from error


def is_url(path: str) -> bool:
    """Whether a path is an fsspec URL."""
    return "://" in path


def open_path(path: str) -> IO[bytes]:
    """Open a local path or an fsspec URL for reading, undecoded."""
    if not is_url(path):
        return Path(path).open("rb")
    import fsspec

    handle: IO[bytes] = fsspec.open(path, "rb").open()
    return handle


def _open_raw(path: str, member: str | None) -> IO[bytes]:
    if member is None:
        return open_path(path)
    outer = open_path(path)
    if path.lower().endswith(".zip"):
        return zipfile.ZipFile(outer).open(member)
    archive = tarfile.open(fileobj=outer, mode="r:*")  # noqa: SIM115 - the member's stream owns it
    handle = archive.extractfile(member)
    if handle is None:
        raise KeyError(f"{member} is no file in {path}")
    return handle
