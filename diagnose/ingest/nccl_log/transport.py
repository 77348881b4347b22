"""The ``via`` lines: which transport a connection took. Strict: a text that fits no known shape is torn, never guessed.

Source: NCCL src/transport/*.cc, tags v2.3.5 to v2.30.7; RCCL adds " comm 0x.. nRanks nn".
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHANNEL = 1_024
MAX_NIC = 256
MAX_RANK = 10_000_000

_VIA = re.compile(
    r"(?:Channel|Ring|CollNet|Coll) (?P<channel>\d{1,4})(?:/(?P<connection>\d{1,3}))? : (?P<source>\d{1,7})"
    r"(?:\[(?P<source_device>[0-9a-fA-F]{1,12})\])?"
    r"(?: -> (?P<target>\d{1,7})(?:\[(?P<target_device>[0-9a-fA-F]{1,12})\])?)?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<transport>.{3,80}?)"
    r"(?: comm (?P<comm>0x[0-9a-f]+) nRanks (?P<nranks>\d+))?\s*"
)
_LOCAL = re.compile(
    r"(?:P2P/(?:direct pointer|IPC|CUMEM|MNNVL|common device|indirect/\d+(?:\[[0-9a-f]+\])?)(?:/read)?(?:/CE)?"
    r"|SHM/(?:direct|CE)(?:/(?:direct|CE))?|direct shared memory)"
)
_NET = re.compile(
    r"(?P<family>NET|COLLNET)/(?P<network>[A-Za-z][\w.\-]*(?: [A-Za-z][\w.\-]*)?)/(?P<nic>\d{1,4})"
    r"(?:\((?P<proxy>\d{1,7})\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?(?P<shared>/Shared)?"
)
_INDIRECT = re.compile(r"indirect/\d+(?:\[[0-9a-f]+\])?")


class Via(NamedTuple):
    """One connection as one end prints it. ``kind`` is the transport without its device."""

    channel: int
    connection: int | None
    source: int
    target: int | None
    source_device: str | None
    target_device: str | None
    direction: str | None
    kind: str
    family: str
    network: str | None
    nic: int | None
    proxy: int | None
    gdr: bool | None
    comm: str | None
    nranks: int | None


def parse_via(message: str) -> Via | None:
    """The connection that a message states, None when it is torn or implausible."""
    match = _VIA.fullmatch(message)
    if match is None:
        return None
    source, target = int(match["source"]), None if match["target"] is None else int(match["target"])
    nranks = None if match["nranks"] is None else int(match["nranks"])
    channel = int(match["channel"])
    if channel >= MAX_CHANNEL or (nranks is not None and max(source, target or 0) >= nranks):
        return None
    text = match["transport"]
    net = _NET.fullmatch(text)
    if net is None:
        if _LOCAL.fullmatch(text) is None or target is None or source == target or match["direction"] is not None:
            return None
        kind, family, network, nic, proxy, gdr = _INDIRECT.sub("indirect", text), text[:3], None, None, None, None
        family = "SHM" if family == "dir" else family
    else:
        collnet = net["family"] == "COLLNET"
        if collnet != (target is None) or int(net["nic"]) >= MAX_NIC or match["direction"] is None:
            return None
        network, nic, family = net["network"], int(net["nic"]), net["family"]
        proxy = None if net["proxy"] is None else int(net["proxy"])
        kind = f"{family}/{network}{net['gdr'] or ''}{net['shared'] or ''}"
        gdr = net["gdr"] is not None
    return Via(
        channel,
        None if match["connection"] is None else int(match["connection"]),
        source,
        target,
        match["source_device"],
        match["target_device"],
        match["direction"],
        kind,
        family,
        network,
        nic,
        proxy,
        gdr,
        match["comm"],
        nranks,
    )
