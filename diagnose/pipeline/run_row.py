"""The one row that says what the run is."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from diagnose import __version__
from diagnose.store.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from diagnose.config import Config
    from diagnose.pipeline.identify import Identified
    from diagnose.store.writer import StoreWriter


def write_run(writer: StoreWriter, identified: Identified, config: Config, name: str) -> None:
    """World size, times and settings. How it was read (`cluster`) is no part of them: the result does not depend on it."""
    traces = [member.result.trace for member in identified.members if member.result.trace]
    worlds = [result.identity.world_size for result in identified.results if result.identity.world_size]
    times = [
        (r.identity.start_ns, r.identity.end_ns)
        for r in identified.results
        if r.trace and r.identity.start_ns and r.identity.end_ns
    ]
    sources = Counter(trace.step_source for trace in traces)
    ranks = [member.rank for member in identified.members if member.rank >= 0]
    if not worlds and len(ranks) > 1:
        worlds = [max(ranks) + 1]
    elif (
        not worlds
        and len(traces) == 1
        and not any("comm_call" in member.result.shards for member in identified.members)
    ):
        worlds = [1]
    world = max(worlds, default=None)
    frame = pl.DataFrame(
        {
            "name": [name],
            "tool_version": [__version__],
            "schema_version": [SCHEMA_VERSION],
            "world_size": [world],
            "backend": [next((trace.backend for trace in traces if trace.backend), None)],
            "device_names": [sorted({device for trace in traces for device in trace.devices if device})],
            "parallelism": [None],
            "start_ns": [min(start for start, _ in times) if times else None],
            "end_ns": [max(end for _, end in times) if times else None],
            "step_source": [sources.most_common(1)[0][0] if sources else "none"],
            "config": [msgspec.json.encode(msgspec.structs.replace(config, cluster={})).decode()],
        },
        schema={
            "name": pl.String,
            "tool_version": pl.String,
            "schema_version": pl.Int32,
            "world_size": pl.Int32,
            "backend": pl.String,
            "device_names": pl.List(pl.String),
            "parallelism": pl.String,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "step_source": pl.String,
            "config": pl.String,
        },
    )
    writer.insert("run", frame)
