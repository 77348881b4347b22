"""sysstat's sadf: -d (semicolons) and -j (JSON)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

CPU = {
    "%usr": "node.cpu_user",
    "%user": "node.cpu_user",
    "%nice": "node.cpu_nice",
    "%sys": "node.cpu_system",
    "%system": "node.cpu_system",
    "%iowait": "node.cpu_iowait",
    "%steal": "node.cpu_steal",
    "%irq": "node.cpu_irq",
    "%soft": "node.cpu_softirq",
    "%guest": "node.cpu_guest",
    "%gnice": "node.cpu_gnice",
    "%idle": "node.cpu_idle",
}
OTHER: dict[str, tuple[str, float]] = {
    "ldavg-1": ("node.load1", 1.0),
    "ldavg-5": ("node.load5", 1.0),
    "ldavg-15": ("node.load15", 1.0),
    "blocked": ("node.procs_blocked", 1.0),
    "kbavail": ("node.mem_available", 1024.0),
    "kbmemfree": ("node.mem_free", 1024.0),
    "kbmemused": ("node.mem_used", 1024.0),
    "%memused": ("node.mem_used_ratio", 0.01),
    "kbswpused": ("node.swap_used", 1024.0),
    "kbswpfree": ("node.swap_free", 1024.0),
    "rxkb/s": ("nic.rx_rate", 1024.0),
    "txkb/s": ("nic.tx_rate", 1024.0),
    "rkb/s": ("disk.read_rate", 1024.0),
    "wkb/s": ("disk.write_rate", 1024.0),
    "rd_sec/s": ("disk.read_rate", 512.0),
    "wr_sec/s": ("disk.write_rate", 512.0),
    "await": ("disk.await", 1e-3),
    "%util": ("disk.util", 0.01),
}
"""Columns besides the CPU's. Source: sar(1); kB are 1024 bytes, sectors 512."""

_JSON_CPU = {name.lstrip("%"): metric for name, metric in CPU.items()}


