"""Prometheus text: expositions, OpenMetrics, and both promtool dumps, parsed column-wise in blocks."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import polars as pl

from diagnose.ingest.node_metrics.prometheus_series import Series, resolve, split_key
from diagnose.ingest.node_metrics.reader import MetricFormat, pattern
from diagnose.ingest.node_metrics.values import DCGM_BLANK_SPAN, DCGM_BLANKS
from diagnose.ingest.node_metrics.vocabulary import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

BLOCK_BYTES = 8 * 1024 * 1024
LINE = r"^\s*([^\s{]*(?:\{.*\})?)\s+([+-]?[\w.+-]+)(?:\s+([+-]?[\d.eE+-]+))?(?:\s+#.*)?\s*$"
EXEMPLAR = r"\s#\s\{[^}]*\}.*$"
FIRST_MILLISECOND_STAMP = 100_000_000_000
"""A stamp from here on counts milliseconds: as seconds it would lie in the year 5138."""

_TYPE = re.compile(rb"^# TYPE (\S+) (\w+)", re.MULTILINE)
_SAMPLE = re.compile(
    rb'^(?:[A-Za-z_:][\w:]*(?:\{[^\n]*\})?|\{(?:__name__\s*=\s*)?"[^\n]*\})[ \t]+'
    rb"[+-]?(?:[\d.]+(?:[eE][+-]?\d+)?|NaN|Inf)(?:[ \t]+[+-]?[\d.]+)?[ \t]*\r?$",
    re.MULTILINE,
)
_PLAIN_TEXT_LINES = 0.6


class PrometheusText(MetricFormat):
    """Exposition text (no time, or milliseconds), OpenMetrics (seconds), ``promtool tsdb dump``, ``dump-openmetrics``.

    Grain: (series, t_ns). Without times a file named by its scrape time takes it from there.
    Source: prometheus.io exposition formats; OpenMetrics 1.0
    """

    name = "prometheus-text"
    priority = 310
    markers = (pattern(r"^(?:# (?:HELP|TYPE) |[A-Za-z_:{])"),)

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """TYPE comments, or nearly only sample lines."""
        if not super().sniff(head, name):
            return False
        body = head if len(head) < 65536 else head[: head.rfind(b"\n")]
        lines = [line for line in body.splitlines() if line.strip() and not line.startswith(b"#")]
        samples = len(_SAMPLE.findall(body))
        if _TYPE.search(body) and samples:
            return True
        labelled = any(b"{" in line for line in lines[:50]) or name.suffix in (".prom", ".om")
        return bool(lines) and labelled and samples >= _PLAIN_TEXT_LINES * len(lines)

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Blocks of whole lines to batches; series are resolved once each."""
        known: dict[str, Series | None] = {}
        declared: dict[str, str] = {}
        dump: bool | None = None
        rest = b""
        with source.open() as handle:
            for block in itertools.chain(handle.blocks(BLOCK_BYTES), (b"",)):
                data = rest + block
                end = data.rfind(b"\n") + 1 if block else len(data)
                rest = data[end:]
                if dump is None and data.strip():
                    dump = data.lstrip()[:1] == b"{"
                if b"# TYPE " in data:
                    declared.update((name.decode(), kind.decode()) for name, kind in _TYPE.findall(data, 0, end))
                frame = parse_block(data[:end], known, sink, milliseconds=bool(dump))
                sink.host_from_path()
                if not frame.is_empty():
                    yield sink.bulk(frame)
            sink.cut = handle.damage
        _compare_types(declared, sink)


def parse_block(data: bytes, known: dict[str, Series | None], sink: Samples, *, milliseconds: bool) -> pl.DataFrame:
    """Sample lines of a block as columns of metric_sample; ``known`` remembers resolved keys between blocks."""
    text = pl.Series("line", [data.decode("utf-8", "replace")]).str.split("\n").explode()
    lines = text.to_frame().filter((pl.col("line") != "") & ~pl.col("line").str.starts_with("#"))
    if b" # {" in data:  # exemplars of OpenMetrics
        lines = lines.with_columns(pl.col("line").str.replace(EXEMPLAR, ""))
    parts = split_lines(lines)
    sink.broken += parts.get_column("key").null_count()
    parts = parts.filter(pl.col("key").is_not_null() & (pl.col("key") != ""))
    keys = parts.get_column("key").unique(maintain_order=True).to_list()
    for key in keys:
        if key not in known:
            name, labels = split_key(key)
            known[key] = resolve(name, labels, sink)
    meaning = series_frame([(key, known[key]) for key in keys])
    joined = parts.join(meaning, on="key", how="inner", maintain_order="left")
    return finish_columns(joined.with_columns(_stamp(milliseconds=milliseconds)))


