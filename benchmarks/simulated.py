"""Simulated runs straight into a run store: the same map and reduce steps as for files, without writing any trace.

A simulated timeline becomes one trace in memory per rank, with the columns that reading its file would give; map and
reduce are the product's own. Runs of thousands of ranks fit this way; tests compare it with the way through files.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from simulated_columns import Part, calls_of, columns_of

from diagnose.analysis.rank.reduce import reduce_rank
from diagnose.ingest.base import Identity
from diagnose.ingest.kineto.comm_args import comm_args
from diagnose.ingest.kineto.events import FullArgs
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.pipeline.result import Group, SourceResult, TraceInfo
from diagnose.store.rank_trace import (
    COMM,
    COMPUTE,
    MEMCPY,
    UNKNOWN,
    Activities,
    ProcessGroup,
    RankTrace,
    TraceHeader,
    empty_calls,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "sample_traces"))

from simulator.collective_args import CollectiveArgs
from simulator.kernels import name_on
from simulator.ops import Collective, Copy, End, Kernel, PointToPoint, Sync
from simulator.programs import LOADER, STEP
from simulator.timeline import STREAMS
from simulator.trace_frame import EPOCH_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulator.simulation import Run
    from simulator.timeline import Slot, Timeline

    from diagnose.config import Config
    from diagnose.pipeline.result import MapTask

_COMPUTE_STREAM = 7
_MAIN, _AUTOGRAD = 1, 2
_RUNTIME, _OPERATOR, _ANNOTATION = 0, 1, 2


class Traces:
    """All ranks of a timeline as traces in memory."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.job = timeline, timeline.job
        self.names: dict[str, int] = {}
        self.args: list[list] = [[] for _ in range(self.job.ranks)]
        self._describe = [CollectiveArgs(timeline, rank) for rank in range(self.job.ranks)]
        self._signatures: dict[tuple, int] = {}
        self._known: dict[tuple, object] = {}
        self._correlation = 0
        device: list[Part] = []
        host: list[Part] = []
        for slot in timeline.slots:
            self._slot(slot, device, host)
        self._device = columns_of(device, self.job.ranks)
        self._host = columns_of(host, self.job.ranks)

    def rank(self, rank: int) -> RankTrace:
        """The trace of one rank."""
        device, host = self._device[rank], self._host[rank]
        groups = tuple(
            ProcessGroup(group.name, group.description, group.ranks, len(group.ranks))
            for group in self.timeline.groups
            if rank in group.ranks
        )
        topology = self.timeline.topology
        place = topology.host_of[rank]
        modern = self.job.era == "2.13"
        header = TraceHeader(
            rank=rank,
            world_size=self.job.ranks,
            backend="nccl",
            host=topology.host_names[place] if modern else None,
            devices=(self.timeline.conditions.gpu_names[place],),
            groups=groups,
        )
        wide = {name: device[name].astype(np.int64) for name in device}
        activities = Activities(
            wide["start"],
            wide["end"] - wide["start"],
            wide["name"].astype(np.int32),
            wide["klass"].astype(np.int8),
            np.zeros(len(wide["start"]), np.int32),
            wide["stream"],
            wide["correlation"],
            wide["bytes"],
            wide["signature"],
            wide["args"].astype(np.int32),
        )
        calls = [calls_of(host, kind) for kind in (_RUNTIME, _OPERATOR, _ANNOTATION)]
        return RankTrace(
            header,
            list(self.names),
            activities,
            *calls,
            empty_calls(),
            self.args[rank],
            {},
            None,
            len(wide["start"]) + len(host["start"]),
        )

    def _times(self, ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
        seen = self.timeline.observed(ranks, values)
        return np.rint(seen).astype(np.int64) + EPOCH_NS[self.job.era]

    def _name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _slot(self, slot: Slot, device: list[Part], host: list[Part]) -> None:
        op, ranks = slot.op, slot.ranks
        begin, end = self._times(ranks, slot.host_start), self._times(ranks, slot.host_end)

        def on_host(kind: int, name: str, start: np.ndarray, stop: np.ndarray, thread: int, ref: object = -1) -> None:
            fields = {"kind": kind, "name": self._name(name), "thread": thread, "ref": ref}
            host.append(Part(ranks, start, np.maximum(stop, start), fields))

        if isinstance(op, End):
            if op.name != STEP:
                on_host(_ANNOTATION, op.name, begin, end, _MAIN)
            elif self.job.step_annotations:
                on_host(_ANNOTATION, f"ProfilerStep#{slot.step}", begin, end, _MAIN)
            return
        if isinstance(op, Sync):
            on_host(_RUNTIME, "cudaStreamSynchronize", begin, end, _MAIN)
            return
        if slot.note == "allocator":
            cut = begin + (end - begin) * 2 // 5
            on_host(_RUNTIME, "cudaFree", begin, cut - 2_000, _MAIN)
            on_host(_RUNTIME, "cudaMalloc", cut, end - 3_000, _MAIN)
            return
        if slot.start is None:
            return
        thread = _AUTOGRAD if getattr(op, "thread", "main") != "main" else _MAIN
        self._correlation += 1
        launch, start, stop = (self._times(ranks, values) for values in (slot.launch, slot.start, slot.end))
        cost = end - begin
        fields: dict[str, object] = {
            "correlation": self._correlation,
            "bytes": UNKNOWN,
            "args": -1,
            "stream": _COMPUTE_STREAM,
        }
        if isinstance(op, Kernel):
            on_host(_OPERATOR, op.op, begin, end - 900, thread)
            on_host(_RUNTIME, "cudaLaunchKernel", launch, launch + cost * 2 // 5, thread, self._correlation)
            fields |= {"klass": COMPUTE, **self._kernel(slot, op)}
        elif isinstance(op, Copy):
            on_host(_OPERATOR, "aten::copy_", begin, end, _MAIN)
            on_host(_RUNTIME, "cudaMemcpyAsync", launch, end - 800, _MAIN, self._correlation)
            place = "Pinned" if op.pinned else "Pageable"
            name = f"Memcpy HtoD ({place} -> Device)" if op.direction == "HtoD" else f"Memcpy DtoH (Device -> {place})"
            fields |= {
                "klass": MEMCPY,
                "name": self._name(name),
                "bytes": op.bytes,
                "signature": self._signature((name,)),
            }
        else:
            on_host(_OPERATOR, self._describe[0].names(op).cpu_op, begin, end - 600, thread)
            on_host(_RUNTIME, "cudaLaunchKernelExC", launch, launch + cost // 5, thread, self._correlation)
            name = self._describe[0].names(op).kernel
            fields |= {
                "klass": COMM,
                "name": self._name(name),
                "stream": STREAMS[op.stream],
                "signature": self._signature((name,)),
                "args": self._arguments(slot, op),
            }
        device.append(Part(ranks, start, np.maximum(stop, start), fields))

    def _kernel(self, slot: Slot, op: Kernel) -> dict[str, object]:
        """Name and signature: grids follow the work, names the device."""
        work = np.ones(len(slot.ranks)) if slot.work is None or not op.power else slot.work
        gpus = [self.timeline.conditions.gpu_names[host] for host in self.timeline.topology.host_of[slot.ranks]]
        grid = (
            np.maximum(1, np.rint(op.grid[0] * work)).astype(np.int64) if op.power else np.full(len(work), op.grid[0])
        )
        if len(set(gpus)) == 1 and (grid == grid[0]).all():
            name = name_on(gpus[0], op.name)
            return {
                "name": self._name(name),
                "signature": self._signature((name, int(grid[0]), *op.grid[1:], *op.block)),
            }
        names = [name_on(gpu, op.name) for gpu in gpus]
        found = [
            self._signature((name, size, *op.grid[1:], *op.block))
            for name, size in zip(names, grid.tolist(), strict=True)
        ]
        return {"name": np.array([self._name(name) for name in names]), "signature": np.array(found, np.int64)}

    def _signature(self, key: tuple) -> int:
        found = self._signatures.get(key)
        if found is None:
            digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
            found = self._signatures[key] = int.from_bytes(digest, signed=True)
        return found

    def _arguments(self, slot: Slot, op: Collective | PointToPoint) -> np.ndarray:
        places = []
        for place, rank in enumerate(slot.ranks.tolist()):
            uneven = isinstance(op, Collective) and op.collective == "all_to_allv"
            key = (id(op), int(slot.group[place]), rank if isinstance(op, PointToPoint) else -1)
            known = None if uneven else self._known.get(key)
            if known is None:
                text = self._describe[rank].of(slot, op, place)[1]
                known = comm_args(msgspec.json.decode(f"{{{text}}}".encode(), type=FullArgs))
                if not uneven:
                    self._known[key] = known
            elif known.seq is not None:
                known = known._replace(seq=int(slot.seq[place]))
            self.args[rank].append(known)
            places.append(len(self.args[rank]) - 1)
        return np.array(places, np.int64)


class SimulatedEngine:
    """Runs map tasks on a timeline: task n stands for rank n."""

    def __init__(self, run: Run) -> None:
        self._traces = Traces(run.timeline)
        self._dropped = set(run.timeline.job.drop_ranks)

    def run(self, tasks: list[MapTask]) -> Iterable[SourceResult]:
        """One result a rank."""
        return self._results(tasks)

    def _results(self, tasks: list[MapTask]) -> Iterator[SourceResult]:
        for task in tasks:
            if task.number not in self._dropped:
                yield self._map(task)

    def _map(self, task: MapTask) -> SourceResult:
        trace = self._traces.rank(task.number)
        reduced = reduce_rank(trace, keep_kernels=False)
        shards = {}
        for name, frame in reduced.frames.items():
            if not frame.is_empty():
                path = Path(task.shards) / f"{task.number:06d}-{name}.parquet"
                frame.write_parquet(path, compression="uncompressed", statistics=False)
                shards[name] = [str(path)]
        header = trace.header
        return SourceResult(
            path=task.source.label, kind="kineto", size_bytes=1, status="ok", rows=reduced.rows, shards=shards,
            identity=Identity(
                rank=header.rank, rank_from="distributedInfo", host=header.host or self._host(task.number), host_from="host_name",
                start_ns=reduced.start_ns, end_ns=reduced.end_ns, world_size=header.world_size,
            ),
            trace=TraceInfo(
                backend=header.backend, devices=header.devices, groups=tuple(Group(*group) for group in header.groups), versions={},
                step_source=reduced.step_source, lost_capture=reduced.lost_capture, device=reduced.device, has_device_work=True, truncated=False,
            ),
        )  # fmt: skip

    def _host(self, rank: int) -> str:
        topology = self._traces.timeline.topology
        return topology.host_names[topology.host_of[rank]]


def store_run(run: Run, store: Path, config: Config) -> Path:
    """The run store of a simulated run."""
    with tempfile.TemporaryDirectory(prefix="simulated-") as folder:
        for rank in range(run.timeline.job.ranks):
            (Path(folder) / f"{rank:06d}.json").touch()
        return build_run([folder], store, config, RunOptions(name=run.name, force=True), engine=SimulatedEngine(run))


__all__ = ["LOADER", "SimulatedEngine", "Traces", "store_run"]
