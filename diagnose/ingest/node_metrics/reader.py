"""The common half of the node metric readers: opening, decoding, damage, outcome."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from diagnose.errors import SourceError
from diagnose.ingest.node_metrics.samples import Samples
from diagnose.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, ReadOptions, Record, Source

MAX_TEXT_BYTES = 256 * 1024 * 1024
"""A snapshot text above this is no snapshot; the rest of it is not read, and that is said."""

READ_ERRORS = (OSError, EOFError, zlib.error, SourceError)


class MetricFormat:
    """Base of the readers. A subclass sets ``name``, ``priority``, ``markers`` and writes ``parse``.

    ``markers`` are patterns of which every one must occur in the head. ``parse`` may yield finished batches; what it
    adds to the sink is flushed by the base. ValueError and KeyError of a damaged file become a partial outcome.
    """

    name: str = ""
    priority: int = 399
    markers: tuple[re.Pattern[bytes], ...] = ()

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - part of the protocol
        """Whether every marker occurs in the head."""
        return bool(self.markers) and all(marker.search(head) for marker in self.markers)

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Read the source into the sink."""
        raise NotImplementedError

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Batches and issues, then one Outcome."""
        sink = Samples(self.name, source, options)
        try:
            for batch in self.parse(source, sink):
                yield batch
                yield from sink.flush()
        except READ_ERRORS as error:
            yield Issue("metrics_cut_short", "warning", 1, f"{type(error).__name__}: {error}"[:200], source.label)
            status = "partial" if sink.rows else "failed"
            yield from sink.finish(status, f"the file ends early or cannot be read: {error}"[:200])  # type: ignore[arg-type]
            return
        except (ValueError, KeyError, IndexError, TypeError) as error:
            yield Issue("metrics_damaged", "warning", 1, f"{type(error).__name__}: {error}"[:200], source.label)
            status = "partial" if sink.rows else "failed"
            yield from sink.finish(status, f"content does not follow the format: {error}"[:200])  # type: ignore[arg-type]
            return
        yield from sink.finish()


class TextFormat(MetricFormat):
    """A reader of a text that fits in memory; a subclass writes ``parse_text``."""

    def parse_text(self, text: str, sink: Samples) -> None:
        """Read a whole text into the sink."""
        raise NotImplementedError

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Decode the source and hand it to ``parse_text``."""
        self.parse_text(read_text(source, sink), sink)
        yield from ()


def read_bytes(source: Source, sink: Samples, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The content up to a limit; of a compressed file that ends early, what came before, marked as cut."""
    parts: list[bytes] = []
    size = 0
    with source.open() as handle:
        for block in handle.blocks(1 << 20):
            parts.append(block)
            size += len(block)
            if size >= limit:
                sink.cut = f"only the first {limit} bytes were read"
                break
        sink.cut = sink.cut or handle.damage
    return b"".join(parts)


def read_text(source: Source, sink: Samples) -> str:
    """The content as text: byte order marks dropped, UTF-16 recognised, wrong bytes replaced."""
    data = read_bytes(source, sink)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def pattern(text: str) -> re.Pattern[bytes]:
    """A multi-line byte pattern for ``markers``."""
    return re.compile(text.encode(), re.MULTILINE)
