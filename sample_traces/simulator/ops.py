"""The operations a training step is made of. A program is a list of them, equal on all ranks of a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAIN, AUTOGRAD = "main", "autograd"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compute kernel and the operator that launches it. base_ns is its time on a nominal device."""

    name: str
    op: str
    base_ns: float
    grid: tuple[int, int, int] = (132, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 64
    shared: int = 0
    bound: Literal["compute", "memory"] = "compute"
    power: int = 1  # how the time grows with the sequence length: 0 not, 1 linearly, 2 with its square
    thread: str = MAIN
    micro: int = 0
    experts: bool = False  # its work follows the tokens routed to this rank
    dims: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """A memcpy on the compute stream."""

    direction: Literal["HtoD", "DtoH"]
    bytes: int
    pinned: bool = True
    when: str = ""  # only where this pause kind has a duration


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of every group of one mesh dimension. nelems are those of the larger side."""

    group: str
    collective: str  # torch's name: allreduce, _allgather_base, _reduce_scatter_base, all_to_allv
    nelems: int
    stream: str
    handle: str
    dtype: str = "BFloat16"
    thread: str = MAIN
    wait_now: bool = False
    after: str = ""  # handle of a collective that must end first


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """One side of a transfer between neighbouring pipeline stages."""

    direction: Literal["send", "recv"]
    peer: int  # +1 next stage, -1 previous stage
    nelems: int
    stream: str
    thread: str = MAIN
    dtype: str = "BFloat16"


@dataclass(frozen=True, slots=True)
class Wait:
    """The compute stream waits for a collective."""

    handle: str


@dataclass(frozen=True, slots=True)
class Sync:
    """The host waits for the compute stream."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Host time without device work; how long is decided by the run's conditions."""

    kind: str


@dataclass(frozen=True, slots=True)
class Begin:
    """An annotation opens on the host."""

    name: str
    thread: str = MAIN


@dataclass(frozen=True, slots=True)
class End:
    """An annotation closes on the host."""

    name: str
    thread: str = MAIN


Op = Kernel | Copy | Collective | PointToPoint | Wait | Sync | Pause | Begin | End
DTYPE_BYTES = {"BFloat16": 2, "Float": 4}
