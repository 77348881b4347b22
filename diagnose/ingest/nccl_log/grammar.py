"""INFO messages that state facts, by their first word: communicators, settings, NICs, interfaces, layout, timings.

Sources: NCCL src/init.cc, src/graph/*, src/transport/net*, tags v2.4 to v2.30.7; aws-ofi-nccl; RCCL.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.nccl_log import layout
from diagnose.ingest.nccl_log.context import MAX_TEXT
from diagnose.ingest.nccl_log.networks import network_message
from diagnose.units import S

if TYPE_CHECKING:
    from collections.abc import Callable

    from diagnose.ingest.nccl_log.context import Context
    from diagnose.ingest.nccl_log.state import Communicator

COLLECTIVES = (
    "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv", "AllToAll", "AlltoAll",
    "Gather", "Scatter", "AllGatherV", "ReduceScatterV", "AllToAllv", "AllToAllV",
)  # fmt: skip

_COMM = re.compile(
    r"(?:\[Rank \d+\] )?(?:(?P<api>nccl\w+?)(?:_impl)? )?comm (?P<comm>0x[0-9a-f]+)"
    r" rank (?P<rank>\d+) n[rR]anks (?P<nranks>\d+)"
    r"(?P<rest>.*?)(?: ?- (?P<state>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)|$)"
)
_COMM_FIELD = re.compile(r"(cudaDev|nvmlDev|busId|commId|parent|nNodes|localRanks|MNNVL) (\w+)")
_CHANNELS = re.compile(r"(\d+) (coll|collnet|nvls|p2p) channels(?=,|$| )")
_RCCL_CHANNELS = re.compile(r"(coll|collnet|nvls|p2p) channels:(\d+)")
_ENV = re.compile(r"(?P<name>[A-Z][A-Z0-9_]{3,60}) set (?P<by>by environment )?to (?P<value>.*)")
_CONFIG = re.compile(r"Comm config (?P<name>\w+) set to (?P<value>\S+)")
_BOOTSTRAP = re.compile(r"Bootstrap timings total ([\d.]+) \(.*?recv ([\d.]+)")
_INIT = re.compile(r"Init timings.*?rank (\d+) nranks (\d+) total ([\d.]+) \((.*)\)")
_TIMING = re.compile(r"(\w+) ([\d.]+)")
_VERSION = re.compile(r"(NCCL|RCCL) version ?:? (\d\.\d{1,2}\.\d{1,2}(?:[+\-][\w.+\-]*)?)(?::\S*)?(?: .*)?")
_RC = re.compile(r"[\w./\-]+\.(?:cc|cu|h|c|cpp):\d+ (?:\(\w+\) )?-> (\d{1,2})(?: .*)?")


def fact(context: Context, message: str) -> bool:
    """Take the facts of an INFO message; True when its shape was recognised."""
    word = message.lstrip().split(" ", 1)[0]
    handler = _BY_WORD.get(word)
    if handler is None:
        handler = _by_shape(word)
    return handler is not None and handler(context, message)


def _by_shape(word: str) -> Callable[[Context, str], bool] | None:
    if word.startswith("NET/"):
        return _network
    if word.startswith("NCCL_"):
        return _env
    if word.startswith(("ncclComm", "[Rank")):
        return _comm
    if word.isdecimal():
        return _channels
    if word.startswith("comm:"):
        return _rccl_channels
    if word.endswith(":") and word[:-1] in COLLECTIVES:
        return layout.collective
    if ":" in word and "." in word:
        return _return_code
    return None


def _comm(context: Context, message: str) -> bool:
    match = _COMM.match(message)
    if match is None:
        return False
    rank, nranks = int(match["rank"]), int(match["nranks"])
    if rank >= nranks:
        return False
    head, process = context.head, context.process
    comm = process.communicator(match["comm"], context.line, head.tid, head.device)
    comm.comm_rank, comm.nranks = rank, nranks
    comm.api = match["api"] or comm.api
    for name, value in _COMM_FIELD.findall(match["rest"]):
        _set_comm_field(comm, name, value)
    if match["state"] == "Init START":
        comm.started_line = context.line
    if match["state"]:
        comm.state = {"Init START": "started", "Init COMPLETE": "complete", "Destroy COMPLETE": "destroyed"}.get(
            match["state"], "aborted"
        )
    if process.bootstrap_recv_ns is not None and comm.bootstrap_recv_ns is None:
        comm.bootstrap_recv_ns, process.bootstrap_recv_ns = process.bootstrap_recv_ns, None
    return True


def _set_comm_field(comm: Communicator, name: str, value: str) -> None:
    column = {
        "cudaDev": "cuda_device", "nvmlDev": "nvml_device", "busId": "bus_id", "commId": "comm_id", "parent": "parent",
        "nNodes": "nnodes", "localRanks": "local_ranks", "MNNVL": "mnnvl",
    }[name]  # fmt: skip
    if column in {"bus_id", "comm_id", "parent"}:
        setattr(comm, column, value)
    elif value.isdecimal():
        setattr(comm, column, value != "0" if column == "mnnvl" else int(value))


def _channels(context: Context, message: str) -> bool:
    return _set_channels(context, [(kind, count) for count, kind in _CHANNELS.findall(message)])


def _rccl_channels(context: Context, message: str) -> bool:
    return _set_channels(context, _RCCL_CHANNELS.findall(message))


def _set_channels(context: Context, found: list[tuple[str, str]]) -> bool:
    comm = context.process.current(context.head.tid, context.head.device)
    for kind, count in found:
        if comm is not None and getattr(comm, f"{kind}_channels") is None:
            setattr(comm, f"{kind}_channels", int(count))
    return bool(found)


def _env(context: Context, message: str) -> bool:
    match = _ENV.match(message)
    if match is None:
        return False
    value = match["value"].strip()
    if value[-1:] == "." and value[:-1].lstrip("-").isdecimal():
        value = value[:-1]
    setting(context, match["name"], value, "environment")
    return True


def _config(context: Context, message: str) -> bool:
    match = _CONFIG.match(message)
    if match is None:
        return False
    setting(context, match["name"], match["value"], "config")
    return True


def setting(context: Context, name: str, value: str, origin: str) -> None:
    """Keep a setting once for a process."""
    if context.process.env.get(name) == value:
        return
    context.process.env[name] = value
    context.row("comm_env", name=name, value=value[:MAX_TEXT], origin=origin)


def _network(context: Context, message: str) -> bool:
    if message.startswith("NET/OFI Adding ") and "=" in message:
        name, _, value = message.removeprefix("NET/OFI Adding ").removesuffix(" to environment").partition("=")
        setting(context, name, value, "plugin")
        return True
    if message.startswith("NET/OFI Setting NCCL_"):
        name, _, value = message.removeprefix("NET/OFI Setting ").partition(" to ")
        setting(context, name, value.strip('"'), "plugin")
        return True
    return network_message(context, message)


def _version(context: Context, message: str) -> bool:
    match = _VERSION.fullmatch(message.strip())
    if match is None:
        return message.startswith(("NCCL git version", "NCCL EP version"))
    context.process.library, context.process.version = match[1].lower(), match[2]
    return True


def _driver(context: Context, message: str) -> bool:
    text = message.removeprefix("cudaDriverVersion").strip()
    if text.isdecimal():
        context.process.driver_version = int(text)
    return text.isdecimal()


def _timings(context: Context, message: str) -> bool:
    match = _INIT.match(message)
    comm = context.process.current(context.head.tid, context.head.device)
    if match is None or comm is None:
        return match is not None
    parts = {name: float(value) for name, value in _TIMING.findall(match[4])}
    comm.init_ns = round(float(match[3]) * S)
    comm.bootstrap_ns = round(parts.get("bootstrap", 0.0) * S)
    comm.connect_ns = round(parts.get("connections", 0.0) * S)
    return True


def _bootstrap(context: Context, message: str) -> bool:
    match = _BOOTSTRAP.match(message)
    if match is None:
        return network_message(context, message)
    comm = context.process.current(context.head.tid, context.head.device)
    recv_ns = round(float(match[2]) * S)
    if comm is None or comm.bootstrap_recv_ns is not None:
        context.process.bootstrap_recv_ns = recv_ns
    else:
        comm.bootstrap_recv_ns = recv_ns
    return True


def _connected(context: Context, message: str) -> bool:
    comm = context.process.current(context.head.tid, context.head.device)
    if comm is not None and message.startswith("Connected"):
        comm.connected = True
    return True


def _return_code(context: Context, message: str) -> bool:
    match = _RC.fullmatch(message.strip())
    if match is None:
        return False
    context.process.last_rc = int(match[1])
    return True


def _nothing(_: Context, __: str) -> bool:
    return True


_BY_WORD: dict[str, Callable[[Context, str], bool]] = {
    "comm": _comm,
    "Channel": layout.ring,
    "Ring": _nothing,
    "Tree": _nothing,
    "Trees": layout.tree,
    "[RINGS]": _nothing,
    "NCCL": _version,
    "RCCL": _version,
    "cudaDriverVersion": _driver,
    "Comm": _config,
    "Init": _timings,
    "Bootstrap": _bootstrap,
    "Bootstrap:": _bootstrap,
    "Using": network_message,
    "Plugin": network_message,
    "Initialized": network_message,
    "Assigned": _nothing,
    "threadThresholds": _nothing,
    "Setting": _nothing,
    "Pattern": layout.pattern,
    "===": layout.system,
    "+": layout.link,
    "GPU": layout.gpu_direct,
    "NVLS": layout.nvls,
    "Check": layout.peer_to_peer,
    "isAllDirectP2p": layout.peer_to_peer,
    "Connected": _connected,
    "[Proxy": _nothing,
}
