"""The ``via`` lines: which transport a connection took. Strict: a text that fits no known shape is torn, never guessed.

Source: NCCL src/transport/*.cc, tags v2.3.5 to v2.30.7; RCCL adds " comm 0x.. nRanks nn".
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_CHANNEL = 1_024
MAX_NIC = 256
_KINDS_KEPT = 10_000

_LINK = re.compile(
    rb"(?:Channel|Ring|CollNet|Coll) (\d{1,4})(?:/(\d{1,3}))? : (\d{1,7})(?:\[([0-9a-fA-F]{1,12})\])?"
    rb"(?: -> (\d{1,7})(?:\[([0-9a-fA-F]{1,12})\])?)?(?: \[(send|receive)\])?"
)
_RCCL_TAIL = re.compile(rb" comm (0x[0-9a-f]+) nRanks (\d+)\s*$")
_LOCAL = re.compile(
    r"(?:P2P/(?:direct pointer|IPC|CUMEM|MNNVL|common device|indirect/\d+(?:\[[0-9a-f]+\])?)(?:/read)?(?:/CE)?"
    r"|SHM/(?:direct|CE)(?:/(?:direct|CE))?|direct shared memory)"
)
_NET = re.compile(
    r"(?P<family>NET|COLLNET)/(?P<network>[A-Za-z][\w.\-]*(?: [A-Za-z][\w.\-]*)?)/(?P<nic>\d{1,4})"
    r"(?:\((?P<proxy>\d{1,7})\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?(?P<shared>/Shared)?"
)
_INDIRECT = re.compile(r"indirect/\d+(?:\[[0-9a-f]+\])?")


Via = tuple[
    int, int | None, int, int | None, str | None, str | None, str | None,
    str, str, str | None, int | None, int | None, bool | None, str | None,
]  # fmt: skip
"""A connection as one end prints it: the table's columns channel to gdr, then the communicator if the line names it.

A plain tuple: a log of a large job holds millions.
"""


class Kind(NamedTuple):
    """A transport without the ends it connects."""

    kind: str
    family: str
    network: str | None
    nic: int | None
    proxy: int | None
    gdr: bool | None


def parse_kind(text: str) -> Kind | None:
    """The transport that the words after "via" name, None when they name none."""
    net = _NET.fullmatch(text)
    if net is None:
        if _LOCAL.fullmatch(text) is None:
            return None
        kind = _INDIRECT.sub("indirect", text)
        return Kind(kind, "P2P" if kind.startswith("P2P") else "SHM", None, None, None, None)
    nic = int(net["nic"])
    if nic >= MAX_NIC:
        return None
    family, network = net["family"], net["network"]
    kind = f"{family}/{network}{net['gdr'] or ''}{net['shared'] or ''}"
    return Kind(kind, family, network, nic, None if net["proxy"] is None else int(net["proxy"]), net["gdr"] is not None)


class Vias:
    """Parses connection lines; the transports among them are few and parsed once."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, Kind | None] = {}

    def parse(self, message: bytes) -> Via | None:
        """The connection that a message states, None when it is torn or implausible."""
        left, _, right = message.partition(b" via ")
        comm = nranks = None
        if b" comm 0x" in right and (tail := _RCCL_TAIL.search(right)) is not None:
            comm, nranks = tail[1].decode(), int(tail[2])
            right = right[: tail.start()]
        if right not in self._kinds:
            if len(self._kinds) >= _KINDS_KEPT:
                self._kinds.clear()
            self._kinds[right] = parse_kind(right.rstrip().decode("utf-8", "replace"))
        kind, match = self._kinds[right], _LINK.fullmatch(left)
        if kind is None or match is None:
            return None
        channel, connection, source, source_device, target, target_device, direction = match.groups()
        first, second = int(source), None if target is None else int(target)
        if int(channel) >= MAX_CHANNEL or (nranks is not None and max(first, second or 0) >= nranks):
            return None
        if kind.network is None:
            sound = second is not None and first != second and direction is None
        else:
            sound = direction is not None and (second is None) == (kind.family == "COLLNET")
        if not sound:
            return None
        return (
            int(channel),
            None if connection is None else int(connection),
            first,
            second,
            None if source_device is None else source_device.decode(),
            None if target_device is None else target_device.decode(),
            None if direction is None else direction.decode(),
            *kind,
            comm,
        )
