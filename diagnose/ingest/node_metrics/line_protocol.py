"""InfluxDB line protocol as telegraf writes it: measurement, tags, typed fields, nanoseconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import ethtool_counter, port_counter, with_part
from diagnose.ingest.node_metrics.nvidia_fields import QUERY_FIELDS
from diagnose.ingest.node_metrics.reader import MetricFormat, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

_LINE = re.compile(rb"^[A-Za-z_][\w.-]*(?:\\ [\w.-]*)*(?:,[^\s=,]+=(?:\\.|[^\s,\\])+)* [^\s=]+=[^\n]*? (\d{10,19})\s*$")
_SPLIT = re.compile(r"(?<!\\),")
_EQUALS = re.compile(r"(?<!\\)=")
_FIELD = re.compile(r'((?:\\.|[^,=\\])+)=("(?:\\.|[^"\\])*"|[^,]*)(?:,|$)')

FIELDS: dict[str, dict[str, tuple[str, float]]] = {
    "cpu": {
        "usage_user": ("node.cpu_user", 0.01),
        "usage_system": ("node.cpu_system", 0.01),
        "usage_iowait": ("node.cpu_iowait", 0.01),
        "usage_steal": ("node.cpu_steal", 0.01),
        "usage_softirq": ("node.cpu_softirq", 0.01),
        "usage_irq": ("node.cpu_irq", 0.01),
        "usage_nice": ("node.cpu_nice", 0.01),
        "usage_guest": ("node.cpu_guest", 0.01),
        "usage_idle": ("node.cpu_idle", 0.01),
    },
    "system": {
        "load1": ("node.load1", 1.0),
        "load5": ("node.load5", 1.0),
        "load15": ("node.load15", 1.0),
        "n_cpus": ("node.cpu_count", 1.0),
    },
    "mem": {
        "available": ("node.mem_available", 1.0),
        "total": ("node.mem_total", 1.0),
        "used": ("node.mem_used", 1.0),
        "free": ("node.mem_free", 1.0),
    },
    "swap": {"used": ("node.swap_used", 1.0), "total": ("node.swap_total", 1.0)},
    "net": {
        "bytes_recv": ("nic.rx_bytes_total", 1.0),
        "bytes_sent": ("nic.tx_bytes_total", 1.0),
        "packets_recv": ("nic.rx_packets_total", 1.0),
        "packets_sent": ("nic.tx_packets_total", 1.0),
        "err_in": ("nic.rx_errors_total", 1.0),
        "err_out": ("nic.tx_errors_total", 1.0),
        "drop_in": ("nic.rx_drops_total", 1.0),
        "drop_out": ("nic.tx_drops_total", 1.0),
        "speed": ("nic.netdev_speed", 1e6),
    },
    "netstat": {"tcp_retranssegs": ("node.tcp_retrans_total", 1.0)},
    "diskio": {
        "read_bytes": ("disk.read_bytes_total", 1.0),
        "write_bytes": ("disk.write_bytes_total", 1.0),
        "reads": ("disk.reads_total", 1.0),
        "writes": ("disk.writes_total", 1.0),
        "io_time": ("disk.io_time_seconds_total", 1e-3),
        "read_time": ("disk.read_time_seconds_total", 1e-3),
        "write_time": ("disk.write_time_seconds_total", 1e-3),
    },
    "nvidia_smi": {
        name.replace(".", "_"): (field.metric, field.scale) for name, field in QUERY_FIELDS.items() if not field.flag
    }
    | {"power_draw": ("gpu.power", 1.0)},
    "amd_rocm_smi": {
        "power_draw": ("gpu.power", 1.0),
        "clocks_current_sm": ("gpu.sm_clock", 1e6),
        "clocks_current_memory": ("gpu.mem_clock", 1e6),
        "temperature_sensor_junction": ("gpu.temp", 1.0),
        "temperature_sensor_memory": ("gpu.mem_temp", 1.0),
        "utilization_gpu": ("gpu.util", 0.01),
        "memory_used": ("gpu.mem_used", 1.0),
        "memory_total": ("gpu.mem_total", 1.0),
    },
    "slurm_nodes": {"cpu_load": ("node.load1", 0.01), "cpus": ("node.cpu_count", 1.0)},
    "processes": {"blocked": ("node.procs_blocked", 1.0)},
    "kernel_vmstat": {"pgmajfault": ("node.major_faults_total", 1.0), "oom_kill": ("node.oom_kills_total", 1.0)},
}
"""Telegraf plugins: field to metric and factor. ``infiniband`` gives raw words, slurm's cpu_load is times 100."""


