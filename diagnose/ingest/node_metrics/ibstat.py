"""ibstat, ibstatus and iblinkinfo: state and rate of InfiniBand ports. A port that is down still prints a rate."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import link_up, phys_number, rate_bits, state_number
from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_CA = re.compile(r"^\s*CA '([^']+)'")
_PORT = re.compile(r"^\s*Port (\d+):\s*$")
_KEY = re.compile(r"^\s*(State|Physical state|Rate|Link layer):\s*(.*?)\s*$", re.IGNORECASE)
_STATUS_HEAD = re.compile(r"^\s*Infiniband device '([^']+)' port (\d+) status", re.IGNORECASE)
_STATUS_KEY = re.compile(r"^\s*(state|phys state|rate|link_layer):\s*(.*?)\s*$", re.IGNORECASE)
_LINK_NODE = re.compile(r"^(CA|Switch):\s*(?:0x[0-9a-fA-F]+\s+)?(.+?):\s*$")
_LINK = re.compile(
    r"^\s*(?:0x[0-9a-fA-F]+\s+)?(\d+)\s+(\d+)\[\s*\]\s*==\(\s*(\d+)X\s+([\d.]+)\s*Gbps\s+(\w+)\s*/\s*(\w+)\s*\)==>"
)
_LINK_DOWN = re.compile(
    r"^\s*(?:0x[0-9a-fA-F]+\s+)?(\d+)\s+(\d+)\[\s*\]\s*==\(\s*(?:Down|Initialize|Armed)\s*/\s*(\w+)\s*\)==>"
)


class Port:
    """What one block said of a port."""

    def __init__(self, entity: str) -> None:
        self.entity = entity
        self.state: float | None = None
        self.phys: float | None = None
        self.rate: float | None = None

    def emit(self, sink: Samples) -> None:
        """State, rate and whether the link is up."""
        sink.add("nic.link_up", self.entity, link_up(self.state, self.phys))
        if self.state is not None:
            sink.add("nic.port_state", self.entity, self.state)
        if self.phys is not None:
            sink.add("nic.port_phys_state", self.entity, self.phys)
        sink.add("nic.rate", self.entity, self.rate)


class IbStat(TextFormat):
    """ibstat and ibstatus.

    Grain: (device, port). ibstat's rate has no unit and is Gb/s.
    Source: infiniband-diags ibstat(8)
    """

    name = "ibstat"
    priority = 336
    markers = (
        pattern(r"^\s*CA '[^']+'|^\s*Infiniband device '[^']+' port \d+ status"),
        pattern(r"^\s*(?:Physical state|phys state):"),
    )

    def parse_text(self, text: str, sink: Samples) -> None:
        """Blocks to samples."""
        device, port = "", None
        for line in text.splitlines():
            if match := _STATUS_HEAD.match(line):
                port = _next(port, identity.nic_entity(match.group(1), match.group(2)), sink)
            elif match := _CA.match(line):
                device = match.group(1)
            elif device and (match := _PORT.match(line)):
                port = _next(port, identity.nic_entity(device, match.group(1)), sink)
            elif port and (match := _KEY.match(line) or _STATUS_KEY.match(line)):
                _take(port, match.group(1).lower(), match.group(2))
        if port:
            port.emit(sink)


class IbLinkInfo(TextFormat):
    """iblinkinfo: width times lane rate of every link; ports of switches and of aggregation nodes are no NICs.

    Source: infiniband-diags iblinkinfo(8)
    """

    name = "iblinkinfo"
    priority = 337
    markers = (pattern(r"==\(\s*(?:\d+X\s+[\d.]+ Gbps|Down)"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Links of CAs to samples named by host and HCA, those of switches by their place."""
        kind, node = "", ""
        for line in text.splitlines():
            if match := _LINK_NODE.match(line):
                kind, node = match.group(1), match.group(2)
                continue
            match = _LINK.match(line)
            down = None if match else _LINK_DOWN.match(line)
            found = match or down
            if found is None or not node:
                continue
            host, entity = _subject(kind, node, found.group(2))
            if match:
                sink.add("nic.rate", entity, int(match.group(3)) * float(match.group(4)) * 1e9, host=host)
                up = link_up(state_number(match.group(5)), phys_number(match.group(6)))
                sink.add("nic.link_up", entity, up, host=host)
            else:
                sink.add("nic.link_up", entity, 0.0, host=host)


def _next(port: Port | None, entity: str, sink: Samples) -> Port:
    if port:
        port.emit(sink)
    return Port(entity)


def _take(port: Port, key: str, value: str) -> None:
    if key == "state":
        port.state = state_number(value)
    elif key in ("physical state", "phys state"):
        port.phys = phys_number(value)
    elif key == "rate":
        port.rate = rate_bits(value)


def _subject(kind: str, node: str, port: str) -> tuple[str | None, str]:
    words = node.split()
    if kind == "CA" and len(words) == 2 and "aggregation" not in node.lower():
        return identity.host_name(words[0]), f"nic:{words[0]}/{words[1]}"
    if "aggregation" in node.lower():
        return None, f"agg:{node.replace(' ', '_')}/{port}"
    return None, f"switch:{node.replace(' ', '_')}/{port}"
