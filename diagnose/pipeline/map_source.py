"""The map step: one source to a few Parquet shards. Runs in a worker process, here or on a cluster, the same way."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from diagnose.analysis.rank.overlapping import lay_out_steps
from diagnose.analysis.rank.reduce import reduce_rank
from diagnose.errors import DiagnoseError, StoreError
from diagnose.ingest.base import Batch, Identity, Outcome
from diagnose.ingest.discover import is_unfinished
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

    from diagnose.analysis.rank.reduce import Reduced
    from diagnose.ingest.base import Format, Source
    from diagnose.ingest.kineto.reader import DecodedTrace


def map_source(task: MapTask) -> SourceResult:
    """Read one source. Never raises for what is in the file: a source that cannot be read is a failed result.

    Raises:
        StoreError: the shards cannot be written.
    """
    started = time.perf_counter_ns()
    try:
        result = _map(task)
    except StoreError:
        raise
    except DiagnoseError as error:
        result = _without_content(task.source, "unreadable", "failed", str(error))
    except MemoryError:
        result = _without_content(task.source, "unreadable", "failed", "not enough memory to read it; use fewer --jobs")
    except Exception as error:  # noqa: BLE001 - one file that we cannot cope with must not cost the others
        result = _without_content(task.source, "unreadable", "failed", _as_bug(error))
    return msgspec.structs.replace(result, read_ns=time.perf_counter_ns() - started)


def _map(task: MapTask) -> SourceResult:
    source = task.source
    head = _head(source)
    if is_trace(head, source.name):
        return _map_trace(task)
    readers = matching_formats(head, source.name, load_formats())
    if readers:
        return _map_records(task, readers)
    unread = recognise(head)
    return _without_content(source, unread.kind, "failed" if unread.kind == "empty" else "skipped", unread.why)


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
    laid_out = lay_out_steps(trace)
    trace = trace if laid_out is None else laid_out.trace
    reduced = reduce_rank(trace, keep_kernels=task.options.keep == "kernels")
    header = trace.header
    identity = _identity(task, decoded, reduced)
    issues = [*decoded.issues, *_trace_issues(task, reduced, identity)]
    problem = next((issue.example for issue in issues if issue.severity != "info"), None)
    return SourceResult(
        path=source.label,
        kind="kineto",
        size_bytes=source.size_bytes,
        status="partial" if decoded.truncated or problem else "ok",
        problem=problem,
        rows=reduced.rows,
        identity=identity,
        issues=tuple(issues),
        shards={name: [_write(task, name, 0, frame)] for name, frame in reduced.frames.items() if not frame.is_empty()},
        trace=TraceInfo(
            backend=header.backend,
            devices=header.devices,
            versions=dict(header.versions),
            step_source=reduced.step_source,
            groups=tuple(Group(*group) for group in header.groups),
            lost_capture=reduced.lost_capture,
            device=reduced.device,
            has_device_work=trace.has_device_work,
            truncated=decoded.truncated,
        ),
    )


def _identity(task: MapTask, decoded: DecodedTrace, reduced: Reduced) -> Identity:
    """Rank from the job's own words, else from the communication records, else from the name."""
    header, name = decoded.trace.header, task.source.name
    rank, rank_from = header.rank, "distributedInfo"
    if rank is None:
        rank, rank_from = decoded.rank, "content"
    if rank is None and (named := rank_from_name(name, task.rank_from)) is not None:
        rank, rank_from = named
    host, host_from = header.host, "host_name"
    if host is None:
        host, host_from = host_from_name(name), "name"
    return Identity(
        rank=rank,
        rank_from=None if rank is None else rank_from,
        host=host,
        host_from=None if host is None else host_from,
        start_ns=reduced.start_ns,
        end_ns=reduced.end_ns,
        world_size=header.world_size,
    )


def _trace_issues(task: MapTask, reduced: Reduced, identity: Identity) -> list[Issue]:
    """What a user should know of one trace besides its damage."""
    path = task.source.label
    notes: list[Issue] = []
    if is_unfinished(task.source.name.name):
        notes.append(
            Issue("unfinished_file", "warning", 1, "a .tmp file: its writer was killed or is still writing", path)
        )
    if reduced.lost_capture:
        notes.append(
            Issue("lost_capture", "warning", 1, f"{reduced.lost_capture}: device time is unknown, not idle", path)
        )
    if reduced.devices > 1:
        text = f"{reduced.devices} devices in one trace; the busiest one is split into steps"
        notes.append(Issue("several_devices", "info", reduced.devices, text, path))
    notes += [Issue(*note, path) for note in reduced.notes]
    named = rank_from_name(task.source.name, task.rank_from)
    if identity.rank_from in ("name", "option"):
        text = f"the file does not say its rank; rank {identity.rank} was taken from its name"
        notes.append(Issue("rank_inferred", "info", 1, text, path))
    elif identity.rank is not None and named is not None and named[0] != identity.rank:
        text = f"the name says rank {named[0]}, the content rank {identity.rank}; the content holds"
        notes.append(Issue("rank_name_differs", "info", 1, text, path))
    return notes


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
        path=source.label,
        kind="+".join(reader.name for reader in readers),
        size_bytes=source.size_bytes,
        status=best.status,
        problem=best.problem,
        rows=sum(item.rows for item in outcomes),
        identity=identity,
        issues=tuple(issues),
        shards=shards,
    )


def _merged(first: Identity, second: Identity) -> Identity:
    fields = Identity.__struct_fields__
    return Identity(
        **{name: value if (value := getattr(first, name)) is not None else getattr(second, name) for name in fields}
    )


def _write(task: MapTask, table: str, part: int, frame: pl.DataFrame) -> str:
    from polars.exceptions import PolarsError

    path = Path(task.shards) / f"{task.number:06d}-{table}-{part}.parquet"
    try:
        frame.write_parquet(path, compression="lz4", statistics=False)
    except (OSError, PolarsError) as error:
        raise StoreError(
            f"cannot write to the temporary folder {path.parent}: {error}; set TMPDIR to a place with more space"
        ) from error
    return str(path)


def _without_content(source: Source, kind: str, status: str, problem: str) -> SourceResult:
    return SourceResult(path=source.label, kind=kind, size_bytes=source.size_bytes, status=status, problem=problem)  # type: ignore[arg-type]


def _as_bug(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"reading it met a bug of this tool, please report it: {type(error).__name__}: {error} ({where})"
