"""dstat --output CSV (also pcp-dstat and dool): preamble, group row, name row, data."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.times import epoch_ns
from diagnose.ingest.node_metrics.values import to_number

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

CPU = {
    "usr": "node.cpu_user",
    "sys": "node.cpu_system",
    "idl": "node.cpu_idle",
    "wai": "node.cpu_iowait",
    "hiq": "node.cpu_irq",
    "siq": "node.cpu_softirq",
    "stl": "node.cpu_steal",
}
RATES = {
    ("dsk", "read"): "disk.read_rate",
    ("dsk", "writ"): "disk.write_rate",
    ("net", "recv"): "nic.rx_rate",
    ("net", "send"): "nic.tx_rate",
    ("paging", "in"): "node.paging_in_rate",
    ("paging", "out"): "node.paging_out_rate",
    ("system", "int"): "node.interrupts_rate",
    ("system", "csw"): "node.context_switches_rate",
}
LOADS = {"1m": "node.load1", "5m": "node.load5", "15m": "node.load15"}


class Dstat(TextFormat):
    """dstat CSV.

    Grain: (poll, column). The first row is the mean since boot. Time only with -t (no year) or -T (epoch).
    Source: dstat, DstatPlugin csv output
    """

    name = "dstat-csv"
    priority = 352
    markers = (pattern(r'^"?(?:p?cp-)?(?:Dstat|dool|pcp-dstat) [^"\n]*CSV'),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples."""
        groups: list[str] = []
        names: list[str] = []
        for row in csv.reader(io.StringIO(text)):
            if not row or not any(row):
                continue
            if row[0] in ("Host:",) and len(row) > 1:
                sink.set_host(row[1], "Host row")
            elif names and _is_data(row):
                _add_row(groups, names, row, sink)
            elif any(cell in ("usr", "read", "recv", "time", "epoch") for cell in row) and groups:
                names = row
            elif not row[0].endswith(":") and "CSV output" not in row[0]:
                groups = _filled(row)


def _filled(row: list[str]) -> list[str]:
    """Group names stand only over the first of their columns."""
    filled: list[str] = []
    for cell in row:
        filled.append(cell or (filled[-1] if filled else ""))
    return filled


def _is_data(row: list[str]) -> bool:
    return any(to_number(cell) is not None for cell in row)


def _add_row(groups: list[str], names: list[str], row: list[str], sink: Samples) -> None:
    cells = list(zip(groups, names, row, strict=False))
    t_ns = next((_time(name, cell, sink) for _, name, cell in cells if name in ("epoch", "time")), None)
    for group, name, cell in cells:
        kind, _, part = group.partition("/")
        value = to_number(cell)
        if "cpu usage" in group and name in CPU:
            sink.add(CPU[name], _cpu_entity(group), None if value is None else value / 100, t_ns=t_ns)
        elif group == "load avg" and name in LOADS:
            sink.add(LOADS[name], "node", value, t_ns=t_ns)
        elif (kind, name) in RATES:
            entity = {"dsk": f"disk:{part or 'total'}", "net": f"nic:{part or 'total'}"}.get(kind, "node")
            sink.add(RATES[kind, name], entity, value, t_ns=t_ns)


def _cpu_entity(group: str) -> str:
    word = group.removesuffix(" usage").replace("cpu", "").replace("total", "").strip()
    return f"node/cpu:{word}" if word.isdigit() else "node"


def _time(name: str, cell: str, sink: Samples) -> int | None:
    """Epoch columns are exact; ``dd-mm HH:MM:SS`` has no year and is no time."""
    return epoch_ns(cell) if name == "epoch" else sink.clock.parse(cell)
