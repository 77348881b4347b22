"""The map step: one source to a few Parquet shards. Runs in a worker process, here or on a cluster, the same way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.analysis.rank.reduce import reduce_rank
from diagnose.errors import DiagnoseError, SourceError
from diagnose.ingest.base import Batch, Identity, Outcome
from diagnose.ingest.formats import load_formats, matching_formats
from diagnose.ingest.identity import host_from_name, rank_from_name
from diagnose.ingest.kineto.reader import read_trace
from diagnose.ingest.kineto.sniff import is_trace
from diagnose.ingest.streams import HEAD_BYTES
from diagnose.ingest.unread import recognise
from diagnose.model import Issue
from diagnose.pipeline.result import Group, MapTask, SourceResult, TraceInfo

if TYPE_CHECKING:
    import polars as pl

    from diagnose.ingest.base import Format, Source


def map_source(task: MapTask) -> SourceResult:
    """Read one source. Never raises for what is in the file: a source that cannot be read is a failed result."""
    started = time.perf_counter_ns()
    source = task.source
    try:
        head = _head(source)
        if not head and source.size_bytes == 0:
            return _without_content(source, "empty", "failed", "an empty file", started)
        if is_trace(head, source.name):
            result = _map_trace(task)
        else:
            readers = matching_formats(head, source.name, load_formats())
            if not readers:
                unread = recognise(head)
                return _without_content(source, unread.kind, "skipped", unread.why, started)
            result = _map_records(task, readers)
    except DiagnoseError as error:
        return _without_content(source, "unreadable", "failed", str(error), started)
    except MemoryError:
        return _without_content(
            source, "unreadable", "failed", "not enough memory to read it; use fewer --jobs", started
        )
    return _finished(result, started)


def _head(source: Source) -> bytes:
    stream = source.open()
    try:
        parts, length = [], 0
        while length < HEAD_BYTES and (part := stream.read(HEAD_BYTES - length)):
            parts.append(part)
            length += len(part)
        return b"".join(parts)
    finally:
        stream.close()


def _map_trace(task: MapTask) -> SourceResult:
    source = task.source
    decoded = read_trace(source)
    trace = decoded.trace
    if not trace.events:
        raise SourceError(f"{source.label}: the list of trace events is empty")
    reduced = reduce_rank(trace, keep_kernels=task.options.keep == "kernels")
    header = trace.header
    named = rank_from_name(source.name, task.rank_from) if task.rank_from else rank_from_name(source.name)
    rank, rank_from = (header.rank, "distributedInfo") if header.rank is not None else named or (None, None)
    host, host_from = (header.host, "host_name") if header.host else (host_from_name(source.name), "name")
    issues = [*decoded.issues, *_trace_issues(decoded.truncated, reduced.lost_capture, reduced.devices, source.label)]
    if header.rank is not None and named is not None and named[0] != header.rank:
        issues.append(
            Issue(
                "rank_name_differs",
                "info",
                1,
                f"the name says rank {named[0]}, the content rank {header.rank}; the content holds",
                source.label,
            )
        )
    problem = next((issue.example for issue in issues if issue.severity != "info"), None)
    return SourceResult(
        path=source.label,
        kind="kineto",
        size_bytes=source.size_bytes,
        status="partial" if decoded.truncated or problem else "ok",
        problem=problem,
        rows=reduced.rows,
        identity=Identity(
            rank=rank, rank_from=rank_from, host=host, host_from=host_from if host else None,
            start_ns=reduced.start_ns, end_ns=reduced.end_ns, world_size=header.world_size,
        ),
        issues=tuple(issues),
        shards={name: [_write(task, name, 0, frame)] for name, frame in reduced.frames.items() if not frame.is_empty()},
        trace=TraceInfo(
            backend=header.backend, devices=header.devices, versions=dict(header.versions), step_source=reduced.step_source,
            groups=tuple(Group(*group) for group in header.groups), lost_capture=reduced.lost_capture, device=reduced.device,
            has_device_work=trace.has_device_work, truncated=decoded.truncated,
        ),
    )  # fmt: skip


def _trace_issues(truncated: bool, lost: str | None, devices: int, path: str) -> list[Issue]:  # noqa: FBT001 - a fact, not a mode
    issues = []
    if lost:
        issues.append(Issue("lost_capture", "warning", 1, f"{lost}: device time is unknown, not idle", path))
    if devices > 1:
        issues.append(
            Issue(
                "several_devices",
                "info",
                devices,
                f"{devices} devices in one trace; the busiest one is split into steps",
                path,
            )
        )
    del truncated
    return issues


def _map_records(task: MapTask, readers: list[Format]) -> SourceResult:
    source = task.source
    shards: dict[str, list[str]] = {}
    issues: list[Issue] = []
    outcomes: list[Outcome] = []
    for reader in readers:
        for record in reader.read(source, task.options):
            if isinstance(record, Batch):
                if not record.frame.is_empty():
                    files = shards.setdefault(record.table, [])
                    files.append(_write(task, record.table, len(files), record.frame))
            elif isinstance(record, Issue):
                issues.append(record)
            else:
                outcomes.append(record)
    best = (
        max(outcomes, key=lambda item: item.rows)
        if outcomes
        else Outcome(status="failed", rows=0, problem="the reader said nothing")
    )
    identity = best.identity
    for other in outcomes:
        identity = _merged(identity, other.identity)
    return SourceResult(
        path=source.label, kind="+".join(reader.name for reader in readers), size_bytes=source.size_bytes, status=best.status,
        problem=best.problem, rows=sum(item.rows for item in outcomes), identity=identity, issues=tuple(issues), shards=shards,
    )  # fmt: skip


def _merged(first: Identity, second: Identity) -> Identity:
    return Identity(
        **{
            name: getattr(first, name) if getattr(first, name) is not None else getattr(second, name)
            for name in Identity.__struct_fields__
        }
    )


def _write(task: MapTask, table: str, part: int, frame: pl.DataFrame) -> str:
    path = Path(task.shards) / f"{task.number:06d}-{table}-{part}.parquet"
    frame.write_parquet(path, compression="lz4", statistics=False)
    return str(path)


def _without_content(source: Source, kind: str, status: str, problem: str, started: int) -> SourceResult:
    return _finished(
        SourceResult(path=source.label, kind=kind, size_bytes=source.size_bytes, status=status, problem=problem),  # type: ignore[arg-type]
        started,
    )


def _finished(result: SourceResult, started: int) -> SourceResult:
    import msgspec

    return msgspec.structs.replace(result, read_ns=time.perf_counter_ns() - started)
