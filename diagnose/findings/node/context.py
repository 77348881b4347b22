"""What the node rules share: summaries of all series, polls of GPUs, events, the window, and what faults cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from diagnose.analysis.node_metrics.cost import Cost, host_cost
from diagnose.analysis.node_metrics.counters import base_entity
from diagnose.analysis.node_metrics.load import host_aliases, rename_hosts, run_window, summaries
from diagnose.analysis.node_metrics.under_load import loaded_polls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.facts import Facts

SECOND_NS = 1e9


class Row(NamedTuple):
    """One series of a summary, or several parts of one device added up."""

    host: str | None
    entity: str
    metric: str
    median: float | None
    high: float | None
    low: float | None
    last: float | None
    increase: float | None
    span_ns: float | None
    snapshot: bool
    saturated: int

    @property
    def share(self) -> float | None:
        """Seconds counted per second of the window."""
        return self.rate

    @property
    def rate(self) -> float | None:
        """Increase per second of the window."""
        if self.increase is None or not self.span_ns:
            return None
        return self.increase * SECOND_NS / self.span_ns

    @property
    def total(self) -> float | None:
        """The increase where there is one, else the life total of a snapshot."""
        return self.increase if self.increase is not None else self.last


class Context(NamedTuple):
    """Input of every node rule."""

    facts: Facts
    summary: pl.DataFrame
    polls: pl.DataFrame
    events: pl.DataFrame
    window: tuple[int, int] | None
    cost: Cost
    aliases: dict[str, str]

    def rows(self, *metrics: str) -> Iterator[Row]:
        """Series of some metrics, ordered by host and entity."""
        if self.summary.is_empty():
            return
        wanted = self.summary.filter(pl.col("metric").is_in(metrics)).sort("host", "entity", "metric", nulls_last=True)
        for row in wanted.iter_rows(named=True):
            yield Row(**{name: row[name] for name in Row._fields})

    def devices(self, *metrics: str) -> dict[tuple[str | None, str], dict[str, Row]]:
        """Series by (host, device): parts of a device (links, priorities) added up per metric."""
        found: dict[tuple[str | None, str], dict[str, Row]] = {}
        for row in self.rows(*metrics):
            slot = found.setdefault((row.host, base_entity(row.entity)), {})
            slot[row.metric] = _added(slot[row.metric], row) if row.metric in slot else row
        return found


def build(facts: Facts) -> Context:
    """Everything the rules need, computed once."""
    tables = facts.tables
    aliases = host_aliases(tables)
    window = run_window(tables)
    events = rename_hosts(tables.query("SELECT * FROM node_event ORDER BY host, t_ns, kind, device, source"), aliases)
    return Context(
        facts,
        summaries(tables, window),
        loaded_polls(tables, aliases, window),
        events,
        window,
        host_cost(tables, facts.step_ns),
        aliases,
    )


def _added(first: Row, second: Row) -> Row:
    def both(a: float | None, b: float | None) -> float | None:
        return b if a is None else (a if b is None else a + b)

    spans = [span for span in (first.span_ns, second.span_ns) if span is not None]
    return first._replace(
        increase=both(first.increase, second.increase),
        last=both(first.last, second.last),
        span_ns=max(spans) if spans else None,
        snapshot=first.snapshot and second.snapshot,
        saturated=first.saturated + second.saturated,
    )
