"""The report's section on nodes: what differs from its peers per host, and sparklines around the profiled window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from diagnose.analysis.node_metrics.correlate import differences
from diagnose.analysis.node_metrics.counters import one_reader, rates, with_order
from diagnose.analysis.node_metrics.facets import PLANS, Facet, facets
from diagnose.analysis.node_metrics.load import host_aliases, profiled_window, run_window, samples, summaries

if TYPE_CHECKING:
    from diagnose.analysis.node_metrics.correlate import Difference
    from diagnose.analysis.node_metrics.load import Tables

SPARK_POINTS = 40
MAX_ROWS = 40
MAX_SPARKLINES = 24
MARGIN = 0.5
"""Of the profiled window's length shown before and after it, at least enough for the points of the slowest series."""


def nodes(tables: Tables) -> dict[str, Any]:
    """``hosts``: per host its facets that differ, worst first; ``sparklines``: those facets over time.

    Every entry of ``differs`` has host, device, measure, value, unit, peers_median and peers; a host without entries
    is like its peers. ``sparklines`` hold times relative to the window's start in seconds and values in the unit.
    """
    window = run_window(tables)
    known = facets(summaries(tables, window))
    different = differences(known)
    hosts = sorted({facet.host for facet in known})
    return {
        "window_ns": window,
        "profiled_ns": profiled_window(tables),
        "hosts": [
            {
                "host": host,
                "measures": sum(facet.host == host for facet in known),
                "differs": [_entry(item) for item in different if item.facet.host == host][:MAX_ROWS],
            }
            for host in hosts
        ],
        "sparklines": _sparklines(tables, [item.facet for item in different][:MAX_SPARKLINES], window),
    }


def _entry(item: Difference) -> dict[str, Any]:
    facet, peers = item.facet, item.peers
    return {
        "device": facet.entity,
        "measure": facet.name,
        "value": facet.value,
        "unit": facet.unit,
        "peers_median": None if peers is None else peers.peers_median,
        "peers": 0 if peers is None else peers.peers,
    }


def _sparklines(tables: Tables, wanted: list[Facet], window: tuple[int, int] | None) -> list[dict[str, Any]]:
    metric_of = {plan.name: plan for plan in PLANS}
    plans = [(facet, metric_of[facet.name]) for facet in wanted if facet.name in metric_of]
    if not plans:
        return []
    frame = one_reader(with_order(samples(tables, {plan.metric for _, plan in plans}, host_aliases(tables))))
    moved = rates(frame.filter(pl.col("kind") == "counter")).rename({"rate": "level"})
    gauges = frame.filter(pl.col("kind") == "gauge").select(
        "metric", "host", "entity", "t_ns", pl.col("value").alias("level")
    )
    series = pl.concat([moved, gauges]).filter(pl.col("t_ns").is_not_null() & pl.col("level").is_not_null())
    shown = _shown(tables, window)
    lines = []
    for facet, plan in plans:
        mine = series.filter(
            (pl.col("metric") == plan.metric)
            & (pl.col("host") == facet.host)
            & pl.col("entity").str.starts_with(facet.entity)
        )
        points = _points(mine, shown)
        if points:
            unit = "1/s" if plan.how in ("increase", "per") else facet.unit
            lines.append(
                {"host": facet.host, "device": facet.entity, "measure": facet.name, "unit": unit, "points": points}
            )
    return lines


def _shown(tables: Tables, window: tuple[int, int] | None) -> tuple[int, int] | None:
    """The profiled window with a margin, or the run when that is all there is; a short profile shows the run."""
    profiled = profiled_window(tables)
    if profiled is None or window is None:
        return window
    margin = max(int((profiled[1] - profiled[0]) * MARGIN), 60_000_000_000)
    return max(window[0], profiled[0] - margin), min(window[1], profiled[1] + margin)


def _points(series: pl.DataFrame, shown: tuple[int, int] | None) -> list[tuple[float, float]]:
    """At most forty means over equal spans; parts of one device are added up per time."""
    if shown is not None:
        series = series.filter(pl.col("t_ns").is_between(*shown))
    if series.is_empty():
        return []
    merged = series.group_by("t_ns").agg(pl.col("level").sum()).sort("t_ns")
    times = merged.get_column("t_ns").to_numpy()
    start = shown[0] if shown is not None else int(times[0])
    seconds = (times - start) / 1e9
    place = np.minimum((np.arange(len(seconds)) * SPARK_POINTS) // max(len(seconds), SPARK_POINTS), SPARK_POINTS - 1)
    values = merged.get_column("level").to_numpy()
    return [
        (round(float(seconds[place == n].mean()), 3), float(values[place == n].mean()))
        for n in np.unique(place).tolist()
    ]
