"""perfquery, ibqueryerrors and ibdiagnet's pm blocks: port counters by tool names, in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import PORT_COUNTERS, Counter
from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

TOOL_NAMES: dict[str, Counter] = {
    "portxmitdata": PORT_COUNTERS["port_xmit_data"],
    "portrcvdata": PORT_COUNTERS["port_rcv_data"],
    "portxmitpkts": PORT_COUNTERS["port_xmit_packets"],
    "portrcvpkts": PORT_COUNTERS["port_rcv_packets"],
    "xmtdata": PORT_COUNTERS["port_xmit_data"],
    "rcvdata": PORT_COUNTERS["port_rcv_data"],
    "xmtpkts": PORT_COUNTERS["port_xmit_packets"],
    "rcvpkts": PORT_COUNTERS["port_rcv_packets"],
    "symbolerrorcounter": PORT_COUNTERS["symbol_error"],
    "symbolerrors": PORT_COUNTERS["symbol_error"],
    "linkerrorrecoverycounter": PORT_COUNTERS["link_error_recovery"],
    "linkrecovers": PORT_COUNTERS["link_error_recovery"],
    "linkdownedcounter": PORT_COUNTERS["link_downed"],
    "linkdowned": PORT_COUNTERS["link_downed"],
    "portrcverrors": PORT_COUNTERS["port_rcv_errors"],
    "rcverrors": PORT_COUNTERS["port_rcv_errors"],
    "portrcvremotephysicalerrors": PORT_COUNTERS["port_rcv_remote_physical_errors"],
    "rcvremotephyserrors": PORT_COUNTERS["port_rcv_remote_physical_errors"],
    "portrcvswitchrelayerrors": PORT_COUNTERS["port_rcv_switch_relay_errors"],
    "rcvswrelayerrors": PORT_COUNTERS["port_rcv_switch_relay_errors"],
    "portxmitdiscards": PORT_COUNTERS["port_xmit_discards"],
    "xmtdiscards": PORT_COUNTERS["port_xmit_discards"],
    "portxmitconstrainterrors": PORT_COUNTERS["port_xmit_constraint_errors"],
    "xmtconstrainterrors": PORT_COUNTERS["port_xmit_constraint_errors"],
    "portrcvconstrainterrors": PORT_COUNTERS["port_rcv_constraint_errors"],
    "rcvconstrainterrors": PORT_COUNTERS["port_rcv_constraint_errors"],
    "locallinkintegrityerrors": PORT_COUNTERS["local_link_integrity_errors"],
    "linkintegrityerrors": PORT_COUNTERS["local_link_integrity_errors"],
    "excessivebufferoverrunerrors": PORT_COUNTERS["excessive_buffer_overrun_errors"],
    "excbufoverrunerrors": PORT_COUNTERS["excessive_buffer_overrun_errors"],
    "vl15dropped": PORT_COUNTERS["vl15_dropped"],
    "portxmitwait": PORT_COUNTERS["port_xmit_wait"],
    "xmtwait": PORT_COUNTERS["port_xmit_wait"],
}
"""Names of infiniband-diags without case, its short forms included."""

_HEAD = re.compile(r"^#?\s*Port (?:extended )?counters:?.*?Lid (\d+)(?:\s*\([^)]*\))? port (\d+)", re.IGNORECASE)
_DOTTED = re.compile(r"^([A-Za-z0-9]+):\.+\s*(0x[0-9a-fA-F]+|\d+)\s*$")
_QUERY_PORT = re.compile(r"^\s*GUID (0x[0-9a-fA-F]+) port (\w+):(.*)$")
_QUERY_ITEM = re.compile(r"\[(\w+) == (\d+)")
_PM_HEAD = re.compile(r"Port=(\d+)\s+Lid=(0x[0-9a-fA-F]+)\s+GUID=(0x[0-9a-fA-F]+).*?Port Name=(\S+)")
_PM_VALUE = re.compile(r"^([a-z0-9_]+)=(0x[0-9a-fA-F]+|\d+)\s*$")


class Perfquery(TextFormat):
    """perfquery and perfquery -x: one dot-filled block per port.

    Grain: (lid, port). Data in words of four octets.
    Source: infiniband-diags perfquery(8)
    """

    name = "perfquery"
    priority = 333
    markers = (pattern(r"^#?\s*Port (?:extended )?counters"), pattern(r"^\w+:\.{2,}"))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Blocks to samples."""
        entity: str | None = None
        for line in text.splitlines():
            if match := _HEAD.match(line):
                entity = identity.nic_entity(f"lid{match.group(1)}", match.group(2))
            elif entity and (match := _DOTTED.match(line)) and (counter := TOOL_NAMES.get(match.group(1).lower())):
                sink.add(counter.metric, entity, int(match.group(2), 0) * counter.scale)


class IbQueryErrors(TextFormat):
    """ibqueryerrors: ``GUID <g> port <n>: [Name == value (human)] ...``; port ALL is the sum of a switch.

    Source: infiniband-diags ibqueryerrors(8)
    """

    name = "ibqueryerrors"
    priority = 334
    markers = (pattern(r"^\s*GUID 0x[0-9a-fA-F]+ port \w+:.*\[\w+ == \d+"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Port lines to samples; the sum over a switch keeps its own entity and is no NIC."""
        for line in text.splitlines():
            match = _QUERY_PORT.match(line)
            if match is None:
                continue
            guid, port, rest = match.groups()
            entity = f"switch:{guid.lower()}/all" if port.upper() == "ALL" else identity.nic_entity(guid.lower(), port)
            for name, value in _QUERY_ITEM.findall(rest):
                if counter := TOOL_NAMES.get(name.lower()):
                    sink.add(counter.metric, entity, int(value) * counter.scale)


class IbdiagnetPm(TextFormat):
    """ibdiagnet's performance blocks (ibdiagnet2.pm): ``Port=.. Lid=.. GUID=..`` and ``name=hex`` lines."""

    name = "ibdiagnet-pm"
    priority = 335
    markers = (pattern(r"^Port=\d+\s+Lid=0x[0-9a-fA-F]+\s+GUID=0x"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Blocks to samples; the extended counters are 64 bit and never saturate at the classic width."""
        entity: str | None = None
        host: str | None = None
        for line in text.splitlines():
            if match := _PM_HEAD.search(line):
                port, _, guid, name = match.groups()
                is_switch = re.match(r"^S[0-9a-fA-F]{16}/", name) is not None
                entity = f"switch:{guid.lower()}/{port}" if is_switch else identity.nic_entity(guid.lower(), port)
                host = None if is_switch else identity.host_name(name.split("/", 1)[0])
            elif entity and (match := _PM_VALUE.match(line.strip())):
                counter = _pm_counter(match.group(1))
                if counter:
                    sink.add(
                        counter.metric,
                        entity,
                        int(match.group(2), 0) * counter.scale,
                        host=host,
                        saturated=False if "extended" in match.group(1) else None,
                    )


def _pm_counter(name: str) -> Counter | None:
    plain = name.removesuffix("_extended").replace("_counter", "").replace("pkts", "packets")
    return PORT_COUNTERS.get(plain)
