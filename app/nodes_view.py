"""The Nodes page's data: metrics ordered by interest, the lines to draw, peers as a band."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import data
import polars as pl
from findings_view import NODE_CAUSES

from diagnose.report.sheet import is_series
from diagnose.report.view import ranges

if TYPE_CHECKING:
    from catalog import Run

    from diagnose.report.document import Document

WINDOWS = 150
MOST_LINES = 12
_LIKELY = (
    "clock",
    "temp",
    "power",
    "throttle",
    "util",
    "busy",
    "iowait",
    "load",
    "rx",
    "tx",
    "err",
    "pause",
    "retrans",
    "xid",
    "ecc",
)


_WORD = re.compile(r"[a-z]+\d*")


class Series(NamedTuple):
    """Lines of the chosen host and of the most deviating others, the band of all, unit and what was left out."""

    lines: pl.DataFrame
    band: pl.DataFrame
    unit: str
    note: str


def metrics(run: Run, document: Document) -> pl.DataFrame:
    """Metrics, those that findings speak of first, then those that most often tell something."""
    frame = data.rows(run, "metric_names")
    spoken = _spoken(document)
    named = [spoken.issuperset(_words(name)) for name in frame.get_column("metric")]
    likely = [
        next((place for place, word in enumerate(_LIKELY) if word in name.lower()), len(_LIKELY))
        for name in frame.get_column("metric")
    ]
    return frame.with_columns(
        pl.Series("named", named, dtype=pl.Boolean), pl.Series("likely", likely, dtype=pl.Int64)
    ).sort("named", "likely", "metric", descending=[True, False, False])


def _spoken(document: Document) -> set[str]:
    """Words of the findings about nodes, and of the rows that the report shows of them."""
    texts = [
        f"{item.title} {item.message} {' '.join(item.devices)}"
        for item in document.findings
        if item.cause in NODE_CAUSES
    ]
    rows = (document.charts.nodes if document.charts else None) or ()
    return _words(
        " ".join((*texts, *(f"{row.get('device')} {row.get('measure')}" for row in rows if isinstance(row, dict))))
    )


def _words(text: str) -> set[str]:
    """Words of a text or of a metric's name, without those that only tell how it is counted."""
    return set(_WORD.findall(text.lower())) - {"total", "seconds"}


def series(run: Run, listed: pl.DataFrame, metric: str, host: str | None) -> Series:
    """One metric as lines over time; seconds are counted from the start of the traced steps."""
    row = listed.filter(pl.col("metric") == metric).row(0, named=True)
    unit = row["unit"] or "raw"
    if row["kind"] == "counter":
        unit += "/s"
    start = data.rows(run, "run_window").item(0, "first_ns") or row["first_ns"]
    frame = data.rows(run, "metric_series", metric=metric, most=WINDOWS).with_columns(
        ((pl.col("t_ns") - start) / 1e9).alias("seconds"),
        (pl.col("host") + "  " + pl.col("entity")).alias("who"),
        (pl.col("host") if host is None else pl.col("entity")).alias("line"),
    )
    band = frame.group_by("t_ns", "seconds").agg(
        pl.col("value").median().alias("middle"), pl.col("value").quantile(0.1).alias("low"), pl.col("value").quantile(0.9).alias("high"), pl.len().alias("series")
    ).sort("seconds")  # fmt: skip
    names = _interesting(frame, host)
    total = frame.get_column("who").n_unique()
    note = (
        f"{len(names)} of {total} series as lines: those furthest from the median. Band: the middle 80 % of all."
        if len(names) < total
        else ""
    )
    return Series(frame.filter(pl.col("who").is_in(names)), band, unit, note)


def window(run: Run) -> pl.DataFrame:
    """The traced steps in seconds from their start."""
    row = data.rows(run, "run_window").row(0, named=True)
    if row["first_ns"] is None or row["last_ns"] is None:
        return pl.DataFrame(schema={"from": pl.Float64, "to": pl.Float64})
    return pl.DataFrame({"from": [0.0], "to": [(row["last_ns"] - row["first_ns"]) / 1e9]})


def events(run: Run) -> pl.DataFrame:
    """Events with seconds from the start of the traced steps."""
    start = data.rows(run, "run_window").item(0, "first_ns")
    frame = data.rows(run, "node_events")
    after = pl.lit(None, dtype=pl.Float64) if start is None else (pl.col("t_ns") - start) / 1e9
    return frame.with_columns(after.alias("after the first step (s)")).drop("t_ns")


def _interesting(frame: pl.DataFrame, host: str | None) -> list[str]:
    if host is not None:
        frame = frame.filter(pl.col("host") == host)
    middle = pl.col("value") - pl.col("value").median().over("t_ns")
    far = (
        frame.with_columns(middle.abs().alias("far"))
        .group_by("who")
        .agg(pl.col("far").mean())
        .sort("far", "who", descending=[True, False])
    )
    return far.head(MOST_LINES).get_column("who").sort().to_list()


def hosts(run: Run) -> list[str]:
    """Hosts that have metrics or events."""
    return data.rows(run, "metric_hosts").get_column("host").to_list()


def host_table(found: pl.DataFrame) -> pl.DataFrame:
    """Hosts with their ranks as ranges."""
    listed = [
        ranges([rank for rank in ranks or [] if rank is not None], limit=50)
        for ranks in found.get_column("ranks").to_list()
    ]
    return found.select("host", "full_name", pl.Series("ranks", listed, dtype=pl.String))


def glance(document: Document) -> pl.DataFrame:
    """The report's rows about nodes; series of numbers stay lists, to be drawn."""
    rows = document.charts.nodes if document.charts else None
    found = [row for row in rows or () if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in found for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in found]
        if all(value is None or is_series(name, value) for value in values):
            columns.append(pl.Series(name, values, dtype=pl.List(pl.Float64), strict=False))
        else:
            columns.append(pl.Series(name, ["" if value is None else str(value) for value in values], dtype=pl.String))
    return pl.DataFrame(columns)
