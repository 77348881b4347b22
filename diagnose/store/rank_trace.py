"""One rank's trace in memory, between decoding and reduction: columns of equal length, integer nanoseconds.

This is where readers of traces and the per-rank analysis meet. Names are codes into ``names``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

COMPUTE, COMM, MEMCPY, MEMSET = 0, 1, 2, 3
CLASS_NAMES = ("compute", "comm", "memcpy", "memset")

NO_CORRELATION = -1
NO_SHAPE = -1
OVERHEAD = "overhead: "
"""Starts the names of the profiler's own work among the Python calls."""

UNKNOWN = np.iinfo(np.int64).min
"""Stands for an absent integer in a column."""


class Activities(NamedTuple):
    """Device activities, ordered by start. ``args`` points into RankTrace.comm_args, -1 where there are none."""

    start_ns: NDArray[np.int64]
    dur_ns: NDArray[np.int64]
    name: NDArray[np.int32]
    klass: NDArray[np.int8]
    device: NDArray[np.int32]
    stream: NDArray[np.int64]
    correlation: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    signature: NDArray[np.int64]
    args: NDArray[np.int32]

    def take(self, which: NDArray[Any]) -> Self:
        """The rows that an index or a mask picks."""
        columns: list[Any] = [column[which] for column in self]
        return type(self)(*columns)


class Calls(NamedTuple):
    """Host events of one kind (runtime calls, operators, annotations), ordered by start.

    ``ref`` is the correlation of a runtime call; for operators and annotations it points into comm_args, -1 for none.
    Operators of runs without a device have a hash of their input dimensions there, always below -1.
    """

    start_ns: NDArray[np.int64]
    dur_ns: NDArray[np.int64]
    name: NDArray[np.int32]
    thread: NDArray[np.int64]
    ref: NDArray[np.int64]

    @property
    def end_ns(self) -> NDArray[np.int64]:
        """Ends."""
        return self.start_ns + self.dur_ns

    def take(self, which: NDArray[Any]) -> Self:
        """The rows that an index or a mask picks."""
        columns: list[Any] = [column[which] for column in self]
        return type(self)(*columns)


class CommArgs(NamedTuple):
    """Arguments of one communication event, as traced; None where absent."""

    collective: str | None = None
    group_name: str | None = None
    group_desc: str | None = None
    group_ranks: tuple[int, ...] | None = None
    group_size: int | None = None
    seq: int | None = None
    dtype: str | None = None
    in_elems: int | None = None
    out_elems: int | None = None
    in_split: str | None = None
    out_split: str | None = None
    peer: int | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    input_dims: str | None = None
    input_type: str | None = None


class ProcessGroup(NamedTuple):
    """One entry of the job's pg_config."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None


class TraceHeader(NamedTuple):
    """What a trace says of itself and its job."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    devices: tuple[str, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    base_ns: int = 0
    versions: Mapping[str, str] = {}
    with_stack: bool = False


class RankTrace(NamedTuple):
    """All of it."""

    header: TraceHeader
    names: list[str]
    activities: Activities
    runtime: Calls
    operators: Calls
    annotations: Calls
    python_calls: Calls
    comm_args: list[CommArgs]
    thread_names: dict[int, str]
    window_ns: tuple[int, int] | None
    events: int

    @property
    def has_device_work(self) -> bool:
        """Whether any device activity was captured."""
        return len(self.activities.start_ns) > 0


def empty_calls() -> Calls:
    """No calls."""
    wide = np.empty(0, np.int64)
    return Calls(wide, wide, np.empty(0, np.int32), wide, wide)
