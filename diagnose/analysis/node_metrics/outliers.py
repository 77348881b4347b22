"""Hosts that differ in a combination no rule names: isolation of robustly scaled host x metric rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

MIN_HOSTS = 8
"""Fewer hosts give no distribution to be an outlier of; peers are then compared metric by metric."""

MIN_SIGMAS = 6.0
"""A host must also deviate this far in one metric: the forest alone always finds someone."""

MAX_SCALED = 50.0
SEED = 17
RELATIVE_FLOOR = 0.01
"""Spread below this share of the median is rounding and jitter: 1 %."""


class Outlier(NamedTuple):
    """One host, its isolation score (higher is stranger) and the metrics that set it apart, with sigmas."""

    host: str
    score: float
    reasons: tuple[tuple[str, float], ...]


def host_matrix(summary: pl.DataFrame) -> pl.DataFrame:
    """Hosts x metrics: rates of counters, medians of gauges; entities of one host by their mean."""
    if summary.is_empty():
        return pl.DataFrame()
    value = (
        pl.when(pl.col("kind") == "counter")
        .then(pl.col("increase") * 1e9 / pl.col("span_ns"))
        .when(pl.col("kind") == "gauge")
        .then(pl.col("median"))
    )
    rows = (
        summary.filter(pl.col("host").is_not_null())
        .with_columns(
            value.alias("measure"), pl.col("entity").str.extract(r"(mode:\w+|prio:\d)$").fill_null("").alias("part")
        )
        .filter(pl.col("measure").is_finite())
        .with_columns(pl.concat_str("metric", pl.lit(" "), "part").str.strip_chars().alias("column"))
        .filter(~pl.col("column").str.contains(r"^(?:node\.(?:boot_time|time)|job\.|event\.|bench\.|nic\.mtu|up)"))
    )
    return rows.pivot(on="column", index="host", values="measure", aggregate_function="mean", sort_columns=True).sort(
        "host"
    )


def find_outliers(matrix: pl.DataFrame) -> list[Outlier]:
    """Hosts that the forest isolates and that lie beyond ``MIN_SIGMAS`` in a metric all hosts have.

    Rows are ordered by their values and never by host names, so that renaming hosts changes nothing.
    """
    if matrix.height < MIN_HOSTS:
        return []
    columns = [name for name in matrix.columns if name != "host" and matrix.get_column(name).null_count() == 0]
    if not columns:
        return []
    values = matrix.select(columns).to_numpy()
    order = np.lexsort(values.T[::-1])
    scaled = np.clip(_scaled(values[order]), -MAX_SCALED, MAX_SCALED)
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=200, random_state=SEED, contamination="auto")
    scores = -forest.fit(scaled).score_samples(scaled)
    limit = float(np.median(scores) + 3 * max(1.4826 * np.median(np.abs(scores - np.median(scores))), 0.01))
    hosts = matrix.get_column("host").to_list()
    found = []
    for row, place in enumerate(order):
        deviations = sorted(
            ((name, float(scaled[row, n])) for n, name in enumerate(columns)), key=lambda pair: (-abs(pair[1]), pair[0])
        )
        reasons = tuple(pair for pair in deviations[:5] if abs(pair[1]) >= MIN_SIGMAS)
        if scores[row] > limit and reasons:
            found.append(Outlier(hosts[place], float(scores[row]), reasons))
    return sorted(found, key=lambda item: (-item.score, item.host))


def _scaled(values: np.ndarray) -> np.ndarray:
    """Columns in robust sigmas from their medians; a spread below rounding counts as rounding."""
    middle = np.median(values, axis=0)
    spread = 1.4826 * np.median(np.abs(values - middle), axis=0)
    floor = np.maximum(np.abs(middle) * RELATIVE_FLOOR, 1e-12)
    scaled: np.ndarray = (values - middle) / np.maximum(spread, floor)
    return scaled
