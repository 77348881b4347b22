"""Reads files into a throw-away store and runs the communication checks over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from diagnose.config import Config
from diagnose.findings.checks import (
    comm_bench,
    comm_devices,
    comm_errors,
    comm_links,
    comm_settings,
    gdr,
    hang,
    transport,
)
from diagnose.findings.facts import Facts
from diagnose.findings.rules import RuleBook
from diagnose.ingest import flight_recorder, nccl_inspector, nccl_log, nccl_tests
from diagnose.ingest.base import Batch, Outcome, ReadOptions, Source
from diagnose.model import Finding, Issue, NotChecked
from diagnose.store.writer import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

FORMATS = (*nccl_log.FORMATS, *nccl_tests.FORMATS, *flight_recorder.FORMATS, *nccl_inspector.FORMATS)
CHECKS = (transport, gdr, comm_links, comm_devices, comm_settings, comm_errors, hang, comm_bench)
BOOK = RuleBook()
SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@dataclass
class Run:
    """A store in a temporary folder with what the readers said."""

    folder: Path
    issues: list[Issue] = field(default_factory=list)
    outcomes: list[tuple[str, Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = StoreWriter(self.folder / "run.duckdb", force=True)

    def read(self, paths: Iterable[Path], formats: Iterable[Any] = FORMATS) -> Run:
        for path in paths:
            source = Source(path=str(path), size_bytes=path.stat().st_size)
            with source.open() as stream:
                head = next(stream.blocks(65_536), b"")[:65_536]
            for item in formats:
                if item.sniff(head, source.name):
                    self._take(item, source)
        return self

    def _take(self, item: Any, source: Source) -> None:
        for record in item.read(source, ReadOptions()):
            if isinstance(record, Batch):
                self.writer.insert(record.table, record.frame)
            elif isinstance(record, Issue):
                self.issues.append(record)
            else:
                self.outcomes.append((item.name, record))

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        return self.writer.query(sql, parameters)

    def frame(self, name: str) -> pl.DataFrame:
        return self.writer.query(f'SELECT * FROM main."{name}"')

    def judge(self, world_size: int | None = None) -> list[Finding | NotChecked]:
        facts = Facts(self, BOOK, Config(), world_size, None)
        return [item for check in CHECKS for item in check.check(facts)]

    def findings(self, world_size: int | None = None) -> list[Finding]:
        return [item for item in self.judge(world_size) if isinstance(item, Finding)]

    def loud(self, world_size: int | None = None) -> dict[str, Finding]:
        return {item.code: item for item in self.findings(world_size) if item.severity != "info"}

    def kinds(self) -> dict[str, int]:
        rows = self.query("SELECT kind, sum(lines)::BIGINT AS n FROM channel GROUP BY kind ORDER BY kind")
        return dict(rows.iter_rows())

    def close(self) -> None:
        self.writer.discard()


def corpus() -> list[dict[str, Any]]:
    """The index of the corpus of real logs, empty when it is not there."""
    index = SHARED / "nccl_logs" / "index.yaml"
    return yaml.safe_load(index.read_text(encoding="utf-8"))["files"] if index.is_file() else []
