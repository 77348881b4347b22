"""The documented table for everything else: time, host, device, metric, value as CSV or Parquet, read column-wise."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from diagnose.errors import UsageError
from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nvidia_fields import QUERY_FIELDS
from diagnose.ingest.node_metrics.reader import MetricFormat, read_bytes
from diagnose.ingest.node_metrics.vocabulary import METRICS, describe
from diagnose.ingest.node_metrics.wide_csv import read_time
from diagnose.ingest.node_metrics.wide_names import title_metric

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

NAMES: dict[str, tuple[str, ...]] = {
    "time": ("time", "timestamp", "t", "ts", "t_ns", "datetime"),
    "host": ("host", "hostname", "node", "instance", "machine"),
    "device": ("device", "entity", "gpu_id", "gpu", "gpu_index", "index", "nic", "interface"),
    "metric": ("metric", "name", "measurement"),
    "value": ("value",),
}
"""Accepted titles of the five columns."""

MAX_TABLE_BYTES = 4 * 1024**3
FILL_ROWS = 1_000_000


class PlainTable(MetricFormat):
    """CSV or Parquet with one value a row, or one metric a column beside time, host and device.

    Grain: (time, host, device, metric). Metrics are canonical names in canonical units; other names stay raw.
    Times are ISO 8601, epoch seconds, milliseconds, microseconds or nanoseconds. Empty cells are unknown.
    Source: docs/node_metrics.md
    """

    name = "plain-metrics"
    priority = 380

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """A header with a time, and either metric and value or a device and known metric titles."""
        if head.startswith(b"PAR1"):
            return name.suffix in (".parquet", ".pq") and b"metric" in head[:65536]
        titles = [cell.strip().strip('"').lower() for cell in _first_line(head).split(_delimiter(head))]
        if len(titles) < 3 or not any(title in NAMES["time"] for title in titles):
            return False
        if "value" in titles and any(title in NAMES["metric"] for title in titles):
            return True
        rest = [title for title in titles if not any(title in group for group in NAMES.values())]
        has_device = any(title in NAMES["device"] for title in titles) and titles[0] in NAMES["time"]
        return has_device and bool(rest) and all(_known(title) for title in rest) and not _is_nvidia(titles)

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """The table to batches of a million rows."""
        data = read_bytes(source, sink, MAX_TABLE_BYTES)
        if data.startswith(b"PAR1"):
            table = pl.read_parquet(io.BytesIO(data))
        else:
            table = pl.read_csv(
                data,
                separator=_delimiter(data),
                infer_schema=False,
                truncate_ragged_lines=True,
                null_values=["", "NA", "N/A", "NaN", "nan", "null", "-"],
            )
        sink.host_from_path()
        frame = normalise(table.rename({name: name.strip().lower() for name in table.columns}), sink)
        for part in frame.iter_slices(FILL_ROWS):
            yield sink.bulk(part)


def normalise(table: pl.DataFrame, sink: Samples) -> pl.DataFrame:
    """Columns as metric_sample has them."""
    found = {role: next((name for name in names if name in table.columns), None) for role, names in NAMES.items()}
    if found["metric"] is None or found["value"] is None:
        table = _melt(table, found)
        found |= {"metric": "metric", "value": "value"}
    scales = {name: title_metric(name, "") for name in table.get_column("metric").unique().drop_nulls().to_list()}
    meaning = {
        name: (name, 1.0) if name in METRICS or not _known(name) else known[:2] for name, known in scales.items()
    }
    spec = {name: describe(metric) for name, (metric, _) in meaning.items()}
    raw = pl.col(str(found["metric"]))
    value = pl.col(str(found["value"])).cast(pl.Float64, strict=False)
    frame = table.select(
        raw.replace_strict(
            {name: metric for name, (metric, _) in meaning.items()}, return_dtype=pl.String, default=None
        ).alias("metric"),
        raw.replace_strict({name: one.unit for name, one in spec.items()}, return_dtype=pl.String, default=None).alias(
            "unit"
        ),
        raw.replace_strict({name: one.kind for name, one in spec.items()}, return_dtype=pl.String, default=None).alias(
            "kind"
        ),
        _hosts(table, found["host"]).alias("host"),
        _entities(table, found["device"], raw, meaning).alias("entity"),
        _times(table, found["time"], sink).alias("t_ns"),
        (
            value
            * raw.replace_strict({n: scale for n, (_, scale) in meaning.items()}, return_dtype=pl.Float64, default=1.0)
        ).alias("value"),
    ).filter(pl.col("metric").is_not_null())
    return frame.with_columns(
        pl.col("value").fill_nan(None),
        pl.when(pl.col("value").is_null()).then(pl.lit("null")).otherwise(pl.lit("ok")).alias("quality"),
    )


def _melt(table: pl.DataFrame, found: dict[str, str | None]) -> pl.DataFrame:
    keys = [name for role in ("time", "host", "device") if (name := found[role])]
    values = [name for name in table.columns if name not in keys]
    return table.unpivot(on=values, index=keys, variable_name="metric", value_name="value")


def _hosts(table: pl.DataFrame, column: str | None) -> pl.Expr:
    if column is None:
        return pl.lit(None, dtype=pl.String)
    names = {name: identity.host_name(str(name)) for name in table.get_column(column).unique().drop_nulls().to_list()}
    return pl.col(column).replace_strict(names, return_dtype=pl.String, default=None)


def _entities(
    table: pl.DataFrame, column: str | None, metric: pl.Expr, meaning: dict[str, tuple[str, float]]
) -> pl.Expr:
    """A device as it is when it carries a kind (``gpu:0`` is index 0), else under the kind its metric asks for."""
    if column is None:
        return pl.lit("node")
    kinds = {name: canonical.split(".", 1)[0] for name, (canonical, _) in meaning.items()}
    kind = metric.replace_strict(kinds, return_dtype=pl.String, default="node")
    devices = table.get_column(column).cast(pl.String).unique().drop_nulls().to_list()
    device = pl.col(column).cast(pl.String)
    full = device.replace_strict({name: _device(name) for name in devices}, return_dtype=pl.String, default=None)
    bare = pl.when(kind == "gpu").then(pl.lit("gpu:index:") + device).otherwise(kind + pl.lit(":") + device)
    return (
        pl.when(device.is_null() | (device == "") | (device == "node"))
        .then(pl.lit("node"))
        .otherwise(full.fill_null(bare))
    )


def _device(name: str) -> str | None:
    if uuid := identity.gpu_uuid(name):
        return f"gpu:{uuid}"
    kind, _, rest = name.partition(":")
    if kind == "gpu" and rest.isdigit():
        return f"gpu:index:{rest}"
    return name if rest and kind in ("gpu", "nic", "disk", "mount", "node", "job", "pci", "rank") else None


def _times(table: pl.DataFrame, column: str | None, sink: Samples) -> pl.Expr:
    if column is None:
        return pl.lit(None, dtype=pl.Int64)
    kind = table.get_column(column).dtype
    if isinstance(kind, pl.Datetime):
        return pl.col(column).dt.epoch("ns")
    number = pl.col(column).cast(pl.Float64, strict=False)
    if (
        kind.is_integer()
        or kind.is_float()
        or table.get_column(column).head(50).cast(pl.Float64, strict=False).null_count() == 0
    ):
        whole = pl.col(column).cast(pl.Int64, strict=False)
        return (
            pl.when(number.abs() < 1e11)
            .then((number * 1e6).round().cast(pl.Int64) * 1000)
            .when(number.abs() < 1e14)
            .then((number * 1e3).round().cast(pl.Int64) * 1000)
            .when(number.abs() < 1e17)
            .then(whole * 1000)
            .otherwise(whole)
        )
    try:
        stamps = {text: read_time(text, sink) for text in table.get_column(column).unique().drop_nulls().to_list()}
    except UsageError:
        stamps = {}
    return pl.col(column).replace_strict(stamps, return_dtype=pl.Int64, default=None)


def _known(title: str) -> bool:
    return title in METRICS or not title_metric(title, "")[0].startswith("csv:")


def _is_nvidia(titles: list[str]) -> bool:
    return any(title.split(" [", 1)[0] in QUERY_FIELDS for title in titles)


def _first_line(data: bytes) -> str:
    return data.lstrip(b"\xef\xbb\xbf\r\n ").split(b"\n", 1)[0].decode("utf-8", "replace").strip()


def _delimiter(data: bytes) -> str:
    line = _first_line(data[:65536])
    return max((",", ";", "\t"), key=line.count)
