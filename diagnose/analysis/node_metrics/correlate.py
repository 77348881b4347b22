"""Physical evidence for suspects, and metrics against step times with lag and control of multiple tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.node_metrics.counters import one_reader, rates, with_order
from diagnose.analysis.node_metrics.facets import Facet, facets
from diagnose.analysis.node_metrics.load import host_aliases, run_window, samples, summaries
from diagnose.analysis.node_metrics.peers import Comparison, compare
from diagnose.model import Evidence
from diagnose.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diagnose.analysis.node_metrics.load import Tables

COUNTS_ARE_FAULTS = frozenset(
    {
        "PCIe replays",
        "NVLink replays",
        "NVLink recoveries",
        "symbol errors",
        "receive errors",
        "link downs",
        "transmit discards",
        "out of sequence",
        "packet sequence errors",
        "ACK timeouts",
        "CNPs handled",
        "rx discards",
        "EFA retransmit time-outs",
        "carrier losses",
        "TCP time-outs",
        "interface drops",
    }
)
SHARES_ARE_FAULTS = frozenset(
    {
        "HW thermal slowdown",
        "SW thermal slowdown",
        "HW power brake",
        "thermal violation",
        "rx pause",
        "tx pause",
        "CPU steal",
        "CPU iowait",
        "CPU throttled periods",
        "CPU throttled time",
        "TCP retransmits",
        "io pressure",
    }
)
LOWER_IS_WORSE = frozenset({"SM clock", "PCIe generation", "PCIe width", "link rate", "power"})
TRAFFIC = frozenset({"sent", "received", "read by the job", "disk read"})
SHOWN = frozenset({"SM clock", "temperature", "link rate", "sent", "TCP retransmits"})
"""Measures quoted even when nothing stands out."""

MIN_COUNT = 10
MIN_SHARE = 0.01
MIN_RETRANSMITS = 0.01
WORSE_RATIO = 0.95
TRAFFIC_RATIO = 1.5
MIN_TRAFFIC_BYTES_PER_S = 1_000_000
FAMILIES = (
    ("gpu:", "GPU"),
    ("nic:", "network"),
    ("node", "host"),
    ("job:", "host"),
    ("disk:", "disk"),
    ("mount:", "storage"),
)
MAX_LINES = 6


class Difference(NamedTuple):
    """One facet of a host that its peers do not share; ``bad`` is how far, for sorting."""

    facet: Facet
    peers: Comparison | None
    bad: float


class Association(NamedTuple):
    """One series against step time: rank correlation at the best lag and its false discovery rate."""

    host: str | None
    entity: str
    metric: str
    lag_ns: int
    correlation: float
    p_value: float
    q_value: float
    windows: int


def evidence_for(tables: Tables, hosts: list[str], window: tuple[int, int] | None) -> dict[str, list[Evidence]]:
    """Evidence lines per suspected host: what differs from its peers first, else that the counters look normal.

    A host without any metric gets one line that says so. ``window`` is the time the suspicion covers, None for the run.
    """
    summary = summaries(tables, window or run_window(tables))
    known = facets(summary)
    different = differences(known)
    result: dict[str, list[Evidence]] = {}
    for host in hosts:
        mine = [facet for facet in known if facet.host == host]
        found = [item for item in different if item.facet.host == host]
        lines = [_line(item) for item in found[:MAX_LINES]]
        if not mine:
            lines = [Evidence(f"{host}: no node metrics cover it", source="metric_sample")]
        elif not lines:
            lines = [_normal(host, mine)]
        result[host] = lines
    return result


def differences(known: list[Facet]) -> list[Difference]:
    """Facets that stand out, worst first: faults by themselves, and outliers against the same device of other hosts."""
    by_name: dict[tuple[str, str], dict[str, Facet]] = {}
    for facet in known:
        by_name.setdefault((facet.name, _role(facet.entity)), {})[f"{facet.host}|{facet.entity}"] = facet
    found: list[Difference] = []
    for group in by_name.values():
        compared = compare({key: facet.value for key, facet in group.items()})
        for key, facet in group.items():
            bad = _badness(facet, compared.get(key))
            if bad > 0:
                found.append(Difference(facet, compared.get(key), bad))
    return sorted(found, key=lambda item: (-item.bad, item.facet.host, item.facet.entity, item.facet.name))


def _role(entity: str) -> str:
    """What may be compared: all GPUs with all GPUs, a NIC with the NIC of the same name."""
    return entity if entity.startswith(("nic:", "disk:", "mount:")) else entity.split(":", 1)[0]


def _badness(facet: Facet, peers: Comparison | None) -> float:
    value, name = facet.value, facet.name
    if name in COUNTS_ARE_FAULTS:
        limit = max(MIN_COUNT, 2 * peers.largest_other) if peers else MIN_COUNT
        return value / limit if value > limit else 0.0
    if name in SHARES_ARE_FAULTS:
        floor = MIN_RETRANSMITS if name == "TCP retransmits" else MIN_SHARE
        limit = max(floor, 2 * peers.largest_other) if peers else floor
        return value / limit if value > limit else 0.0
    if peers is None or peers.ratio is None:
        return 0.0
    if name in LOWER_IS_WORSE:
        return 1 + (1 - peers.ratio) * 10 if peers.ratio < WORSE_RATIO and value < 0.99 * peers.smallest_other else 0.0
    if name in TRAFFIC:
        much = value > TRAFFIC_RATIO * peers.largest_other and value - peers.largest_other > MIN_TRAFFIC_BYTES_PER_S
        return value / max(peers.largest_other, 1.0) if much else 0.0
    if name == "temperature":
        return 1 + (value - peers.peers_median) / 10 if value - peers.peers_median > 10 else 0.0
    return 0.0


def _line(item: Difference) -> Evidence:
    facet, peers = item.facet, item.peers
    text = f"{facet.host} {facet.entity}: {facet.name} {format_value(facet.value, facet.unit)}"
    if peers is not None:
        text += f", its {peers.peers} peers {format_value(peers.peers_median, facet.unit)} (median)"
    return Evidence(text, facet.value, facet.unit, "metric_sample")


def _normal(host: str, mine: list[Facet]) -> Evidence:
    seen = []
    for prefix, family in FAMILIES:
        if family not in seen and any(facet.entity.startswith(prefix) for facet in mine):
            seen.append(family)
    absent = [family for family in ("GPU", "network", "host") if family not in seen]
    text = f"{host}: counters look normal ({len(mine)} measures of {', '.join(seen)} like its peers)"
    shown = [f"{f.entity} {f.name} {format_value(f.value, f.unit)}" for f in mine if f.name in SHOWN and f.value > 0]
    text += f": {'; '.join(shown[:MAX_LINES])}" if shown else ""
    return Evidence(text + (f"; no {', '.join(absent)} metrics" if absent else ""), None, None, "metric_sample")


def step_associations(
    tables: Tables, metrics: Iterable[str], *, max_lag_windows: int = 2, q: float = 0.05
) -> list[Association]:
    """Series whose windows rank like the step times of the training log, false discovery rate below ``q``.

    Windows are at least two sampling periods wide; fewer than eight windows tell nothing. The p-value counts
    autocorrelated windows for what they are worth (Bartlett's effective sample size), times the lags tried.
    Source: Benjamini and Hochberg 1995
    """
    log = tables.query(
        "SELECT t_ns, step_time_ns FROM training_log WHERE t_ns IS NOT NULL AND step_time_ns IS NOT NULL "
        "AND coalesce(rank, 0) = (SELECT min(coalesce(rank, 0)) FROM training_log) ORDER BY t_ns"
    )
    if log.height < 2 * MIN_WINDOWS:
        return []
    frame = one_reader(with_order(samples(tables, metrics, host_aliases(tables)).filter(pl.col("t_ns").is_not_null())))
    if frame.is_empty():
        return []
    values = pl.concat(
        [
            rates(frame.filter(pl.col("kind") == "counter")).rename({"rate": "level"}),
            frame.filter((pl.col("kind") == "gauge") & pl.col("value").is_not_null()).select(
                "metric", "host", "entity", "t_ns", pl.col("value").alias("level")
            ),
        ]
    )
    return _corrected(_tests(log, values, max_lag_windows), q)


MIN_WINDOWS = 8


def _tests(log: pl.DataFrame, values: pl.DataFrame, max_lag: int) -> list[Association]:
    start, end = log.get_column("t_ns").min(), log.get_column("t_ns").max()
    if not isinstance(start, int) or not isinstance(end, int):
        return []
    found: list[Association] = []
    for (metric, host, entity), series in values.sort("t_ns").group_by(
        ["metric", "host", "entity"], maintain_order=True
    ):
        period = series.get_column("t_ns").diff().median()
        width = max(int(2 * float(period or 0)), (end - start) // 200, 1)  # type: ignore[arg-type]
        steps = _binned(log.get_column("t_ns"), log.get_column("step_time_ns"), start, width, end)
        level = _binned(series.get_column("t_ns"), series.get_column("level"), start, width, end)
        best = _best_lag(steps, level, max_lag)
        if best is not None:
            lag, r, p, n = best
            name = None if host is None else str(host)
            found.append(Association(name, str(entity), str(metric), lag * width, r, p, 1.0, n))
    return found


def _binned(times: pl.Series, values: pl.Series, start: int, width: int, end: int) -> np.ndarray:
    count = max(int((end - start) // width) + 1, 1)
    place = (times.to_numpy() - start) // width
    use = (place >= 0) & (place < count)
    sums = np.bincount(place[use], weights=values.to_numpy()[use].astype(float), minlength=count)
    hits = np.bincount(place[use], minlength=count)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: np.ndarray = np.where(hits > 0, sums / hits, np.nan)
    return means


def _best_lag(steps: np.ndarray, level: np.ndarray, max_lag: int) -> tuple[int, float, float, int] | None:
    """The lag (in windows; positive: the metric moved first) with the strongest rank correlation."""
    from scipy import stats

    best: tuple[int, float, float, int] | None = None
    for lag in range(-max_lag, max_lag + 1):
        left = steps[max(lag, 0) : len(steps) + min(lag, 0)]
        right = level[max(-lag, 0) : len(level) + min(-lag, 0)]
        both = np.isfinite(left) & np.isfinite(right)
        n = int(both.sum())
        if n < MIN_WINDOWS or np.ptp(left[both]) == 0 or np.ptp(right[both]) == 0:
            continue
        a, b = stats.rankdata(left[both]), stats.rankdata(right[both])
        r = _correlation(a, b)
        effective = _effective(a, b, n)
        if effective <= 3:
            continue
        t = abs(r) * np.sqrt((effective - 2) / max(1 - r * r, 1e-12))
        p = min(1.0, float(2 * stats.t.sf(t, effective - 2)) * (2 * max_lag + 1))
        if best is None or abs(r) > abs(best[1]):
            best = (lag, r, p, n)
    return best


def _effective(a: np.ndarray, b: np.ndarray, n: int) -> float:
    both = _correlation(a[:-1], a[1:]) * _correlation(b[:-1], b[1:])
    return float(n * (1 - both) / (1 + both)) if both > -1 else float(n)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's r, 0 for a constant."""
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 and np.ptp(b) > 0 else 0.0


def _corrected(found: list[Association], q: float) -> list[Association]:
    """Benjamini-Hochberg over all series tested."""
    ordered = sorted(found, key=lambda item: item.p_value)
    values: list[float] = []
    running = 1.0
    for index in range(len(ordered) - 1, -1, -1):
        running = min(running, ordered[index].p_value * len(ordered) / (index + 1))
        values.append(running)
    adjusted = [item._replace(q_value=value) for item, value in zip(ordered, reversed(values), strict=True)]
    return [item for item in adjusted if item.q_value <= q]
