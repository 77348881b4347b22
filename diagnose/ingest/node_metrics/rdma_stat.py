"""rdma statistic show and EFA hw_counters listings, one or several snapshots in one text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import port_counter
from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_LINK = re.compile(r"^\s*link\s+([\w.-]+)/(\d+)\s*(.*)$")
_SNAPSHOT = re.compile(
    r"^[#=\s]*(?:snapshot|before|after|date)?\s*:?\s*(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}\S*(?: UTC)?)\s*[#=]*$",
    re.IGNORECASE,
)
_ROW = re.compile(
    r"^\s*((?:efa|rdmap|mlx\d?|rocep|bnxt|irdma|ionic)[\w.-]*?)(?:/(\d+))?[\s:]+([a-z][a-z0-9_]+)[\s:=]+(\d+)\s*$"
)
_PAIR = re.compile(r"([a-z][a-z0-9_]+)\s+(\d+)")


class RdmaStatistic(TextFormat):
    """``rdma [-p] statistic show``, and ``<device> <counter> <value>`` lists under snapshot times.

    Grain: (snapshot, device, port, counter). EFA's counters survive a reboot of the host.
    Source: rdma-statistic(8)
    """

    name = "rdma-statistic"
    priority = 339
    markers = (
        pattern(
            r"^\s*link\s+[\w.-]+/\d+|^\s*(?:efa|rdmap|mlx\d?|rocep)[\w.-]*(?:/\d+)?[\s:]+[a-z][a-z0-9_]+[\s:=]+\d+\s*$"
        ),
    )

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples; a line that is only a time starts a snapshot."""
        if text.lstrip().startswith("["):
            _parse_json(text, sink)
            return
        t_ns: int | None = None
        entity: str | None = None
        for line in text.splitlines():
            if match := _SNAPSHOT.match(line):
                t_ns = sink.clock.parse(match.group(1))
            elif match := _LINK.match(line):
                entity = identity.nic_entity(match.group(1), match.group(2))
                _pairs(match.group(3), entity, t_ns, sink)
            elif match := _ROW.match(line):
                device, port, name, value = match.groups()
                _add(name, value, identity.nic_entity(device, port), t_ns, sink)
            elif entity:
                _pairs(line, entity, t_ns, sink)


def _pairs(text: str, entity: str, t_ns: int | None, sink: Samples) -> None:
    for name, value in _PAIR.findall(text):
        _add(name, value, entity, t_ns, sink)


def _add(name: str, value: str, entity: str, t_ns: int | None, sink: Samples) -> None:
    counter = port_counter(name)
    if counter is not None:
        sink.add(counter.metric, entity, int(value) * counter.scale, t_ns=t_ns)


def _parse_json(text: str, sink: Samples) -> None:
    """``rdma -j statistic show``: a list of objects with ifname, port and counters."""
    try:
        rows = msgspec.json.decode(text, type=list[dict[str, object]])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    for row in rows:
        port = row.get("port")
        entity = identity.nic_entity(str(row.get("ifname", "?")), str(port) if port is not None else None)
        for name, value in row.items():
            if isinstance(value, int) and name not in ("port", "ifindex"):
                _add(name, str(value), entity, None, sink)
