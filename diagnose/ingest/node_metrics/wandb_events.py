"""Weights & Biases system metrics: wandb-events.jsonl, one object of dotted keys per poll."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.node_metrics.reader import MetricFormat, pattern, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

GPU: dict[str, tuple[str, float]] = {
    "gpu": ("gpu.util", 0.01),
    "memory": ("gpu.mem_util", 0.01),
    "memoryAllocated": ("gpu.mem_used_ratio", 0.01),
    "memoryAllocatedBytes": ("gpu.mem_used", 1.0),
    "temp": ("gpu.temp", 1.0),
    "powerWatts": ("gpu.power", 1.0),
    "enforcedPowerLimitWatts": ("gpu.power_limit", 1.0),
    "smClock": ("gpu.sm_clock", 1e6),
    "memoryClock": ("gpu.mem_clock", 1e6),
    "pcieLinkGen": ("gpu.pcie_gen", 1.0),
    "pcieLinkWidth": ("gpu.pcie_width", 1.0),
    "pcieLinkSpeed": ("gpu.pcie_link_speed", 1.0),
    "maxPcieLinkGen": ("gpu.pcie_gen_max", 1.0),
    "maxPcieLinkWidth": ("gpu.pcie_width_max", 1.0),
    "correctedMemoryErrors": ("gpu.ecc.corrected_volatile_total", 1.0),
    "uncorrectedMemoryErrors": ("gpu.ecc.uncorrected_volatile_total", 1.0),
    "smActive": ("gpu.sm_active", 0.01),
    "smOccupancy": ("gpu.sm_occupancy", 0.01),
    "pipeTensorActive": ("gpu.tensor_active", 0.01),
    "dramActive": ("gpu.dram_active", 0.01),
}
NODE: dict[str, tuple[str, str, float]] = {
    "cpu": ("node.cpu_util", "node", 0.01),
    "memory": ("node.mem_used_ratio", "node", 0.01),
    "memory_percent": ("node.mem_used_ratio", "node", 0.01),
    "proc.memory.availableMB": ("node.mem_available", "node", 1048576.0),
    "network.sent": ("nic.tx_bytes_total", "nic:first", 1.0),
    "network.recv": ("nic.rx_bytes_total", "nic:first", 1.0),
    "disk.in": ("disk.read_bytes_total", "disk:/", 1048576.0),
    "disk.out": ("disk.write_bytes_total", "disk:/", 1048576.0),
}
"""Network bytes count from the run's start, on the first interface only; disks in MB since the start."""

_KEY = re.compile(r"^(?:system\.)?(.*?)(?:/l:(.*))?$")
_GPU_KEY = re.compile(r"^gpu\.(\d+)\.(\w+)$")
_DISK_KEY = re.compile(r"^disk\.(.+)\.(in|out)$")


class WandbEvents(MetricFormat):
    """wandb-events.jsonl.

    Grain: (t_ns, key). ``gpu.<i>`` is the index on the node, never the rank; only nodes with a W&B process are here.
    Source: W&B system metrics reference
    """

    name = "wandb-events"
    priority = 354
    markers = (pattern(r"^\s*\{"), pattern(r'"system\.|"_wandb"\s*:\s*true'), pattern(r'"_timestamp"\s*:'))

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Lines to samples; ``/l:<label>`` of a key names the process that wrote it."""
        for line in read_text(source, sink).splitlines():
            if not line.strip():
                continue
            try:
                row: Any = msgspec.json.decode(line)
            except msgspec.DecodeError:
                sink.broken += 1
                continue
            if isinstance(row, dict) and isinstance(row.get("_timestamp"), int | float):
                t_ns = round(row["_timestamp"] * 1e6) * 1000
                for key, value in _flat(row):
                    add_key(key, value, t_ns, sink)
            yield from sink.flush()


def add_key(key: str, value: object, t_ns: int, sink: Samples) -> None:
    """One key to a sample; keys that start with an underscore are W&B's own."""
    match = _KEY.match(key)
    if match is None or key.startswith("_"):
        return
    name, label = match.groups()
    host = label or None
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if found := _GPU_KEY.match(name):
        known = GPU.get(found.group(2))
        if known:
            entity = f"gpu:index:{found.group(1)}"
            sink.device(entity, index=int(found.group(1)), host=host)
            sink.add(known[0], entity, None if number is None else number * known[1], t_ns=t_ns, host=host)
    elif name in NODE:
        metric, entity, scale = NODE[name]
        sink.add(metric, entity, None if number is None else number * scale, t_ns=t_ns, host=host)
    elif found := _DISK_KEY.match(name):
        metric = "disk.read_bytes_total" if found.group(2) == "in" else "disk.write_bytes_total"
        sink.add(metric, f"disk:{found.group(1)}", None if number is None else number * 1048576.0, t_ns=t_ns, host=host)


def _flat(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            yield from _flat(value, path)
        else:
            yield path, value
