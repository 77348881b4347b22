"""What is known so far of each process and its communicators while a log is read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.ingest.comm_rows import Rows
    from diagnose.ingest.nccl_log.prefix import Head
    from diagnose.ingest.nccl_log.transport import Via, Vias

VIAS_KEPT = 60_000
"""Distinct connection lines kept before they become rows: some 20 MB."""


@dataclass(slots=True)
class Communicator:
    """One process's view of a communicator; field names are the columns."""

    comm: str
    line: int
    comm_id: str | None = None
    parent: str | None = None
    api: str | None = None
    comm_rank: int | None = None
    nranks: int | None = None
    nnodes: int | None = None
    local_ranks: int | None = None
    mnnvl: bool | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    bus_id: str | None = None
    state: str | None = None
    started_line: int | None = None
    init_ns: int | None = None
    bootstrap_ns: int | None = None
    bootstrap_recv_ns: int | None = None
    connect_ns: int | None = None
    coll_channels: int | None = None
    nvls_channels: int | None = None
    collnet_channels: int | None = None
    p2p_channels: int | None = None
    connected: bool | None = None


@dataclass(slots=True)
class Process:
    """One process, or the nameless one of a log whose prefixes were removed.

    ``nets`` and ``told`` are shared by the processes of a host: all of them print the same lists.
    """

    host: str | None
    pid: int | None
    first_line: int
    rank: int | None = None
    device: int | None = None
    library: str = "nccl"
    version: str | None = None
    driver_version: int | None = None
    network: str | None = None
    plugin: str | None = None
    nvls: bool | None = None
    all_direct_p2p: bool | None = None
    counted: bool = False
    lines: int = 0
    last_rc: int | None = None
    comms: dict[str, Communicator] = field(default_factory=dict)
    by_thread: dict[int | None, Communicator] = field(default_factory=dict)
    by_device: dict[int | None, Communicator] = field(default_factory=dict)
    last_comm: Communicator | None = None
    bootstrap_recv_ns: int | None = None
    env: dict[str, str] = field(default_factory=dict)
    nets: set[tuple[str, int | None, str]] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    topology: set[tuple[str, str, str]] = field(default_factory=set)

    def tag(self, rank: int | None) -> None:
        """Take a launcher's tag as the rank; one that changes is a line counter and no rank."""
        if rank is None or rank == self.rank:
            return
        self.counted = self.counted or self.rank is not None
        self.rank = None if self.counted else rank

    def communicator(self, comm: str, line: int, thread: int | None, device: int | None) -> Communicator:
        """The communicator of that pointer; a pointer whose communicator ended begins a new one."""
        found = self.comms.get(comm)
        if found is None:
            found = self.comms[comm] = Communicator(comm, line)
        self.by_thread[thread] = self.by_device[device] = self.last_comm = found
        return found

    def current(self, thread: int | None, device: int | None) -> Communicator | None:
        """The communicator that a line of this thread most likely speaks of."""
        return self.by_thread.get(thread) or self.by_device.get(device) or self.last_comm


_PROCESS_COLUMNS = (
    "host",
    "pid",
    "rank",
    "device",
    "library",
    "version",
    "driver_version",
    "network",
    "plugin",
    "nvls",
    "all_direct_p2p",
    "lines",
    "first_line",
    "last_rc",
)
_COMM_COLUMNS = tuple(Communicator.__dataclass_fields__)


def write_process(rows: Rows, path: str, process: Process) -> None:
    """Rows of a process and its communicators."""
    rows.add("comm_process", {"path": path, **{name: getattr(process, name) for name in _PROCESS_COLUMNS}})
    for comm in process.comms.values():
        values = {name: getattr(comm, name) for name in _COMM_COLUMNS}
        rows.add("communicator", {"path": path, "host": process.host, "pid": process.pid, **values})


@dataclass(slots=True)
class Thread:
    """One prefix of records: a thread of a process, with its connection lines by text: first line, and repetitions."""

    head: Head
    process: Process
    vias: dict[bytes, int] = field(default_factory=dict)
    repeats: dict[bytes, int] = field(default_factory=dict)


def write_vias(rows: Rows, path: str, thread: Thread, vias: Vias, nranks: int) -> tuple[int, tuple[int, str] | None]:
    """Rows of the connections kept so far; returns how many lines were torn, with the first of them.

    ``nranks`` is the greatest size of a communicator in the log, 0 when unknown: no rank can reach it.
    """
    torn, example, process = 0, None, thread.process
    owners = _Owners(thread)
    for message, line in thread.vias.items():
        count = 1 + thread.repeats.get(message, 0)
        via = vias.parse(message)
        if via is None or (nranks > 0 and max(via[2], via[3] or 0) >= nranks):
            torn += count
            example = example or (line, message.decode("utf-8", "replace"))
            continue
        comm = via[-1] or owners.of(line, via)
        rows.add_tuple("channel", (path, line, process.host, process.pid, process.rank, comm, *via[:-1], count))
    thread.vias.clear()
    thread.repeats.clear()
    return torn, example


class _Owners:
    """Which communicator a connection line of a thread speaks of.

    Where connections are made on first use (NCCL 2.22 on), a thread of its own prints them and names no communicator: the line belongs
    to the communicator begun last before it in which this process has the rank that the line says is ours.
    """

    def __init__(self, thread: Thread) -> None:
        process, device = thread.process, thread.head.device
        comms = [
            item for item in process.comms.values() if None in (device, item.cuda_device) or item.cuda_device == device
        ]
        self._comms = sorted(comms, key=_begun)
        self._begun = [_begun(item) for item in self._comms]
        self._else = process.current(thread.head.tid, device)

    def of(self, line: int, via: Via) -> str | None:
        """The pointer of the communicator, None when the log tells of none."""
        source, target, direction = via[2], via[3], via[6]
        ours, most = target if direction == "receive" else source, max(source, target or 0)
        for place in range(bisect_right(self._begun, line) - 1, -1, -1):
            comm = self._comms[place]
            if comm.comm_rank in (None, ours) and (comm.nranks is None or comm.nranks > most):
                return comm.comm
        return None if self._else is None else self._else.comm


def _begun(comm: Communicator) -> int:
    return comm.line if comm.started_line is None else min(comm.line, comm.started_line)
