"""From the store to frames: samples under canonical hosts, the run's window, per-series summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

from diagnose.analysis.node_metrics.counters import summarise

if TYPE_CHECKING:
    from collections.abc import Iterable

CHUNK_ROWS = 2_000_000
"""Samples held at once; metrics are taken together up to this many."""


class Tables(Protocol):
    """The reading half of a store."""

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Run a SELECT."""
        ...


def host_aliases(tables: Tables) -> dict[str, str]:
    """Other names of hosts (scrape address, short name) to the name the job itself uses.

    A chain of names ends at a host of the traces when there is one; names that two hosts claim are not used.
    """
    rows = tables.query("SELECT DISTINCT alias, host FROM host_alias WHERE alias <> host").rows()
    claims: dict[str, set[str]] = {}
    for alias, host in rows:
        claims.setdefault(alias, set()).add(host)
    direct = {alias: next(iter(hosts)) for alias, hosts in claims.items() if len(hosts) == 1}
    for host, full in tables.query("SELECT host, full_name FROM host WHERE full_name IS NOT NULL").rows():
        for name in {full.lower(), full.split(".", 1)[0].lower()} - {host}:
            direct.setdefault(name, host)
        if host != host.lower():
            direct.setdefault(host.lower(), host)
    return {alias: _end(alias, direct) for alias in direct}


def run_window(tables: Tables) -> tuple[int, int] | None:
    """First to last moment of the run that traces or training logs tell, None when neither does."""
    row = tables.query(
        "SELECT min(low), max(high) FROM ("
        "SELECT min(coalesce(host_start_ns, start_ns)) AS low, max(coalesce(end_ns, host_end_ns)) AS high FROM step "
        "UNION ALL SELECT min(t_ns - coalesce(step_time_ns, 0)), max(t_ns) FROM training_log)"
    ).row(0)
    return None if row[0] is None or row[1] is None or row[1] <= row[0] else (int(row[0]), int(row[1]))


def profiled_window(tables: Tables) -> tuple[int, int] | None:
    """First to last moment of the profiled steps."""
    row = tables.query(
        "SELECT min(coalesce(host_start_ns, start_ns)), max(coalesce(end_ns, host_end_ns)) FROM step"
    ).row(0)
    return None if row[0] is None or row[1] is None else (int(row[0]), int(row[1]))


def samples(tables: Tables, metrics: Iterable[str], aliases: dict[str, str] | None = None) -> pl.DataFrame:
    """Samples of some metrics, hosts under their canonical names."""
    names = sorted(set(metrics))
    frame = tables.query(
        "SELECT metric, unit, kind, host, entity, t_ns, value, quality, source, format FROM metric_sample "
        "WHERE metric IN (SELECT unnest($names))",
        {"names": names},
    )
    return rename_hosts(frame, host_aliases(tables) if aliases is None else aliases)


def rename_hosts(frame: pl.DataFrame, aliases: dict[str, str]) -> pl.DataFrame:
    """Hosts by their canonical names."""
    return frame.with_columns(pl.col("host").replace(aliases)) if aliases and not frame.is_empty() else frame


def summaries(tables: Tables, window: tuple[int, int] | None) -> pl.DataFrame:
    """One row per series of every metric, computed metric by metric so that memory stays bounded."""
    aliases = host_aliases(tables)
    counts = tables.query("SELECT metric, count(*) AS n FROM metric_sample GROUP BY metric ORDER BY metric").rows()
    parts: list[pl.DataFrame] = []
    batch: list[str] = []
    held = 0
    for metric, count in counts:
        if batch and held + count > CHUNK_ROWS:
            parts.append(summarise(samples(tables, batch, aliases), window))
            batch, held = [], 0
        batch.append(metric)
        held += count
    if batch:
        parts.append(summarise(samples(tables, batch, aliases), window))
    return pl.concat(parts) if parts else pl.DataFrame()


def _end(alias: str, direct: dict[str, str]) -> str:
    seen = {alias}
    name = direct[alias]
    while name in direct and direct[name] not in seen:
        seen.add(name)
        name = direct[name]
    return name
