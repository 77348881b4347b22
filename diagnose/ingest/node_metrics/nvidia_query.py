"""nvidia-smi -q: indented text, where the path of indents is the key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nvidia_fields import REASON_BITS, SECTION_FIELDS, Field
from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.values import to_flag, to_number

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_KEY = re.compile(r"^(\s+)(\S.*?)\s*(?::\s(.*)|:)?$")
_REASON_SECTIONS = ("clocks event reasons", "clocks throttle reasons", "hw slowdown")
_COUNTER_SECTIONS = ("clocks event reasons counters", "clocks throttle reasons counters")


class NvidiaQuery(TextFormat):
    """nvidia-smi -q, whole or one section (-d); pasted text may have cuts.

    Grain: (gpu, metric), one time for the file. Counters are life totals: since reset, since driver load, ever.
    Source: nvidia-smi --help
    """

    name = "nvidia-smi-q"
    priority = 321
    markers = (pattern(r"^GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s*$"), pattern(r"^\s+\S.* : "))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Each GPU block to samples."""
        t_ns: int | None = None
        pci: str | None = None
        block: list[tuple[str, str]] = []
        path: list[tuple[int, str]] = []
        index = 0
        for line in text.splitlines():
            if line.startswith("Timestamp"):
                t_ns = sink.clock.parse(line.split(":", 1)[1])
            elif match := _GPU.match(line):
                if pci is not None:
                    add_gpu(pci, index, block, t_ns, sink)
                    index += 1
                pci, block, path = match.group(1), [], []
            elif pci is not None and (match := _KEY.match(line)):
                depth, key, value = len(match.group(1)), match.group(2).lower(), match.group(3)
                while path and path[-1][0] >= depth:
                    path.pop()
                if value is not None:
                    block.append((f"{path[-1][1]}/{key}" if path else key, value.strip()))
                path.append((depth, key))
        if pci is not None:
            add_gpu(pci, index, block, t_ns, sink)


def add_gpu(pci: str, index: int, block: list[tuple[str, str]], t_ns: int | None, sink: Samples) -> None:
    """One GPU's keys to samples; the first of several spellings of a metric wins."""
    keys = dict(reversed(block))
    entity = identity.gpu_entity(uuid=keys.get("gpu uuid"), pci=pci)
    sink.device(entity, index=index, uuid=keys.get("gpu uuid"), pci=pci, name=keys.get("product name"))
    values: dict[str, float | None] = {}
    mask, masked = 0.0, False
    for key, value in block:
        section, _, last = key.rpartition("/")
        if section in _REASON_SECTIONS and last in REASON_BITS:
            masked = True
            mask += REASON_BITS[last] if value.lower() == "active" else 0
            continue
        field = field_of(section, last)
        if field is not None:
            merge(values, field.metric, to_flag(value) if field.flag else to_number(value, field.scale))
    for metric, number in values.items():
        sink.add(metric, entity, number, t_ns=t_ns)
    if masked:
        sink.add("gpu.throttle_mask", entity, mask, t_ns=t_ns)


def merge(values: dict[str, float | None], metric: str, number: float | None) -> None:
    """Keep the first known spelling of a metric; parity and SEC-DED errors of the SRAM are two halves of one count."""
    before = values.get(metric)
    if before is None:
        values[metric] = number
    elif number is not None and metric.startswith("gpu.ecc.sram_uncorrected"):
        values[metric] = before + number


def field_of(section: str, key: str) -> Field | None:
    """The field of a key in its section: GPU and module power readings count as power readings, module ones do not."""
    if section in _COUNTER_SECTIONS:
        section = "event reasons counters"
    elif section == "gpu power readings":
        section = "power readings"
    return SECTION_FIELDS.get(f"{section}/{key}")
