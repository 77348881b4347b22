"""nvidia-smi dmon and dcgmi dmon: fixed columns under a repeating header, no time unless asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.dcgm_fields import DCGM_SHORT
from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.values import is_blank_number, is_null, to_number

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

DMON_COLUMNS: dict[str, tuple[str, float]] = {
    "pwr": ("gpu.power", 1.0),
    "gtemp": ("gpu.temp", 1.0),
    "temp": ("gpu.temp", 1.0),
    "mtemp": ("gpu.mem_temp", 1.0),
    "sm": ("gpu.util", 0.01),
    "mem": ("gpu.mem_util", 0.01),
    "mclk": ("gpu.mem_clock", 1e6),
    "pclk": ("gpu.sm_clock", 1e6),
    "rxpci": ("gpu.pcie_rx_rate", 1e6),
    "txpci": ("gpu.pcie_tx_rate", 1e6),
    "fb": ("gpu.mem_used", 1048576.0),
    "sbecc": ("gpu.ecc.corrected_aggregate_total", 1.0),
    "dbecc": ("gpu.ecc.uncorrected_aggregate_total", 1.0),
    "pci": ("gpu.pcie_replay_total", 1.0),
}
"""Columns of nvidia-smi dmon. ``sm`` is the share of time kernels ran, nvidia-smi's utilisation."""

_DCGM_ROW = re.compile(r"^\s*(GPU|GPU-I|GPU-CI)\s+(\S+)\s+(.*)$")


class NvidiaDmon(TextFormat):
    """nvidia-smi dmon.

    Grain: (gpu index, poll, metric). Time only with -o DT.
    Source: nvidia-smi dmon -h
    """

    name = "nvidia-smi-dmon"
    priority = 322
    markers = (pattern(r"^#\s*(?:Date\s+Time\s+)?(?:Time\s+)?gpu\s+\w+"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples; the header may change within the file."""
        names: list[str] = []
        for line in text.splitlines():
            words = line.lstrip("#").split()
            if line.startswith("#"):
                if any(word.lower() == "gpu" for word in words):
                    names = [word.lower() for word in words]
                continue
            if not names or len(words) != len(names):
                continue
            cells = dict(zip(names, words, strict=True))
            index = cells.get("gpu", "")
            if not index.isdigit():
                continue
            t_ns = sink.clock.parse(_stamp(cells)) if "time" in cells and "date" in cells else None
            entity = identity.gpu_entity(index=index)
            for name, cell in cells.items():
                if name in DMON_COLUMNS:
                    metric, scale = DMON_COLUMNS[name]
                    sink.add(metric, entity, to_number(cell, scale), t_ns=t_ns)


class DcgmiDmon(TextFormat):
    """dcgmi dmon -e FIELDS: ``#Entity`` header of short names, one row per entity and poll.

    Source: dcgmi dmon --list
    """

    name = "dcgmi-dmon"
    priority = 323
    markers = (pattern(r"^#\s*Entity\s+\w+"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples, by the short names of the header."""
        names: list[str] = []
        for line in text.splitlines():
            if line.lstrip().startswith("#"):
                names = [word.upper() for word in line.lstrip().lstrip("#").split()[1:]]
                continue
            match = _DCGM_ROW.match(line)
            if match is None or not names:
                continue
            kind, place, rest = match.groups()
            entity = f"gpu:index:{place}" if kind == "GPU" else f"gpu:{kind.lower()}:{place}"
            for name, cell in zip(names, _cells(rest, len(names)), strict=False):
                if name not in DCGM_SHORT:
                    continue
                metric, scale = DCGM_SHORT[name]
                raw = None if is_null(cell) else to_number(cell)
                sink.add(metric, entity, None if raw is None or is_blank_number(raw) else raw * scale)


def _stamp(cells: dict[str, str]) -> str:
    date = cells["date"]
    day = f"{date[:4]}-{date[4:6]}-{date[6:]}" if date.isdigit() and len(date) == 8 else date
    return f"{day} {cells['time']}"


def _cells(text: str, count: int) -> list[str]:
    words = text.split()
    return words if len(words) <= count else re.split(r"\s{2,}", text.strip())
