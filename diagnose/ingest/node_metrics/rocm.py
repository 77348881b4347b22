"""rocm-smi and amd-smi: JSON, CSV and tables, whose keys move between versions and whose values are strings."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.node_metrics.amd_fields import amd_key, card_entity, flatten
from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.values import is_null, is_uint_max, split_unit, to_number

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from diagnose.ingest.node_metrics.samples import Samples

_TABLE_ROW = re.compile(r"^(\d+)\s+(?:\d+\s+0x[0-9a-fA-F]+,?\s+\d+\s+|\[[^\]]*\]\s+)?(.*)$")
_TABLE_CELLS = (
    ("gpu.temp", re.compile(r"([\d.]+|N/A)\s*°?[cC]\b"), 1.0),
    ("gpu.power", re.compile(r"\b([\d.]+|N/A)W\b"), 1.0),
)


class AmdJson(TextFormat):
    """rocm-smi --json, amd-smi metric/static --json.

    Grain: (card, metric). A card is ``gpu:card<n>`` (rocm-smi) or ``gpu:index:<n>`` (amd-smi).
    Source: rocm-smi --help; amdsmi documentation, metric --json
    """

    name = "amd-json"
    priority = 340
    markers = (pattern(r"^\s*[\[{]"), pattern(r'"card\d+"\s*:\s*\{|"gpu"\s*:\s*"?\d+"?\s*,'))

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """Cards of rocm-smi, or amd-smi's list of GPUs with usage, power or clock blocks."""
        if not super().sniff(head, name):
            return False
        return (
            b'"card' in head
            or re.search(rb'"(?:usage|power|clock|temperature|throttle|mem_usage|ecc|pcie)"\s*:', head) is not None
        )

    def parse_text(self, text: str, sink: Samples) -> None:
        """Every card's keys to samples."""
        try:
            content: Any = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"JSON: {error}") from error
        if isinstance(content, dict) and "gpu_data" in content:
            content = content["gpu_data"]
        if isinstance(content, dict):
            cards = [
                (key, value) for key, value in content.items() if key.startswith("card") and isinstance(value, dict)
            ]
        else:
            cards = [(str(row.get("gpu", number)), row) for number, row in enumerate(content) if isinstance(row, dict)]
        for key, value in cards:
            add_card(key, flatten(value), sink)


class AmdCsv(TextFormat):
    """rocm-smi --csv and amd-smi metric --csv: a header of keys, one row per card.

    Source: rocm-smi --help
    """

    name = "amd-csv"
    priority = 341
    markers = (pattern(r"^\W*(?:device|gpu)\s*,"),)

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """A first line of AMD keys."""
        line = head.lstrip(b"\xef\xbb\xbf\r\n ").split(b"\n", 1)[0].decode("utf-8", "replace")
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        return super().sniff(line.encode(), name) and any(amd_key(cell) for cell in cells[1:])

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples; blank lines and repeated headers are passed over."""
        rows = [row for row in csv.reader(io.StringIO(text)) if row and any(row)]
        header = [cell.strip() for cell in rows[0]]
        for row in rows[1:]:
            if [cell.strip() for cell in row] != header and row[0].strip().lower() != "system":
                add_card(row[0].strip(), list(zip(header[1:], row[1:], strict=False)), sink)


class RocmTable(TextFormat):
    """rocm-smi's concise table; the model name may wrap to a second line.

    Source: rocm-smi without options
    """

    name = "rocm-smi-table"
    priority = 342
    markers = (pattern(r"ROCm System Management Interface"), pattern(r"Concise Info|^(?:Device|GPU)\s"))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows that begin with a card number to samples."""
        for line in text.splitlines():
            match = _TABLE_ROW.match(line)
            if match is None or ("W" not in line and "%" not in line):
                continue
            entity = f"gpu:index:{match.group(1)}"
            sink.device(entity, index=int(match.group(1)))
            add_table_row(entity, match.group(2), sink)


def add_card(key: str, items: list[tuple[str, Any]], sink: Samples) -> None:
    """One card's keys to samples; the best spelling of a metric comes first in the key table and wins."""
    entity, index = card_entity(key)
    best: dict[str, tuple[int, float | None]] = {}
    pci = name = None
    for label, value in items:
        if label.lower() in ("pci bus", "bdf"):
            pci = str(value)
        elif label.lower() in ("card series", "card model", "market_name", "device name"):
            name = name or str(value)
        found = amd_key(label)
        if found is None:
            continue
        number = amd_number(value, found.scale)
        if found.metric not in best or found.rank < best[found.metric][0]:
            best[found.metric] = (found.rank, number)
    for metric, (_, number) in best.items():
        sink.add(metric, entity, number)
    sink.device(entity, index=index, pci=pci, name=name)


def amd_number(value: Any, scale: float) -> float | None:  # noqa: ANN401 - JSON
    """A value with its unit: ``"36.0"``, ``"(300Mhz)"``, ``0 (16.0GT/s x16)``, or amd-smi's {value, unit}."""
    if isinstance(value, dict):
        value = f"{value.get('value', 'N/A')} {value.get('unit', '')}"
    text = str(value).strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    if is_null(text):
        return None
    if match := re.search(r"\(([\d.]+\s*[A-Za-z/]+)[^)]*\)", text):
        text = match.group(1)
    raw, _ = split_unit(text)
    if raw is None or is_uint_max(raw):
        return None
    return to_number(text, scale)


def add_table_row(entity: str, text: str, sink: Samples) -> None:
    """The cells of a concise row, found by their units: old and new tables order them differently."""
    for metric, cell, scale in _TABLE_CELLS:
        if match := cell.search(text):
            sink.add(metric, entity, to_number(match.group(1), scale))
    clocks = re.findall(r"\b(\d+|N/A)M[hH]z\b", text)
    for metric, value in zip(("gpu.sm_clock", "gpu.mem_clock"), clocks, strict=False):
        sink.add(metric, entity, to_number(value, 1e6))
    watts = re.findall(r"\b([\d.]+)W\b", text)
    if len(watts) > 1:
        sink.add("gpu.power_limit", entity, float(watts[-1]))
    shares = re.findall(r"(\d+)%", text)
    if len(shares) >= 2:
        sink.add("gpu.mem_used_ratio", entity, to_number(shares[-2], 0.01))
        sink.add("gpu.util", entity, to_number(shares[-1], 0.01))
