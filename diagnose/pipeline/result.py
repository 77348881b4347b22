"""What a map task hands back: small, serialisable, enough to build the run without opening the source again."""

from __future__ import annotations

import msgspec

from diagnose.ingest.base import Identity, ReadOptions, Source
from diagnose.model import Issue, SourceStatus


class Group(msgspec.Struct, frozen=True):
    """A process group as a trace header names it."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None


class TraceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the run needs to know of one trace besides its tables."""

    backend: str | None
    devices: tuple[str, ...]
    groups: tuple[Group, ...]
    versions: dict[str, str]
    step_source: str
    lost_capture: str | None
    device: int | None
    has_device_work: bool
    truncated: bool


class MapTask(msgspec.Struct, frozen=True, kw_only=True):
    """One source to read, and where its shards go."""

    source: Source
    options: ReadOptions
    shards: str
    number: int
    rank_from: str | None = None


class SourceResult(msgspec.Struct, frozen=True, kw_only=True):
    """How it went. ``shards`` maps a table to Parquet files; trace tables in it have no rank column yet."""

    path: str
    kind: str
    size_bytes: int
    status: SourceStatus
    problem: str | None = None
    rows: int = 0
    read_ns: int = 0
    identity: Identity = Identity()
    issues: tuple[Issue, ...] = ()
    shards: dict[str, list[str]] = {}
    trace: TraceInfo | None = None


def shared(result: SourceResult, known: dict[tuple[int, ...], tuple[int, ...]]) -> SourceResult:
    """The result with the rank lists of its groups shared with those before it: each rank of a large job names the same
    thousands of ranks again.
    """
    if result.trace is None:
        return result
    groups = tuple(
        group
        if group.ranks is None
        else msgspec.structs.replace(group, ranks=known.setdefault(group.ranks, group.ranks))
        for group in result.trace.groups
    )
    return msgspec.structs.replace(result, trace=msgspec.structs.replace(result.trace, groups=groups))
