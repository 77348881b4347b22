"""From paths to a published run store."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from diagnose.errors import SourceError
from diagnose.ingest.base import ReadOptions
from diagnose.ingest.discover import discover
from diagnose.ingest.identity import check_rank_pattern
from diagnose.pipeline.cross import analyse_across
from diagnose.pipeline.engine import Engine, Finder, LocalEngine, Progress
from diagnose.pipeline.identify import Identified, Member, identify, load_host_map
from diagnose.pipeline.join_hosts import join_hosts
from diagnose.pipeline.result import MapTask, SourceResult, shared
from diagnose.pipeline.run_row import write_run
from diagnose.store.writer import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.config import Config
    from diagnose.model import Issue


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `diagnose run` was told."""

    name: str | None = None
    jobs: int | None = None
    keep: str = "kernels"
    timezone: str | None = None
    rank_from: str | None = None
    host_map: Path | None = None
    force: bool = False


def build_run(
    paths: Sequence[str],
    store: Path,
    config: Config,
    options: RunOptions,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Path:
    """Read, analyse and publish one run; returns the store's path.

    Raises:
        UsageError: a path does not exist.
        SourceError: nothing readable in them; the message says what was found.
        StoreError: the store cannot be written.
    """
    host_map = load_host_map(options.host_map)
    with tempfile.TemporaryDirectory(prefix="diagnose-") as scratch, StoreWriter(store, force=options.force) as writer:
        results = read_sources(paths, options, Path(scratch), engine=engine, progress=progress)
        identified = identify(results, host_map)
        if not any(result.shards for result in identified.results):
            raise SourceError(_nothing_readable(paths, identified.results))
        _write_sources(writer, identified)
        _write_traces(writer, identified.members)
        _write_records(writer, identified.results)
        join_hosts(writer, host_map)
        write_run(writer, identified, config, options.name or run_name(paths))
        analyse_across(writer, identified.members, config)
        return writer.publish()


def read_sources(
    paths: Sequence[str],
    options: RunOptions,
    scratch: Path,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> list[SourceResult]:
    """Map every source below the paths; shards lie in ``scratch``."""
    check_rank_pattern(options.rank_from)
    sources = engine.discover(paths) if isinstance(engine, Finder) else discover(paths)
    read = ReadOptions(timezone=options.timezone, keep=options.keep)
    tasks = [
        MapTask(source=source, options=read, shards=str(scratch), number=number, rank_from=options.rank_from)
        for number, source in enumerate(sources)
    ]
    results: list[SourceResult] = []
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    for result in (engine or LocalEngine(options.jobs)).run(tasks):
        results.append(shared(result, known))
        if progress is not None:
            progress(result)
    return results


def run_name(paths: Sequence[str]) -> str:
    """A name for the run from its first path: the folder's, or the file's without its suffixes."""
    parts = paths[0].rstrip("/").split("/")
    first = next((part for part in reversed(parts) if part and not set(part) & set("*?")), "run")
    name = first if Path(paths[0]).is_dir() else first.split(".")[0]
    return name if name not in ("", ".", "..") else Path(paths[0]).resolve().name or "run"


def _nothing_readable(paths: Sequence[str], results: Sequence[SourceResult]) -> str:
    if not results:
        return f"no files in {', '.join(paths)}"
    kinds = Counter(result.kind for result in results).most_common(4)
    listed = ", ".join(f"{count} x {kind}" for kind, count in kinds)
    told = next((result for result in results if result.status == "failed"), None)
    told = told or next((result for result in results if result.kind not in ("json", "unknown")), results[0])
    return (
        f"nothing readable in {', '.join(paths)} ({listed}); for example {told.path}: {told.problem}. "
        "`diagnose inspect` lists them all"
    )


def _write_sources(writer: StoreWriter, identified: Identified) -> None:
    ranks = {member.result.path: member for member in identified.members}
    rows = []
    for result in identified.results:
        member = ranks.get(result.path)
        identity = result.identity
        rank = member.rank if member is not None and member.rank >= 0 else identity.rank
        rows.append(
            {
                "path": result.path,
                "kind": result.kind,
                "bytes": result.size_bytes,
                "rank": rank,
                "rank_from": identity.rank_from,
                "host": member.host if member else identity.host,
                "host_from": identity.host_from,
                "start_ns": identity.start_ns,
                "end_ns": identity.end_ns,
                "rows": result.rows,
                "status": result.status,
                "problem": result.problem,
                "read_ns": result.read_ns,
            }
        )
    schema = {
        "path": pl.String,
        "kind": pl.String,
        "bytes": pl.Int64,
        "rank": pl.Int32,
        "rank_from": pl.String,
        "host": pl.String,
        "host_from": pl.String,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "rows": pl.Int64,
        "status": pl.String,
        "problem": pl.String,
        "read_ns": pl.Int64,
    }
    writer.insert("source", pl.DataFrame(rows, schema=schema))
    issues: list[Issue] = [*identified.issues, *(issue for result in identified.results for issue in result.issues)]
    writer.insert(
        "issue",
        pl.DataFrame(
            [
                {
                    "path": i.path,
                    "code": i.code,
                    "severity": i.severity,
                    "count": i.count,
                    "example": i.example,
                    "byte_offset": i.byte_offset,
                }
                for i in issues
            ],
            schema={
                "path": pl.String,
                "code": pl.String,
                "severity": pl.String,
                "count": pl.Int64,
                "example": pl.String,
                "byte_offset": pl.Int64,
            },
        ),
    )


def _write_traces(writer: StoreWriter, members: Sequence[Member]) -> None:
    """Merge the trace shards, each row with the rank of its file."""
    tables = sorted({table for member in members for table in member.result.shards})
    for table in tables:
        files = {file: member.rank for member in members for file in member.result.shards.get(table, ())}
        writer.insert_ranked(table, files)
    rows = []
    seen: Counter[str] = Counter()
    for member in members:
        trace, identity = member.result.trace, member.result.identity
        if trace is None:
            continue
        local = seen[member.host] if member.host and member.rank >= 0 else None
        if member.host:
            seen[member.host] += 1
        names = [name for name in trace.devices if name]
        name = (
            names[trace.device]
            if trace.device is not None and trace.device < len(names)
            else names[0]
            if names
            else None
        )
        rows.append(
            {
                "rank": member.rank,
                "local_rank": local,
                "host": member.host,
                "device": trace.device,
                "device_name": name,
                "trace": member.result.path,
                "role": None,
                "start_ns": identity.start_ns,
                "end_ns": identity.end_ns,
                "has_device_work": trace.has_device_work,
                "lost_capture": trace.lost_capture,
            }
        )
    schema = {
        "rank": pl.Int32,
        "local_rank": pl.Int32,
        "host": pl.String,
        "device": pl.Int32,
        "device_name": pl.String,
        "trace": pl.String,
        "role": pl.Int32,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "has_device_work": pl.Boolean,
        "lost_capture": pl.String,
    }
    writer.insert("rank", pl.DataFrame(rows, schema=schema))
    hosts: dict[str, list[int]] = {member.host: [] for member in members if member.host}
    for member in members:
        if member.host and member.rank >= 0:
            hosts[member.host].append(member.rank)
    inferred = {member.host: member.result.identity.host_from != "host_name" for member in members if member.host}
    full = {member.host: member.result.identity.host or member.host for member in members if member.host}
    writer.insert(
        "host",
        pl.DataFrame(
            [
                {"host": host, "full_name": full[host], "ranks": ranks, "inferred": inferred[host]}
                for host, ranks in sorted(hosts.items())
            ],
            schema={"host": pl.String, "full_name": pl.String, "ranks": pl.List(pl.Int32), "inferred": pl.Boolean},
        ),
    )


def _write_records(writer: StoreWriter, results: Sequence[SourceResult]) -> None:
    """Merge the shards of logs, metrics and dumps, which name their ranks and hosts themselves."""
    plain = [result for result in results if result.trace is None and result.shards]
    for table in sorted({table for result in plain for table in result.shards}):
        writer.insert_parquet(table, [Path(file) for result in plain for file in result.shards.get(table, ())])
