"""nvidia-smi --query-gpu --format=csv: one row per GPU per poll, units in the header, in the cells, or in neither."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nvidia_fields import QUERY_FIELDS, Field
from diagnose.ingest.node_metrics.reader import MetricFormat, pattern, read_text
from diagnose.ingest.node_metrics.values import UNIT_SCALE, to_flag, to_number

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

_HEADER_UNIT = re.compile(r"\s*\[([^\]]*)\]\s*$")
_OLD_REASONS = "clocks_throttle_reasons"


class Column(NamedTuple):
    """One column of the header: plain field name, what it is to us, and the factor of the header's unit."""

    name: str
    field: Field | None
    scale: float


class NvidiaCsv(MetricFormat):
    """nvidia-smi query CSV.

    Grain: (host, gpu, t_ns, metric). Times are local without a zone.
    Source: nvidia-smi --help-query-gpu
    """

    name = "nvidia-smi-csv"
    priority = 320
    markers = (
        pattern(
            r"^\W*[a-z_.]+[^\n]*(?:utilization\.gpu|pci\.bus_id|clocks\.|power\.draw|memory\.used|temperature\.gpu)"
        ),
    )

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """A header line of query fields separated by commas."""
        line = head.lstrip(b"\xef\xbb\xbf \r\n").split(b"\n", 1)[0]
        if line.count(b",") < 1 or b"{" in line or b"=" in line:
            return False
        fields = {plain_name(part) for part in line.decode("utf-8", "replace").split(",")}
        return len(fields & set(QUERY_FIELDS)) >= 1 and super().sniff(line, name)

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Rows to samples; a repeated header (joined files) starts over."""
        columns: list[Column] = []
        for row in csv.reader(io.StringIO(read_text(source, sink)), skipinitialspace=True):
            if not row or row == [""]:
                continue
            if any(plain_name(cell) in QUERY_FIELDS for cell in row):
                columns = [header_column(cell) for cell in row]
            elif columns:
                add_row(columns, row, sink)
                yield from sink.flush()


def plain_name(cell: str) -> str:
    """``clocks.current.sm [MHz]`` as ``clocks.current.sm``, the reason names of old drivers as those of new ones."""
    return _HEADER_UNIT.sub("", cell.strip().strip('"')).strip().lower()


def header_column(cell: str) -> Column:
    """The column a header cell names."""
    name = plain_name(cell)
    field = QUERY_FIELDS.get(name.replace(_OLD_REASONS, "clocks_event_reasons"))
    unit = _HEADER_UNIT.search(cell)
    scale = field.scale if field else 1.0
    if unit:
        scale = UNIT_SCALE.get(unit.group(1).strip().lower(), scale)
    return Column(name, field, scale)


def add_row(columns: list[Column], row: list[str], sink: Samples) -> None:
    """One row to samples and the GPU's identities; a row cut short keeps the cells it has."""
    cells = {column.name: cell.strip() for column, cell in zip(columns, row, strict=False)}
    t_ns = sink.clock.parse(cells["timestamp"]) if "timestamp" in cells else None
    uuid = cells.get("uuid") or cells.get("gpu_uuid")
    pci = cells.get("pci.bus_id") or cells.get("gpu_bus_id")
    index = cells.get("index")
    entity = identity.gpu_entity(uuid=uuid, pci=pci, index=index)
    host = identity.host_name(cells["hostname"]) if "hostname" in cells else None
    number = int(index) if index and index.isdigit() else None
    sink.device(entity, index=number, uuid=uuid, pci=pci, name=cells.get("name") or cells.get("gpu_name"), host=host)
    seen: set[str] = set()
    for column, cell in zip(columns, row, strict=False):
        if column.field is None or column.field.metric in seen:
            continue
        seen.add(column.field.metric)
        value = to_flag(cell) if column.field.flag else to_number(cell, column.scale)
        sink.add(column.field.metric, entity, value, t_ns=t_ns, host=host)