class SadfCsv(TextFormat):
    """sadf -d: a header line per activity beginning with ``# hostname;interval;timestamp``.

    Grain: (host, t_ns, CPU or device, column). UTC unless -t or -T was given; CPU -1 is all.
    Source: sadf(1)
    """

    name = "sadf-d"
    priority = 350
    markers = (pattern(r"^# hostname;interval;timestamp;"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples; a restart row marks a reboot and carries no values."""
        names: list[str] = []
        for line in text.splitlines():
            cells = line.split(";")
            if line.startswith("# hostname"):
                names = [cell.lstrip("# ").strip() for cell in cells]
            elif names and len(cells) >= 4 and "RESTART" not in line and not cells[3].startswith("COMMENT"):
                _add_row(dict(zip(names, cells, strict=False)), sink)


class SadfJson(TextFormat):
    """sadf -j: hosts with statistics, each with a split time stamp and nested activities.

    Source: sadf(1)
    """

    name = "sadf-j"
    priority = 351
    markers = (pattern(r'"sysstat"\s*:'), pattern(r'"hosts"\s*:'))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Every statistics entry to samples."""
        try:
            content: Any = msgspec.json.decode(_closed(text))
        except msgspec.DecodeError as error:
            raise ValueError(f"JSON: {error}") from error
        for node in content["sysstat"]["hosts"]:
            host = node.get("nodename")
            sink.set_host(host, "nodename")
            for entry in node.get("statistics", ()):
                stamp = entry.get("timestamp", {})
                _add_entry(entry, _json_time(stamp, sink), sink)
            if node.get("number-of-cpus"):
                sink.add("node.cpu_count", "node", float(node["number-of-cpus"]))


def _add_row(cells: dict[str, str], sink: Samples) -> None:
    sink.set_host(cells.get("hostname"), "hostname column")
    stamp = cells.get("timestamp", "")
    t_ns = int(stamp) * 1_000_000_000 if stamp.isdigit() else sink.clock.parse(_zoned(stamp))
    cpu = cells.get("CPU")
    entity = "node" if cpu in (None, "-1", "all") else f"node/cpu:{cpu}"
    device = cells.get("IFACE") or cells.get("DEV")
    if device:
        entity = f"nic:{device}" if "IFACE" in cells else f"disk:{device}"
    for name, cell in cells.items():
        if name in CPU and cpu is not None:
            sink.add(CPU[name], entity, _percent(cell), t_ns=t_ns)
        elif name.lower() in OTHER:
            metric, scale = OTHER[name.lower()]
            value = _decimal(cell)
            sink.add(metric, entity, None if value is None else value * scale, t_ns=t_ns)


def _add_entry(entry: dict[str, Any], t_ns: int | None, sink: Samples) -> None:
    for row in (*entry.get("cpu-load", ()), *entry.get("cpu-load-all", ())):
        cpu = str(row.get("cpu", "all"))
        entity = "node" if cpu in ("all", "-1") else f"node/cpu:{cpu}"
        for name, value in row.items():
            if name in _JSON_CPU:
                sink.add(_JSON_CPU[name], entity, float(value) / 100, t_ns=t_ns)
    _add_known(entry.get("queue", {}), "node", t_ns, sink)
    memory = entry.get("memory", {})
    renamed = {
        "kbavail": memory.get("avail"),
        "kbmemfree": memory.get("memfree"),
        "kbmemused": memory.get("memused"),
        "kbswpused": memory.get("swpused"),
        "kbswpfree": memory.get("swpfree"),
    }
    _add_known({name: value for name, value in renamed.items() if value is not None}, "node", t_ns, sink)
    for row in entry.get("network", {}).get("net-dev", ()):
        known = {"rxkb/s": row.get("rxkB"), "txkb/s": row.get("txkB")}
        _add_known({k: v for k, v in known.items() if v is not None}, f"nic:{row.get('iface', '?')}", t_ns, sink)
    for row in entry.get("disk", ()):
        known = {
            "rkb/s": row.get("rkB"),
            "wkb/s": row.get("wkB"),
            "await": row.get("await"),
            "%util": row.get("util-percent", row.get("util")),
        }
        name = row.get("disk-device", "?")
        _add_known({k: v for k, v in known.items() if v is not None}, f"disk:{name}", t_ns, sink)


def _add_known(row: dict[str, Any], entity: str, t_ns: int | None, sink: Samples) -> None:
    for name, value in row.items():
        if name in OTHER and isinstance(value, int | float):
            metric, scale = OTHER[name]
            sink.add(metric, entity, value * scale, t_ns=t_ns)


def _json_time(stamp: dict[str, Any], sink: Samples) -> int | None:
    """Date and time of an entry. A zone abbreviation other than UTC names no offset: it counts as unzoned."""
    text = f"{stamp.get('date', '')} {stamp.get('time', '')}"
    utc = stamp.get("utc") in (1, "1", True) or str(stamp.get("tz", "")).upper() in ("UTC", "GMT")
    return sink.clock.parse(f"{text} UTC" if utc else text)


def _zoned(text: str) -> str:
    """The stamp without an abbreviation that names no offset (CET), with UTC kept."""
    match = re.match(r"^(.*\d)\s+([A-Z]{2,5})$", text)
    return match.group(1) if match and match.group(2) not in ("UTC", "GMT") else text


def _percent(text: str) -> float | None:
    value = _decimal(text)
    return None if value is None else value / 100


def _decimal(text: str) -> float | None:
    """A number whose decimal point a locale may have made a comma."""
    try:
        return float(text.strip().replace(",", "."))
    except ValueError:
        return None


def _closed(text: str) -> str:
    """The text, with the brackets a truncated pipe left open."""
    stripped = text.rstrip()
    if stripped.endswith("}") and stripped.count("{") == stripped.count("}"):
        return stripped
    cut = stripped[: stripped.rfind("}") + 1]
    opened: list[str] = []
    for mark in re.sub(r'"(?:[^"\\]|\\.)*"', "", cut):
        if mark in "[{":
            opened.append("]" if mark == "[" else "}")
        elif mark in "]}" and opened:
            opened.pop()
    return cut + "".join(reversed(opened))
