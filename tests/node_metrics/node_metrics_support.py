"""Stores made of metric files, and sources that exist only in memory."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import polars as pl

from diagnose.config import Config
from diagnose.findings.checks.node_metrics import check
from diagnose.findings.facts import Facts
from diagnose.findings.rules import RuleBook
from diagnose.ingest.base import Batch, ReadOptions, Source
from diagnose.ingest.node_metrics import FORMATS
from diagnose.ingest.streams import ByteStream
from diagnose.model import Finding, Issue
from diagnose.store.reader import Store
from diagnose.store.writer import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


class TextSource(Source, frozen=True, kw_only=True):
    """A file that is only a text."""

    content: bytes = b""

    def open(self) -> ByteStream:
        return ByteStream(io.BytesIO(self.content))


def text_source(content: str | bytes, path: str = "file.txt") -> TextSource:
    data = content.encode() if isinstance(content, str) else content
    return TextSource(path=path, size_bytes=len(data), content=data)


def file_source(path: Path) -> Source:
    return Source(path=str(path), size_bytes=path.stat().st_size)


def head_of(source: Source) -> bytes:
    with source.open() as handle:
        return next(iter(handle.blocks(65_536)), b"")[:65_536]


class Ingested:
    """Records of sources, as a store and as frames."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches: list[Batch] = []
        self.issues: list[Issue] = []
        self.claims: dict[str, list[str]] = {}
        self.outcomes: dict[str, object] = {}
        self._store: Store | None = None

    def read(
        self, sources: Iterable[Source], options: ReadOptions | None = None, formats: Iterable[object] = FORMATS
    ) -> Ingested:
        for source in sources:
            head = head_of(source)
            claims = [item for item in formats if item.sniff(head, PurePosixPath(source.name))]
            self.claims[source.label] = [item.name for item in claims]
            for record in claims[0].read(source, options or ReadOptions()) if claims else ():
                if isinstance(record, Batch):
                    self.batches.append(record)
                elif isinstance(record, Issue):
                    self.issues.append(record)
                else:
                    self.outcomes[source.label] = record
        return self

    def frame(self, table: str = "metric_sample") -> pl.DataFrame:
        parts = [batch.frame for batch in self.batches if batch.table == table]
        return pl.concat(parts) if parts else pl.DataFrame()

    def samples(self) -> list[tuple[str, str | None, str, int | None, float | None]]:
        frame = self.frame()
        return [] if frame.is_empty() else frame.select("metric", "host", "entity", "t_ns", "value").rows()

    def value(self, metric: str, entity: str) -> float | None:
        found = [row[4] for row in self.samples() if row[0] == metric and row[2] == entity]
        assert len(found) == 1, (metric, entity, found)
        return found[0]

    @property
    def store(self) -> Store:
        if self._store is None:
            path = self.folder / "run.duckdb"
            with StoreWriter(path, force=True) as writer:
                writer.insert("run", pl.DataFrame({"name": ["test"], "schema_version": [1]}))
                for batch in self.batches:
                    writer.insert(batch.table, batch.frame)
                writer.publish()
            self._store = Store(path)
        return self._store

    def insert(self, table: str, frame: pl.DataFrame) -> Ingested:
        self.batches.append(Batch(table, frame))
        return self

    def findings(self, *, step_ns: int | None = None, world_size: int | None = None) -> list[Finding]:
        facts = Facts(self.store, RuleBook(), Config(), world_size, step_ns)
        return [item for item in check(facts) if isinstance(item, Finding)]

    def codes(self) -> set[str]:
        return {item.code for item in self.findings()} | {item.code for item in self.issues}

    def loud(self) -> list[str]:
        return [item.code for item in self.findings() if item.severity != "info"]
