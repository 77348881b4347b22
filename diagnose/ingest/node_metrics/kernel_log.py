"""The kernel log (dmesg, syslog, journal): Xid, SXid, PCIe errors and limits, links going down, mlx5, OOM killer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.reader import MetricFormat, pattern, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

_BRACKET_TIME = re.compile(
    r"^(?:<\d+>)?(?:kern\s*:\w+\s*:\s*)?\[([A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d+ \d{2}:\d{2}:\d{2} \d{4})\]\s*(.*)$"
)
_BOOT_TIME = re.compile(r"^(?:<\d+>)?\[\s*(\d+\.\d+)\]\s*(.*)$")
_ISO_TIME = re.compile(r"^(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?)\s+(.*)$")
_SYSLOG_TIME = re.compile(r"^([A-Z][a-z]{2}\s+\d{1,2} \d{2}:\d{2}:\d{2})(?:\.\d+)?\s+(\S+)\s+(.*)$")
_KERNEL_PREFIX = re.compile(r"^(?:(\S+)\s+)?kernel:\s*(?:\[\s*\d+\.\d+\]\s*)?(.*)$")

_PCI = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rf"NVRM: Xid \(PCI:{_PCI}(?:\s+GPU-I:(\d+))?[^)]*\): (\d+)\b,?\s*(.*)$")
_SXID = re.compile(rf"nvidia-nvswitch(\d*): SXid \(PCI:{_PCI}\): (\d+),?\s*(.*)$")
_GPU_AT = re.compile(rf"NVRM: GPU at PCI:{_PCI}: (GPU-[0-9a-fA-F-]{{36}})")
_LIMITED = re.compile(
    rf"{_PCI}: ([\d.]+) Gb/s available PCIe bandwidth, limited by ([\d.]+ GT/s) PCIe x(\d+) link at {_PCI}"
    r"(?: \(capable of ([\d.]+) Gb/s with ([\d.]+ GT/s) PCIe x(\d+) link\))?"
)
_LINK = re.compile(
    r"(?:mlx5_core \S+ )?(?:netdev\s+)?\b((?:eth|en|ib|bond|rdma|roce|mlx|efa)[\w.-]*)(?:@\S+)?: "
    r"(?:(NIC Link is Down|link down|Link down|[Ll]ost carrier)|"
    r"(NIC Link is Up|link up|Link up|Gained carrier|link becomes ready))"
)
_CARRIER = re.compile(r"\b((?:eth|en|ib|bond|mlx)[\w.-]*): (Lost carrier|Gained carrier)")
_MLX5_HOT = re.compile(r"mlx5_core (\S+?):.*(?:temperature|thermal).*", re.IGNORECASE)
_MLX5_ERROR = re.compile(
    r"mlx5_core (\S+?):.*(?:health compromised|device's health|fatal error|assert_|Error cqe|timeout\. Will cause|"
    r"recover|"
    r"syndrome|PCIe slot power|module .* unplugged|cable error|Port module event\[error\])",
    re.IGNORECASE,
)
_OOM = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (\d+) \(([^)]*)\)|invoked oom-killer"
)
_HOT = re.compile(r"(?:CPU\d+|Package \d+)?:?.*(?:temperature above threshold|clock throttled)", re.IGNORECASE)


class Line(NamedTuple):
    """One line of a log: its time, host where syslog names one, and the message."""

    t_ns: int | None
    host: str | None
    text: str


class KernelLog(MetricFormat):
    """Kernel messages that bear on speed; everything else is passed over.

    Grain: one event. ``dmesg`` counts seconds since boot and gives no time, syslog has no year (the newest possible is
    taken when the user names none, and said), the driver limits its own rate: counts are lower bounds.
    Source: NVIDIA Xid catalog; kernel PCI and mlx5 drivers
    """

    name = "kernel-log"
    priority = 360
    markers = (
        pattern(
            r"NVRM: |nvidia-nvswitch\d*: SXid|AER: |PCIe Bus Error|available PCIe bandwidth, limited by|mlx5_core |"
            r"[Oo]ut of memory: Kill|invoked oom-killer|: (?:Lost|Gained) carrier|NIC Link is (?:Up|Down)"
        ),
    )

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Lines to events."""
        for number, raw in enumerate(read_text(source, sink).splitlines(), start=1):
            line = split_line(raw, sink)
            if line.host:
                sink.set_host(line.host, "syslog")
            _add(line, number, sink)
            yield from sink.flush()


