"""What a format reader is. A reader knows its format, and nothing of DuckDB, analyses or other formats."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from diagnose.model import Issue, SourceStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from diagnose.ingest.streams import ByteStream


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user may set for reading."""

    timezone: str | None = None
    keep: str = "kernels"
    rank: int | None = None
    host: str | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One input: a file, a member of an archive or a URL.

    ``open`` gives the decompressed bytes as a stream; the head that sniffing used is not kept.
    """

    path: str
    size_bytes: int
    member: str | None = None
    folder: str | None = None
    """Where a relative path begins for a process with another working directory; None: in the working directory."""

    @property
    def label(self) -> str:
        """How reports name it."""
        return self.path if self.member is None else f"{self.path}!{self.member}"

    @property
    def name(self) -> PurePosixPath:
        """The innermost file name, for patterns of ranks and hosts."""
        return PurePosixPath(self.member or self.path)

    def open(self) -> ByteStream:
        """The decompressed content, streaming.

        Raises:
            SourceError: the file cannot be opened.
        """
        from diagnose.ingest.streams import open_source

        return open_source(self)


class Batch(NamedTuple):
    """Rows for one table of the store; columns are a subset of the table's."""

    table: str
    frame: pl.DataFrame


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a source speaks for, as far as its content says, and the time it covers."""

    rank: int | None = None
    rank_from: str | None = None
    host: str | None = None
    host_from: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    world_size: int | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Last thing a reader yields: how it went. ``rows`` counts the records kept."""

    status: SourceStatus
    rows: int
    problem: str | None = None
    identity: Identity = Identity()


Record = Batch | Issue | Outcome


class Format(Protocol):
    """A format: sniffing sees the first 64 KiB of decompressed content and the name, and never raises."""

    name: str
    priority: int

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """Whether the content is of this format."""
        ...

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Batches and issues, then one Outcome. Damage becomes issues; nothing read so far is lost."""
        ...
