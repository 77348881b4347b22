"""The result of a simulation: what happened when, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.ops import DTYPE_BYTES, Collective, Copy, Kernel, Op, PointToPoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.conditions import Conditions
    from simulator.config import Job
    from simulator.topology import Topology

COMPUTE, COMM, MEMCPY = 0, 1, 2


@dataclass(slots=True)
class Slot:
    """One operation of one step on the ranks that did it. All times are true time in ns, one per rank."""

    step: int
    op: Op
    ranks: NDArray[np.int64]
    host_start: NDArray[np.float64]
    host_end: NDArray[np.float64]
    launch: NDArray[np.float64] | None = None
    start: NDArray[np.float64] | None = None
    end: NDArray[np.float64] | None = None
    arrive: NDArray[np.float64] | None = None  # when the last member of the group had started
    group: NDArray[np.int64] | None = None  # index into Timeline.groups
    seq: NDArray[np.int64] | None = None
    work: NDArray[np.float64] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    kind: str
    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Device activities of the profiled steps, sorted by rank and start. Times are ns on the rank's own clock."""

    rank: NDArray[np.int32]
    step: NDArray[np.int32]
    category: NDArray[np.int8]  # COMPUTE, COMM, MEMCPY
    name: NDArray[np.int32]  # index into names
    stream: NDArray[np.int32]
    launch_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    group: NDArray[np.int32]  # index into groups, -1 outside communication
    seq: NDArray[np.int64]
    payload_bytes: NDArray[np.int64]
    wait_ns: NDArray[np.int64]  # true: how long the kernel waited for the last member
    names: list[str]
    groups: list[Group]


STREAMS = {
    "ag": 22,
    "rs": 26,
    "ar": 30,
    "dp": 20,
    "tp": 24,
    "ep": 24,
    "world": 20,
    "rf": 32,
    "sf": 36,
    "rb": 40,
    "sb": 44,
}


@dataclass(slots=True)
class Timeline:
    """Everything one simulated run produced."""

    job: Job
    topology: Topology
    conditions: Conditions
    groups: list[Group]
    slots: list[Slot] = field(default_factory=list)
    step_start: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # [rank, step], true time
    step_end: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    exposed_wait: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # [rank, step]
    exposed_transfer: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def observed(self, rank: NDArray[np.int64] | int, t: NDArray[np.float64]) -> NDArray[np.float64]:
        """True time as the rank's host clock shows it."""
        host = self.topology.host_of[rank]
        return t * (1 + self.conditions.clock_drift_ppm[host] * 1e-6) + self.conditions.clock_offset_ns[host]

    def step_ns(self) -> NDArray[np.float64]:
        """Job-level duration of every step: from the earliest start to the next earliest start."""
        starts = self.step_start.min(axis=0)
        return np.append(np.diff(starts), self.step_end.max(axis=0)[-1] - starts[-1])

    def median_step_ns(self) -> float:
        """Median over the profiled steps."""
        first = self.job.first_profiled
        return float(np.median(self.step_ns()[first : first + self.job.steps]))

    def kernels(self) -> KernelTable:
        """The device activities as flat arrays."""
        names: dict[str, int] = {}
        parts: dict[str, list[NDArray[Any]]] = {k: [] for k in _COLUMNS}
        for slot in self.slots:
            if slot.start is None or slot.end is None or slot.launch is None:
                continue
            n = len(slot.ranks)
            fixed = _describe(slot.op, names)
            arrive = slot.start if slot.arrive is None else slot.arrive
            row = {
                "rank": slot.ranks,
                "step": np.full(n, slot.step),
                "category": np.full(n, fixed[0]),
                "name": np.full(n, fixed[1]),
                "stream": np.full(n, fixed[2]),
                "launch_ns": self.observed(slot.ranks, slot.launch),
                "start_ns": self.observed(slot.ranks, slot.start),
                "end_ns": self.observed(slot.ranks, slot.end),
                "group": np.full(n, -1) if slot.group is None else slot.group,
                "seq": np.full(n, -1) if slot.seq is None else slot.seq,
                "payload_bytes": np.full(n, fixed[3]),
                "wait_ns": np.maximum(0.0, arrive - slot.start),
            }
            for key, value in row.items():
                parts[key].append(value)
        flat = {k: np.concatenate(v) for k, v in parts.items()}
        order = np.lexsort((flat["start_ns"], flat["rank"]))
        columns = {k: np.rint(v[order]).astype(_COLUMNS[k]) for k, v in flat.items()}
        return KernelTable(**columns, names=list(names), groups=self.groups)


_COLUMNS = {
    "rank": np.int32,
    "step": np.int32,
    "category": np.int8,
    "name": np.int32,
    "stream": np.int32,
    "launch_ns": np.int64,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "group": np.int32,
    "seq": np.int64,
    "payload_bytes": np.int64,
    "wait_ns": np.int64,
}


def _describe(op: Op, names: dict[str, int]) -> tuple[int, int, int, int]:
    """Category, name index, stream and payload of a device activity."""
    if isinstance(op, Kernel):
        return COMPUTE, names.setdefault(op.name, len(names)), 7, 0
    if isinstance(op, Copy):
        return MEMCPY, names.setdefault(f"Memcpy {op.direction}", len(names)), 7, op.bytes
    if isinstance(op, Collective):
        size = op.nelems * DTYPE_BYTES[op.dtype]
        return COMM, names.setdefault(op.collective, len(names)), STREAMS[op.stream], size
    if isinstance(op, PointToPoint):
        size = op.nelems * DTYPE_BYTES[op.dtype]
        return COMM, names.setdefault(op.direction, len(names)), STREAMS[op.stream], size
    raise TypeError(op)
