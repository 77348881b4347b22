"""Merging what the map step left: sources, traces with their ranks, and records, into the new store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.model import Issue
    from diagnose.pipeline.identify import Identified, Member
    from diagnose.pipeline.result import SourceResult
    from diagnose.store.writer import StoreWriter


def write_sources(writer: StoreWriter, identified: Identified) -> None:
    """All sources with what was found of them, and all issues."""
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


def write_traces(writer: StoreWriter, members: Sequence[Member]) -> None:
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


def write_records(writer: StoreWriter, results: Sequence[SourceResult]) -> None:
    """Merge the shards of logs, metrics and dumps, which name their ranks and hosts themselves."""
    plain = [result for result in results if result.trace is None and result.shards]
    for table in sorted({table for result in plain for table in result.shards}):
        writer.insert_parquet(table, [Path(file) for result in plain for file in result.shards.get(table, ())])