class LineProtocol(MetricFormat):
    """InfluxDB line protocol.

    Grain: (measurement, tags, field, t_ns).
    Source: InfluxData line protocol reference; telegraf plugin READMEs
    """

    name = "influx-line"
    priority = 312

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - part of the protocol
        """The first lines that are no comment all follow the protocol."""
        lines = [line for line in head.splitlines()[:20] if line.strip() and not line.startswith(b"#")]
        if len(head) >= 65536 and len(lines) > 1:
            lines = lines[:-1]
        return bool(lines) and all(_LINE.match(line) for line in lines[:5])

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Lines to samples."""
        for line in read_text(source, sink).splitlines():
            if line and not line.startswith("#"):
                add_line(line, sink)
                yield from sink.flush()


def add_line(line: str, sink: Samples) -> None:
    """One line to samples; unknown measurements keep their own names."""
    head, fields, stamp = _sections(line)
    if not fields or not stamp.lstrip("-").isdigit():
        sink.broken += 1
        return
    measurement, *pairs = _SPLIT.split(head)
    tags = {
        _plain(key): _plain(value) for key, value in (_EQUALS.split(pair, maxsplit=1) for pair in pairs if "=" in pair)
    }
    host = identity.host_name(tags["host"]) if tags.get("host") else None
    name = _plain(measurement)
    entity = _entity(name, tags, sink, host)
    t_ns = _nanoseconds(int(stamp))
    for key, text in _FIELD.findall(fields):
        _add_field(name, _plain(key), text, entity, tags, t_ns, host, sink)


def _add_field(
    measurement: str, key: str, text: str, entity: str, tags: dict[str, str], t_ns: int, host: str | None, sink: Samples
) -> None:
    number = _number(text)
    if measurement in ("infiniband", "ethtool"):
        counter = port_counter(key) if measurement == "infiniband" else ethtool_counter(key)
        if counter and number is not None:
            sink.add(counter.metric, with_part(entity, counter), number * counter.scale, t_ns=t_ns, host=host)
        return
    known = FIELDS.get(measurement, {}).get(key)
    if known:
        sink.add(known[0], entity, None if number is None else _scaled(number, known[1]), t_ns=t_ns, host=host)
    elif measurement not in FIELDS and number is not None:
        rest = ",".join(f"{tag}={value}" for tag, value in sorted(tags.items()) if tag != "host")
        sink.add(f"{measurement}.{key}", f"series:{rest}" if rest else "node", number, t_ns=t_ns, host=host)


def _entity(measurement: str, tags: dict[str, str], sink: Samples, host: str | None) -> str:
    if measurement in ("nvidia_smi", "amd_rocm_smi"):
        index = tags.get("index")
        uuid = tags.get("uuid")
        entity = identity.gpu_entity(uuid=uuid, index=index or tags.get("gpu_id"))
        number = int(index) if index and index.isdigit() else None
        sink.device(entity, index=number, uuid=uuid, name=tags.get("name"), host=host)
        return entity
    if measurement == "infiniband":
        return identity.nic_entity(tags.get("device", "?"), tags.get("port"))
    if measurement in ("net", "ethtool"):
        return identity.nic_entity(tags.get("interface", "?"))
    if measurement == "diskio":
        return f"disk:{tags.get('name', '?')}"
    if measurement == "cpu" and tags.get("cpu", "cpu-total") != "cpu-total":
        return f"node/cpu:{tags['cpu'].removeprefix('cpu')}"
    if measurement == "slurm_nodes" and tags.get("name"):
        return f"node:{tags['name']}"
    return "node"


def _sections(line: str) -> tuple[str, str, str]:
    """Head, fields and time stamp: split at spaces outside quotes and escapes."""
    cuts: list[int] = []
    quoted = False
    index = 0
    while index < len(line):
        mark = line[index]
        if mark == "\\":
            index += 2
            continue
        if mark == '"' and cuts:
            quoted = not quoted
        elif mark == " " and not quoted:
            cuts.append(index)
        index += 1
    if len(cuts) < 2:
        return line, "", ""
    return line[: cuts[0]], line[cuts[0] + 1 : cuts[-1]], line[cuts[-1] + 1 :].strip()


def _plain(text: str) -> str:
    return re.sub(r"\\([ ,=\\\"])", r"\1", text).strip()


def _number(text: str) -> float | None:
    cleaned = text.strip()
    if cleaned.startswith('"'):
        return None
    if cleaned.lower() in ("t", "true"):
        return 1.0
    if cleaned.lower() in ("f", "false"):
        return 0.0
    try:
        return float(cleaned.rstrip("iu"))
    except ValueError:
        return None


def _scaled(number: float, scale: float) -> float:
    return number / round(1 / scale) if 0 < scale < 1 else number * scale


def _nanoseconds(stamp: int) -> int:
    """A stamp of any precision: seconds, milliseconds, microseconds and nanoseconds differ by digits."""
    for limit, factor in ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3)):
        if abs(stamp) < limit:
            return stamp * factor
    return stamp
