"""/sys of a node: ``grep ""`` dumps, JSON maps of path to content, and trees whose files are offered one by one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import link_up, phys_number, port_counter, rate_bits, state_number
from diagnose.ingest.node_metrics.reader import MetricFormat, TextFormat, pattern, read_text
from diagnose.ingest.node_metrics.values import is_null, to_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

_PORT = re.compile(r"infiniband/([^/]+)/ports/(\d+)/(?:(counters|hw_counters|counters_ext)/)?([A-Za-z0-9_]+)$")
_DEVICE = re.compile(r"infiniband/([^/]+)/(node_desc|board_id|hca_type|fw_ver)$")
_DEVICE_COUNTER = re.compile(r"infiniband/([^/]+)/hw_counters/([A-Za-z0-9_]+)$")
_NETDEV = re.compile(r"net/([^/]+)/(?:statistics/)?([A-Za-z0-9_]+)$")
_PCI = re.compile(r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])/(?:infiniband|net|infiniband_verbs)/")
_LINE = re.compile(r"^((?:[^\s:]*/)?(?:infiniband|net)/[^\s:]+(?::[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7][^\s:]*)*):(.*)$")
_HOST_DESC = re.compile(r"^(\S+)\s+(?:HCA-\d+|mlx\d_\S+)")

NET_STATISTICS = {
    "rx_bytes": "nic.rx_bytes_total",
    "tx_bytes": "nic.tx_bytes_total",
    "rx_packets": "nic.rx_packets_total",
    "tx_packets": "nic.tx_packets_total",
    "rx_errors": "nic.rx_errors_total",
    "tx_errors": "nic.tx_errors_total",
    "rx_dropped": "nic.rx_drops_total",
    "tx_dropped": "nic.tx_drops_total",
    "rx_crc_errors": "nic.crc_errors_total",
    "rx_missed_errors": "nic.rx_missed_total",
    "carrier_down_count": "nic.carrier_down_total",
    "carrier_changes": "nic.carrier_changes_total",
}


class Entry(NamedTuple):
    """One file of the tree: path and content without the final newline."""

    path: str
    text: str


def add_entries(entries: Iterable[Entry], sink: Samples) -> None:
    """Port files, counters and network interfaces to samples; a port is up when state and physical state agree."""
    states: dict[str, dict[str, float | None]] = {}
    netdevs: dict[str, str] = {}
    devices: dict[str, str] = {}
    for entry in entries:
        place = _PCI.search(entry.path)
        if match := _PORT.search(entry.path):
            device, port, family, name = match.groups()
            if place:
                devices[place.group(1)] = device
            _add_port(device, port, family, name, entry.text, states, sink)
        elif match := _DEVICE_COUNTER.search(entry.path):
            _add_counter(identity.nic_entity(match.group(1)), match.group(2), entry.text, sink)
        elif match := _NETDEV.search(entry.path):
            if place:
                netdevs[place.group(1)] = match.group(1)
            _add_netdev(match.group(1), match.group(2), entry.text, sink)
        elif (match := _DEVICE.search(entry.path)) and match.group(2) == "node_desc":
            described = _HOST_DESC.match(entry.text.strip())
            if described and sink.host is None:
                sink.set_host(described.group(1), "node_desc")
    for entity, known in states.items():
        up = link_up(known.get("state"), known.get("phys_state"))
        if "state" in known or "phys_state" in known:
            sink.add("nic.link_up", entity, up)
    for place_id, device in devices.items():
        sink.device(f"nic:{device}", pci=place_id, name=device, netdev=netdevs.get(place_id))


def _add_port(
    device: str,
    port: str,
    family: str | None,
    name: str,
    text: str,
    states: dict[str, dict[str, float | None]],
    sink: Samples,
) -> None:
    entity = identity.nic_entity(device, port)
    if family is not None:
        _add_counter(entity, name, text, sink)
    elif name == "rate":
        sink.add("nic.rate", entity, None if is_null(text) else rate_bits(text))
    elif name in ("state", "phys_state"):
        value = state_number(text) if name == "state" else phys_number(text)
        states.setdefault(entity, {})[name] = value
        sink.add("nic.port_state" if name == "state" else "nic.port_phys_state", entity, value)


def _add_counter(entity: str, name: str, text: str, sink: Samples) -> None:
    counter = port_counter(name)
    if counter is not None:
        value = to_number(text)
        sink.add(counter.metric, entity, None if value is None else value * counter.scale)


def _add_netdev(device: str, name: str, text: str, sink: Samples) -> None:
    entity = identity.nic_entity(device)
    if name == "speed":
        value = to_number(text)
        sink.add("nic.netdev_speed", entity, None if value is None or value < 0 else value * 1e6)
    elif name == "operstate":
        sink.add("nic.link_up", entity, {"up": 1.0, "down": 0.0}.get(text.strip().lower()))
    elif name in NET_STATISTICS:
        sink.add(NET_STATISTICS[name], entity, to_number(text))


class SysfsDump(TextFormat):
    """``grep "" /sys/class/infiniband/*/ports/*/...``: one ``path:content`` a line.

    Grain: (device, port, file). Data counters are words of four octets; narrow counters stop at all-ones.
    Source: kernel Documentation/ABI/stable/sysfs-class-infiniband
    """

    name = "sysfs-dump"
    priority = 330
    markers = (pattern(r"^\S*(?:infiniband/[^/\s]+/ports/\d+/\S+|net/[^/\s]+/statistics/\S+):\s*\S"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Lines to entries."""
        matches = (_LINE.match(line) for line in text.splitlines())
        add_entries((Entry(m.group(1), m.group(2)) for m in matches if m), sink)


class SysfsJson(TextFormat):
    """A JSON object of path to content, as health checks save it."""

    name = "sysfs-json"
    priority = 331
    markers = (pattern(r"^\s*\{"), pattern(r'"[^"\n]*/(?:infiniband/[^/"]+/ports/\d+|net/[^/"]+)/[^"\n]*"\s*:\s*"'))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Members to entries."""
        try:
            content = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        add_entries((Entry(path, str(value).strip()) for path, value in content.items()), sink)


class SysfsFile(MetricFormat):
    """One file of a copied /sys tree, known by its path and by holding one short line.

    A folder or archive of such files is read file by file; the analysis joins them by device and port.
    """

    name = "sysfs-file"
    priority = 332

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """A path below infiniband/<device>/ports or net/<device>, and at most one line."""
        path = str(name)
        if not (_PORT.search(path) or _DEVICE_COUNTER.search(path) or _is_net_path(path)):
            return False
        return len(head) < 4096 and head.strip().count(b"\n") == 0

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """The one value."""
        add_entries([Entry(str(source.name), read_text(source, sink).strip())], sink)
        yield from ()


def _is_net_path(path: str) -> bool:
    match = _NETDEV.search(path)
    return match is not None and (
        match.group(2) in NET_STATISTICS or (match.group(2) in ("speed", "operstate") and "/net/" in f"/{path}")
    )
