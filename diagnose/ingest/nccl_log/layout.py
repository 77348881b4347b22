"""Messages on the layout of communicators: rings, patterns, links, GPUDirect distances, tuner choices, calls.

Sources: NCCL src/graph/topo.cc, search.cc, paths.cc, connect.cc, src/enqueue.cc, tags v2.4 to v2.30.7.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.nccl_log.context import MAX_TEXT
from diagnose.ingest.nccl_log.networks import GPU_DIRECT_HCA, network_message
from diagnose.units import GB

if TYPE_CHECKING:
    from diagnose.ingest.nccl_log.context import Context

DTYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "fp8e4m3",
    "fp8e5m2",
)
DTYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
REDUCTIONS = ("sum", "prod", "max", "min", "avg")
MAX_ELEMENTS = 1 << 40

_RING = re.compile(r"Channel (\d+)(?:/\d+)? :((?: +\d+)+)(?: ?\.\.\.)?\s*")
_PATTERN = re.compile(r"Pattern (\d+), crossNic (\d+), nChannels (\d+), (?:bw|speed) ([\d.]+)/([\d.]+), type (\w+/\w+)")
_LINK = re.compile(r"(?P<indent> *)\+ (?P<link>[A-Z0-9]+)\[(?P<rate>[\d.]+)\] - (?P<node>[A-Z]+/[\w.\-]+)(?P<rest>.*)")
_DISTANCE = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for (?:GPU )?(\w+)(?:\[\d+\])? / HCA (\w+) \(distance (\d+) [<>=]+ (\d+)\)"
)
_COLL = re.compile(
    r"(?P<name>\w+): opCount (?P<op>[0-9a-f]+) sendbuff \S+ recvbuff \S+ (?:acc \S+ )?"
    r"count (?P<count>\d+) datatype (?P<dtype>\d+)"
    r" op (?P<reduction>\d+) root (?P<root>-?\d+) comm (?P<comm>0x[0-9a-f]+)(?: \[nranks=(?P<nranks>\d+)\])?"
)
_TUNER = re.compile(
    r"(?P<name>\w+)(?: \[[^\]]+\])?: (?P<bytes>\d+) Bytes -> Algo (?P<algo>\w+) proto (?P<proto>\w+)(?P<rest>.*)"
)


def ring(context: Context, message: str) -> bool:
    """Order of ranks in a channel, as rank 0 prints it."""
    match = _RING.fullmatch(message)
    if match is None:
        return False
    order = match[2].split()
    if len(order) > 1:
        context.topology("ring", match[1], " ".join(order))
    return True


def tree(context: Context, message: str) -> bool:
    """Trees of a rank."""
    context.topology("tree", "trees", message.removeprefix("Trees ")[:MAX_TEXT])
    return True


def pattern(context: Context, message: str) -> bool:
    """A pattern of the graph search with its bandwidth."""
    match = _PATTERN.match(message)
    if match is not None:
        context.topology("pattern", match[1], message[:MAX_TEXT], float(match[4]) * GB)
    return True


def system(context: Context, message: str) -> bool:
    """Head of a topology dump."""
    if match := re.match(r"=== System : maxWidth|=== System : maxBw ([\d.]+)", message):
        context.topology("system", "system", message.strip(), float(match[1]) * GB if match[1] else None)
    return True


def link(context: Context, message: str) -> bool:
    """One link of a topology dump; its depth in the tree becomes size_bytes."""
    match = _LINK.match(message)
    if match is not None:
        context.topology(
            "link",
            f"{match['link']} {match['node']}",
            message.rstrip(),
            float(match["rate"]) * GB,
            len(match["indent"]),
        )
    return True


def gpu_direct(context: Context, message: str) -> bool:
    """Whether the distance of a GPU and a NIC allows GPUDirect RDMA."""
    match = _DISTANCE.search(message)
    if match is None:
        return GPU_DIRECT_HCA.search(message) is not None and network_message(context, message)
    state, gpu, nic, have, limit = match.groups()
    context.topology("gdr", f"GPU {gpu} HCA {nic}", f"{state} {have} {limit}")
    return True


def nvls(context: Context, message: str) -> bool:
    """NVLink SHARP."""
    match = re.match(r"NVLS multicast support is (not )?available", message)
    if match is not None:
        context.process.nvls = match[1] is None
    return True


def peer_to_peer(context: Context, message: str) -> bool:
    """Whether all pairs of one host reach each other."""
    match = re.search(r"(?:isAllDirectP2p|intraNodeP2pSupport) (\d)", message)
    if match is not None:
        context.process.all_direct_p2p = match[1] == "1"
    return match is not None


def collective(context: Context, message: str) -> bool:
    """A collective call of one rank, or a tuner choice."""
    match = _COLL.match(message)
    if match is None:
        return tuner(context, message)
    dtype, reduction, count = int(match["dtype"]), int(match["reduction"]), int(match["count"])
    if dtype >= len(DTYPES) or count > MAX_ELEMENTS:
        return False
    context.row(
        "comm_coll",
        comm=match["comm"],
        op_count=int(match["op"], 16),
        collective=match["name"],
        elements=count,
        dtype=DTYPES[dtype],
        bytes=count * DTYPE_BYTES[dtype],
        reduction=REDUCTIONS[reduction] if reduction < len(REDUCTIONS) else None,
        root=int(match["root"]),
        nranks=None if match["nranks"] is None else int(match["nranks"]),
    )
    return True


def tuner(context: Context, message: str) -> bool:
    """The algorithm and protocol chosen for a size."""
    match = _TUNER.match(message)
    if match is None:
        return False
    value = f"{match['algo']} {match['proto']}{match['rest'].rstrip()}"
    context.topology("tuner", match["name"], value, size=int(match["bytes"]))
    return True
