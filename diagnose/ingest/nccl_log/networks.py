"""Messages on networks: plugins, NICs with their rates, interfaces, which network a process uses.

Sources: NCCL src/transport/net_ib*, net_socket.cc, src/plugin/net.cc, src/misc/socket.cc; aws-ofi-nccl; gIB.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.ingest.nccl_log.context import Context

BITS_PER_BYTE = 8
MBIT = 1_000_000

GPU_DIRECT_HCA = re.compile(
    r"(?:NET/(?P<net>[\w ]+?) ?: )?GPU Direct RDMA (?P<state>Enabled|Disabled)"
    r" for HCA (?P<index>\d+) '(?P<name>[\w\-+.]+)'"
)
_IB_LIST = re.compile(r"NET/IB ?: Using (?P<list>.*?); OOB (?P<oob>[^\s:]+):(?P<address>\S+?)(?:<\d+>)?\s*")
_IB_ENTRY = re.compile(r"\[(\d+)\]=?\{?(?:\[\d+\] )?([\w\-+.]+):(\d+)(?::\d*)*/(IB|RoCE)(/SHARP)?")
_IB_MERGED = re.compile(r"\{([^}]*)\}")
_IB_SPEED = re.compile(
    r"NET/IB ?: \[(?P<index>\d+)\] (?P<name>[\w\-]+):[^:\s]*:(?P<port>\d+)/(?P<layer>IB|RoCE) .*?speed=(?P<mbits>\d+)"
)
_IB_VIRTUAL = re.compile(
    r"NET/IB ?: Made virtual device \[(?P<index>\d+)\] name=(?P<name>[\w\-+]+) speed=(?P<mbits>\d+)"
)
_INTERFACES = re.compile(r"\[(\d+)\]([\w.\-@]+):(\S+?)<\d+>")
_ONE_INTERFACE = re.compile(r"(?:Bootstrap ?: Using|NET ?: Using interface) ([\w.\-@]+):(\S+?)<\d+>")
_INTERFACE_SPEED = re.compile(r"Found network interface (?P<name>[\w.\-@]+) with speed (?P<mbits>\d+)")
_OFI = re.compile(
    r"NET/OFI Selected [Pp]rovider is (?P<provider>[\w;\-]+)(?:, fabric is (?P<fabric>[\w\-]+))?"
    r" ?(?:\(found (?P<count>\d+) nics\))?"
)
_OFI_GUID = re.compile(r"NET/OFI GUID of (?P<name>[\w\-]+):")
_NETWORK = re.compile(r"Using (?:internal |external )?[nN]etwork (?P<name>[A-Za-z][\w.\-]*(?: [A-Za-z][\w.\-]*)?)\s*")
_PLUGINS = (
    re.compile(r"NET/Plugin ?: Loaded net plugin (?P<name>.+?)(?: \(v\d+\))?\s*$"),
    re.compile(r"P2P plugin (?:v\d+ )?(?P<name>\w+)"),
    re.compile(r"NET/(?P<name>gIB|FasTrak|FastSocket|OFI) ?:? Initializing"),
)
_LISTS = ("NET/IB : Using", "NET/IB: Using", "NET/Socket : Using", "NET/Socket: Using", "Bootstrap", "NET/OFI GUID")
_NO_DEVICE = "No device found"
MAX_NICS = 512


def network_message(context: Context, message: str) -> bool:
    """Take what a message says about networks; True when it was recognised. Lists are read once for a host."""
    if message.startswith(_LISTS):
        if message in context.process.told:
            return True
        context.process.told.add(message)
    for handler in (_network, _ib_list, _ib_speed, _sockets, _gdr, _ofi, _plugin):
        if handler(context, message):
            return True
    return message.startswith(("NET/Plugin", "NET/Socket", "Using ", "Plugin Path"))


def _network(context: Context, message: str) -> bool:
    match = _NETWORK.fullmatch(message)
    if match is None:
        return False
    context.process.network = match["name"]
    return True


def _nic(context: Context, kind: str, index: int | None, name: str, **values: object) -> None:
    key = (
        kind,
        index,
        name if "bytes_per_s" not in values and "gdr_capable" not in values else f"{name}*{sorted(values)}",
    )
    if key in context.process.nets:
        return
    context.process.nets.add(key)
    context.row("comm_net", kind=kind, device_index=index, name=name, **values)


def _ib_list(context: Context, message: str) -> bool:
    match = _IB_LIST.match(message)
    if match is None:
        if _NO_DEVICE in message and message.startswith("NET/IB"):
            context.topology("nic", "NET/IB", _NO_DEVICE)
            return True
        return False
    text = match["list"]
    for merged in _IB_MERGED.findall(text):
        text = text.replace("{" + merged + "}", merged.split(",")[0].strip())
    for index, name, port, layer, sharp in _IB_ENTRY.findall(match["list"] if "{" not in match["list"] else text):
        _nic(context, "ib", int(index), name, port=int(port), link_layer=layer, sharp=bool(sharp))
    _nic(context, "oob", None, match["oob"], address=match["address"])
    return True


def _ib_speed(context: Context, message: str) -> bool:
    match = _IB_SPEED.match(message) or _IB_VIRTUAL.match(message)
    if match is None:
        return False
    rate = int(match["mbits"]) * MBIT / BITS_PER_BYTE
    layer = match.groupdict().get("layer")
    _nic(context, "ib", int(match["index"]), match["name"], link_layer=layer, bytes_per_s=rate)
    return True


def _sockets(context: Context, message: str) -> bool:
    if match := _INTERFACE_SPEED.search(message):
        rate = int(match["mbits"]) * MBIT / BITS_PER_BYTE
        _nic(context, "socket", None, match["name"], bytes_per_s=rate)
        return True
    if message.startswith(("NET/Socket : Using [", "NET/Socket: Using [")):
        kind = "socket"
    elif message.startswith(("Bootstrap", "NET : Using interface", "NET: Using interface")):
        kind = "bootstrap"
    else:
        return False
    found = _INTERFACES.findall(message)
    for index, name, address in found:
        _nic(context, kind, int(index), name, address=address)
    if not found and (match := _ONE_INTERFACE.search(message)):
        _nic(context, kind, 0, match[1], address=match[2])
    return True


def _gdr(context: Context, message: str) -> bool:
    match = GPU_DIRECT_HCA.search(message)
    if match is None or match["net"] == "Socket":
        return match is not None
    _nic(context, "ib", int(match["index"]), match["name"], gdr_capable=match["state"] == "Enabled")
    return "(no module)" not in message


def _ofi(context: Context, message: str) -> bool:
    if match := _OFI_GUID.match(message):
        index = sum(
            1 for kind, _, name in context.process.nets if kind == "ofi" and name != match["name"] and "#" not in name
        )
        _nic(context, "ofi", index, match["name"])
        return True
    match = _OFI.match(message)
    if match is None:
        return False
    context.process.plugin = "aws-ofi-nccl"
    count = int(match["count"] or 0)
    context.topology("nic", f"OFI {match['provider']}", f"{count} NICs" if count else "")
    for index in range(min(count, MAX_NICS)):
        _nic(context, "ofi", index, f"{match['provider']}#{index}")
    return True


def _plugin(context: Context, message: str) -> bool:
    for pattern in _PLUGINS:
        if match := pattern.match(message):
            context.process.plugin = match["name"]
            return True
    return False