def split_lines(lines: pl.DataFrame) -> pl.DataFrame:
    """Columns key, value (number), stamp (number or null). Lines of the usual shape are cut, others matched.

    Cutting at the first ``} `` is five times faster than the pattern; a label value that holds one leaves a rest with
    a brace, or a value that is no number, and goes to the pattern.
    """
    cut = (
        lines.with_row_index("row")
        .select("row", "line", pl.col("line").str.splitn("} ", 2).struct.rename_fields(["key", "rest"]).alias("parts"))
        .unnest("parts")
    )
    cut = cut.with_columns(
        pl.col("rest").str.splitn(" ", 2).struct.rename_fields(["value", "stamp"]).alias("parts"),
    ).unnest("parts")
    number, stamp = (pl.col(name).cast(pl.Float64, strict=False) for name in ("value", "stamp"))
    cut = cut.with_columns(number.alias("number"), stamp.alias("time"))
    usual = (
        pl.col("number").is_not_null()
        & (pl.col("time").is_not_null() | pl.col("stamp").is_null())
        & ~pl.col("rest").str.contains("}", literal=True)
    ).fill_null(value=False)
    fast = cut.filter(usual).select(
        "row", pl.col("key") + "}", pl.col("number").alias("value"), pl.col("time").alias("stamp")
    )
    slow = cut.filter(~usual).select(
        "row", pl.col("line").str.extract_groups(LINE).struct.rename_fields(["key", "value", "stamp"]).alias("parts")
    )
    if slow.is_empty():
        return fast
    matched = slow.unnest("parts").with_columns(pl.col("value", "stamp").cast(pl.Float64, strict=False))
    return pl.concat([fast, matched]).sort("row")


def series_frame(meanings: list[tuple[str, Series | None]]) -> pl.DataFrame:
    """Resolved keys as a frame to join samples with."""
    kept = [(key, *series) for key, series in meanings if series is not None]
    schema = {
        "key": pl.String,
        "metric": pl.String,
        "unit": pl.String,
        "kind": pl.String,
        "host": pl.String,
        "entity": pl.String,
        "scale": pl.Float64,
        "blanks": pl.Boolean,
    }
    frame = pl.DataFrame(kept, schema=schema, orient="row")
    width = {name: float(spec.bits) for name, spec in METRICS.items() if spec.bits}
    return frame.with_columns(
        pl.col("metric").replace_strict(width, default=None, return_dtype=pl.Float64).alias("bits")
    )


def finish_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Sentinels to null, the factor applied, saturation tested on the raw value, quality set."""
    raw = pl.col("value")
    blank = pl.lit(False)  # noqa: FBT003 - polars' literal
    for first in DCGM_BLANKS:
        blank = blank | ((raw >= float(first)) & (raw < float(first) + DCGM_BLANK_SPAN))
    blank = pl.col("blanks") & (blank | (raw >= float(DCGM_BLANKS[1])))
    value = pl.when(blank | raw.is_nan() | raw.is_infinite()).then(None).otherwise(raw)
    full = pl.lit(False)  # noqa: FBT003 - polars' literal
    for bits in (4, 8, 16, 32):
        full = full | ((pl.col("bits") <= bits) & (raw == float((1 << bits) - 1)))
    frame = frame.with_columns(value.alias("value"))
    quality = (
        pl.when(pl.col("value").is_null())
        .then(pl.lit("null"))
        .when(full.fill_null(value=False))
        .then(pl.lit("saturated"))
        .when(pl.col("t_ns").is_null() & (pl.col("kind") == "counter"))
        .then(pl.lit("snapshot"))
        .otherwise(pl.lit("ok"))
    )
    return frame.with_columns(quality.alias("quality")).select(
        "metric", "unit", "kind", "host", "entity", "t_ns", pl.col("value") * pl.col("scale"), "quality"
    )


def _stamp(*, milliseconds: bool) -> pl.Expr:
    """Nanoseconds of the stamp column; plain expositions count milliseconds, OpenMetrics seconds."""
    stamp = pl.col("stamp")
    micro = (
        stamp * 1e3
        if milliseconds
        else pl.when(stamp.abs() >= FIRST_MILLISECOND_STAMP).then(stamp * 1e3).otherwise(stamp * 1e6)
    )
    return (micro.round().cast(pl.Int64) * 1000).alias("t_ns")


def _compare_types(declared: dict[str, str], sink: Samples) -> None:
    """Names whose declared type contradicts what they are; our table decides, the file is only reported."""
    for name, kind in declared.items():
        ours = sink.kinds.get(name)
        if ours and {ours, kind} == {"counter", "gauge"}:
            sink.contradictions[name] = f"declared {kind}, read as {ours}"