def split_line(raw: str, sink: Samples) -> Line:
    """Time, host and message of a line of any of the four styles."""
    if match := _BRACKET_TIME.match(raw):
        return Line(sink.clock.parse(match.group(1)), None, match.group(2))
    if match := _BOOT_TIME.match(raw):
        return Line(None, None, match.group(2))
    if match := _ISO_TIME.match(raw):
        host, text = _kernel(match.group(2))
        return Line(sink.clock.parse(match.group(1)), host, text)
    if match := _SYSLOG_TIME.match(raw):
        _, text = _kernel(match.group(3))
        return Line(_without_year(match.group(1), sink), match.group(2), text)
    host, text = _kernel(raw)
    return Line(None, host, text)


def _kernel(text: str) -> tuple[str | None, str]:
    match = _KERNEL_PREFIX.match(text)
    return (match.group(1), match.group(2)) if match else (None, text)


def _without_year(text: str, sink: Samples) -> int | None:
    """A syslog time in the year of the file's own path time, else of the newest year that is not in the future."""
    known = sink.path_t_ns
    now = datetime.fromtimestamp(known / 1e9, UTC) if known else datetime.now(UTC)
    t_ns = sink.clock.parse(f"{now.year}-{_month(text)}")
    if t_ns is not None and t_ns > (now.timestamp() + 86_400) * 1e9:
        t_ns = sink.clock.parse(f"{now.year - 1}-{_month(text)}")
    return t_ns


def _month(text: str) -> str:
    month, day, clock = text.split()
    names = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    number = names.index(month) + 1 if month in names else 1
    return f"{number:02d}-{int(day):02d} {clock}"


def _add(line: Line, number: int, sink: Samples) -> None:
    text, t_ns = line.text, line.t_ns
    if match := _XID.search(text):
        entity = f"gpu:pci:{identity.pci_id(match.group(1))}"
        if match.group(2):
            entity += f"/gi:{match.group(2)}"
        sink.event("xid", entity, text, t_ns=t_ns, code=int(match.group(3)), line=number)
    elif match := _SXID.search(text):
        entity = f"nvswitch:pci:{identity.pci_id(match.group(2))}"
        fatal = False if "non-fatal" in match.group(4).lower() else ("fatal" in match.group(4).lower() or None)
        sink.event("sxid", entity, text, t_ns=t_ns, code=int(match.group(3)), fatal=fatal, line=number)
    elif match := _GPU_AT.search(text):
        sink.device(f"gpu:pci:{identity.pci_id(match.group(1))}", uuid=match.group(2), pci=match.group(1))
    elif match := _LIMITED.search(text):
        _add_limit(match, text, t_ns, number, sink)
    elif "AER: " in text or "PCIe Bus Error" in text:
        _add_aer(text, t_ns, number, sink)
    elif _OOM.search(text):
        sink.event("oom", "node", text, t_ns=t_ns, line=number)
    else:
        _add_network(text, t_ns, number, sink)


def _add_limit(match: re.Match[str], text: str, t_ns: int | None, number: int, sink: Samples) -> None:
    entity = f"pci:{identity.pci_id(match.group(1))}"
    sink.event("pcie_limited", entity, text, t_ns=t_ns, line=number)
    sink.add("pcie.available_rate", entity, float(match.group(2)) * 1e9, t_ns=t_ns)
    if match.group(6):
        sink.add("pcie.capable_rate", entity, float(match.group(6)) * 1e9, t_ns=t_ns)


def _add_aer(text: str, t_ns: int | None, number: int, sink: Samples) -> None:
    found = re.search(_PCI, text)
    entity = f"pci:{identity.pci_id(found.group(1))}" if found else "node"
    lowered = text.lower()
    severity = "corrected" in lowered or "non-fatal" in lowered or "nonfatal" in lowered
    fatal = False if severity else ("fatal" in lowered or None)
    sink.event("pcie_aer", entity, text, t_ns=t_ns, fatal=fatal, line=number)


def _add_network(text: str, t_ns: int | None, number: int, sink: Samples) -> None:
    if match := _CARRIER.search(text):
        kind = "link_down" if match.group(2) == "Lost carrier" else "link_up"
        sink.event(kind, f"nic:{match.group(1)}", text, t_ns=t_ns, line=number)
    elif match := _LINK.search(text):
        sink.event("link_down" if match.group(2) else "link_up", f"nic:{match.group(1)}", text, t_ns=t_ns, line=number)
    elif match := _MLX5_HOT.search(text):
        sink.event("mlx5_thermal", _mlx5(match.group(1)), text, t_ns=t_ns, line=number)
    elif match := _MLX5_ERROR.search(text):
        sink.event("mlx5_error", _mlx5(match.group(1)), text, t_ns=t_ns, line=number)
    elif "above threshold" in text and _HOT.search(text):
        sink.event("throttled", "node", text, t_ns=t_ns, line=number)


def _mlx5(place: str) -> str:
    known = identity.pci_id(place)
    return f"nic:pci:{known}" if known else f"nic:{place}"
