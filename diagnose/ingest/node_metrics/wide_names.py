"""What titles of wide tables mean: words of metrics, and hosts, GPUs or devices inside a legend."""

from __future__ import annotations

import re

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.vocabulary import METRICS

WORDS: tuple[tuple[re.Pattern[str], str, float], ...] = tuple(
    (re.compile(text, re.IGNORECASE), metric, scale)
    for text, metric, scale in (
        (r"nvlink_?gbps", "gpu.nvlink_rate", 1e9),
        (r"gpu[-_ ]?\d*_?(?:util|utilization|utilisation)", "gpu.util", 0.01),
        (r"gpu.*(?:temp)", "gpu.temp", 1.0),
        (r"gpu.*(?:power|watts)", "gpu.power", 1.0),
        (r"sm[-_ ]?active", "gpu.sm_active", 0.01),
        (r"(?:fb|gpu.*mem).*used", "gpu.mem_used", 1048576.0),
        (r"cpu.*iowait|iowait", "node.cpu_iowait", 0.01),
        (r"cpu.*(?:util|usage|busy)|(?:node|host)_cpu", "node.cpu_util", 0.01),
        (r"mem.*(?:util|usage).*|mem_util", "node.mem_used_ratio", 0.01),
        (r"ib.*(?:recv|receive|rx)|infiniband.*(?:recv|receive|rx)", "nic.rx_rate", 1.0),
        (r"ib.*(?:send|transmit|tx)|infiniband.*(?:send|transmit|tx)", "nic.tx_rate", 1.0),
        (r"(?:network|net|nic).*(?:recv|receive|rx|inbound)", "nic.rx_rate", 1.0),
        (r"(?:network|net|nic).*(?:send|sent|transmit|tx|outbound)", "nic.tx_rate", 1.0),
        (r"power", "gpu.power", 1.0),
        (r"temperature|temp\b", "gpu.temp", 1.0),
    )
)
"""Words of column titles and file names, most particular first. Wide exports print percent, watts, bytes/s."""

_ADDRESS = re.compile(r"\b(\d{1,3}(?:\.\d{1,3}){3})\b")
_GPU = re.compile(r"(?:gpu|card|device)[-_ :=\"]*(\d+)", re.IGNORECASE)
_GPU_UUID = re.compile(r"GPU-[0-9a-fA-F-]{36}")
_HOST = re.compile(
    r"(?:instance|Hostname|hostname|node|host)=\"?([\w.:-]+)|\b((?:node|host|worker|dgx|nid|server)[-_]?[\w-]*\d+)\b",
    re.IGNORECASE,
)
_NIC = re.compile(r"\b((?:mlx\d_|ib|eth|ens|enp|bond)[\w]*\d[\w]*)\b")
_BARE = re.compile(r"^\d+$")


def title_metric(title: str, file_name: str) -> tuple[str, float, str, str | None]:
    """Metric, factor, entity and host of a column: the title's own words first, the file's name second."""
    found = _find(title) or _find(file_name.rsplit(".", 1)[0].replace("-", "_"))
    metric, scale = found if found else (f"csv:{_slug(file_name)}", 1.0)
    host = _host(title)
    return metric, scale, _entity(metric, title), host


def _find(text: str) -> tuple[str, float] | None:
    if text in METRICS:
        return text, 1.0
    for word, metric, scale in WORDS:
        if word.search(text):
            return metric, scale
    return None


def _host(title: str) -> str | None:
    if match := _ADDRESS.search(title):
        return match.group(1)
    match = _HOST.search(title)
    return identity.host_name(match.group(1) or match.group(2)) if match else None


def _entity(metric: str, title: str) -> str:
    if metric.startswith("gpu."):
        if match := _GPU_UUID.search(title):
            return identity.gpu_entity(uuid=match.group(0))
        match = _GPU.search(title)
        if match or _BARE.match(title):
            return f"gpu:index:{match.group(1) if match else title}"
        return "gpu"
    if metric.startswith("nic."):
        match = _NIC.search(title)
        return f"nic:{match.group(1)}" if match else "nic:total"
    if metric.startswith("csv:") and _host(title) is None:
        return f"series:{title}"
    return "node"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name.split(".", 1)[0]).strip("_").lower()
