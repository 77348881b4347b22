"""dynolog's JSON logger: a glog line, a time that cannot be trusted, an object of strings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import port_counter
from diagnose.ingest.node_metrics.reader import MetricFormat, pattern, read_text
from diagnose.ingest.node_metrics.values import is_null, to_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

_LINE = re.compile(
    r"^(?:[IWE](\d{8}|\d{4}) (\d{2}:\d{2}:\d{2}\.\d+)\s+\d+\s+\S+\]\s+)?time = (\S+) data = (\{.*\})\s*$"
)

GPU: dict[str, tuple[str, float]] = {
    "gpu_power_draw": ("gpu.power", 1.0),
    "gpu_frequency_mhz": ("gpu.sm_clock", 1e6),
    "gpu_device_utilization": ("gpu.util", 0.01),
    "gpu_memory_utilization": ("gpu.mem_util", 0.01),
    "sm_active_ratio": ("gpu.sm_active", 1.0),
    "sm_occupancy": ("gpu.sm_occupancy", 1.0),
    "graphics_engine_active_ratio": ("gpu.gr_active", 1.0),
    "tensorcore_active": ("gpu.tensor_active", 1.0),
    "hbm_mem_bw_util": ("gpu.dram_active", 1.0),
    "fp16_active": ("gpu.fp16_active", 1.0),
    "fp32_active": ("gpu.fp32_active", 1.0),
    "pcie_tx_bytes": ("gpu.pcie_tx_rate", 1.0),
    "pcie_rx_bytes": ("gpu.pcie_rx_rate", 1.0),
    "nvlink_tx_bytes": ("gpu.nvlink_tx_rate", 1.0),
    "nvlink_rx_bytes": ("gpu.nvlink_rx_rate", 1.0),
}
NODE: dict[str, tuple[str, float]] = {
    "cpu_util": ("node.cpu_util", 0.01),
    "cpu_u": ("node.cpu_user", 0.01),
    "cpu_s": ("node.cpu_system", 0.01),
    "cpu_i": ("node.cpu_idle", 0.01),
    "cpu_w": ("node.cpu_iowait", 0.01),
    "load_avg_1": ("node.load1", 1.0),
}
NET: dict[str, str] = {"rx_bytes": "nic.rx_bytes_window", "tx_bytes": "nic.tx_bytes_window"}
"""Network values are what passed since the last record: to be summed, never differenced."""


class Dynolog(MetricFormat):
    """dynolog with --use_JSON: ``... Logger.cpp:NN] time = T data = {...}``.

    Grain: (record, key). The ``Z`` of its time is wrong (it is local) and some rows carry the epoch: the glog prefix,
    local time as well, is used where it has a year.
    Source: dynolog docs/Metrics.md
    """

    name = "dynolog"
    priority = 355
    markers = (pattern(r"time = \S+ data = \{"),)

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Records to samples."""
        for line in read_text(source, sink).splitlines():
            match = _LINE.match(line)
            if match is None:
                continue
            try:
                row: Any = msgspec.json.decode(match.group(4))
            except msgspec.DecodeError:
                sink.broken += 1
                continue
            t_ns = _time(match, sink)
            device = row.get("device")
            for key, value in row.items():
                _add(str(key), str(value), None if device is None else str(device), t_ns, sink)
            yield from sink.flush()


def _time(match: re.Match[str], sink: Samples) -> int | None:
    date, clock, stated = match.group(1), match.group(2), match.group(3)
    if date and len(date) == 8:
        return sink.clock.parse(f"{date} {clock}")
    if stated.startswith(("1969", "1970")):
        return None
    return sink.clock.parse(stated.rstrip("Z"))


def _add(key: str, text: str, device: str | None, t_ns: int | None, sink: Samples) -> None:
    name, _, part = key.partition(".")
    value = None if is_null(text) else to_number(text)
    if name in GPU:
        index = part or device
        metric, scale = GPU[name]
        sink.add(metric, identity.gpu_entity(index=index), None if value is None else value * scale, t_ns=t_ns)
    elif name in NODE:
        metric, scale = NODE[name]
        sink.add(metric, "node", None if value is None else value * scale, t_ns=t_ns)
    elif name in NET:
        sink.add(NET[name], identity.nic_entity(part or "total"), value, t_ns=t_ns)
    elif (counter := port_counter(name)) and value is not None and part:
        _add_window(counter.metric, value * counter.scale, part, t_ns, sink)


def _add_window(metric: str, value: float, device: str, t_ns: int | None, sink: Samples) -> None:
    """Rdmamon gives words per interval: data become windows of bytes, other counters are left out of differencing."""
    windows = {"nic.rx_bytes_total": "nic.rx_bytes_window", "nic.tx_bytes_total": "nic.tx_bytes_window"}
    name, _, port = device.partition("/")
    if metric in windows:
        sink.add(windows[metric], identity.nic_entity(name, port or None), value, t_ns=t_ns)
    else:
        sink.add(metric.replace("_total", "_window"), identity.nic_entity(name, port or None), value, t_ns=t_ns)
