"""Wide CSV: a time column and one column per node, GPU or legend text (AcmeTrace, Philly, Grafana panels)."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.reader import MetricFormat, read_text
from diagnose.ingest.node_metrics.times import epoch_ns
from diagnose.ingest.node_metrics.values import UNIT_SCALE, is_null, split_unit
from diagnose.ingest.node_metrics.wide_names import title_metric

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

_TIME_TITLES = ("time", "timestamp", "datetime")
_MACHINE_TITLES = ("machineid", "machine", "node", "host", "hostname")
_STAMP = re.compile(r"^\"?(?:\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}|\d{10}(?:\d{3})?(?:\.\d+)?)")
_ZONE_WORDS = {
    "PST": "-08:00",
    "PDT": "-07:00",
    "UTC": "UTC",
    "GMT": "GMT",
    "CST": "",
    "EST": "-05:00",
    "EDT": "-04:00",
}


class Column(NamedTuple):
    """One value column: metric, factor, entity and host."""

    metric: str
    scale: float
    entity: str
    host: str | None


class WideCsv(MetricFormat):
    """A CSV whose first column is a time and whose other titles name nodes, GPUs or series.

    Grain: (row, column). The metric comes from the titles, else from the file's name; without either it stays raw.
    Zone names of a cell are taken from a short table, offsets as they stand, epochs as seconds or milliseconds.
    Source: AcmeTrace README; Philly trace README; Grafana panel inspector
    """

    name = "wide-csv"
    priority = 390

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - part of the protocol
        """A time title first, a time in the first cell of the first row, numbers or null words in the others."""
        lines = head.decode("utf-8-sig", "replace").lstrip().splitlines()
        if lines and lines[0].startswith("sep="):
            lines = lines[1:]
        if len(lines) < 2:
            return False
        rows = list(csv.reader(lines[:2], delimiter=_delimiter(lines[0])))
        titles, cells = rows[0], rows[1]
        if len(titles) < 2 or titles[0].strip().lower() not in _TIME_TITLES or not _STAMP.match(cells[0].strip()):
            return False
        values = [
            cell
            for title, cell in zip(titles[1:], cells[1:], strict=False)
            if title.strip().lower() not in _MACHINE_TITLES
        ]
        return bool(values) and all(is_null(cell) or split_unit(cell)[0] is not None for cell in values)

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Rows to samples."""
        text = read_text(source, sink).lstrip()
        if text.startswith("sep="):
            text = text.split("\n", 1)[1]
        delimiter = _delimiter(text.split("\n", 1)[0])
        reader = csv.reader(io.StringIO(text), delimiter=delimiter)
        titles = [title.strip() for title in next(reader)]
        machine = next((n for n, title in enumerate(titles) if title.lower() in _MACHINE_TITLES), None)
        columns = [column_of(title, source.name.name) for title in titles]
        for row in reader:
            t_ns = read_time(row[0], sink) if row else None
            if t_ns is None:
                sink.broken += bool(row)
                continue
            host = identity.host_name(row[machine]) if machine is not None and machine < len(row) else None
            for number, (column, cell) in enumerate(zip(columns, row, strict=False)):
                if number not in (0, machine) and titles[number]:
                    sink.add(column.metric, column.entity, _value(cell, column), t_ns=t_ns, host=host or column.host)
            yield from sink.flush()


def read_time(cell: str, sink: Samples) -> int | None:
    """A cell's time: an epoch, a stamp with offset or zone name, or a local time."""
    text = cell.strip().strip('"')
    if re.fullmatch(r"\d{9,10}(?:\.\d+)?", text):
        return epoch_ns(text)
    if re.fullmatch(r"\d{12,13}", text):
        return int(text) * 1_000_000
    match = re.match(r"^(.*\d)\s+([A-Z]{3,4})$", text)
    if match and match.group(2) in _ZONE_WORDS:
        return sink.clock.parse(f"{match.group(1)} {_ZONE_WORDS[match.group(2)]}".strip())
    return sink.clock.parse(text)


def column_of(title: str, file_name: str) -> Column:
    """What a column title means: a metric and entity of its own, or an entity under the file's metric."""
    metric, scale, entity, host = title_metric(title, file_name)
    return Column(metric, scale, entity, host)


def _value(cell: str, column: Column) -> float | None:
    number, unit = split_unit(cell)
    if number is None:
        return None
    return number * (UNIT_SCALE.get(unit.lower(), column.scale) if unit else column.scale)


def _delimiter(line: str) -> str:
    return ";" if line.count(";") > line.count(",") else ","
