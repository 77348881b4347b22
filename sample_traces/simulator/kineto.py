"""Writes one Kineto trace per rank from a timeline."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from simulator.collective_args import CollectiveArgs
from simulator.kernels import name_on
from simulator.kineto_text import Text24, Text213, device_properties
from simulator.ops import AUTOGRAD, Collective, Copy, End, Kernel, Pause, PointToPoint, Sync
from simulator.programs import LOADER, STEP
from simulator.timeline import STREAMS
from simulator.trace_frame import BASE_NS, EPOCH_NS, header, process_id, row_names, span

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.timeline import Slot, Timeline
_COMPUTE_STREAM = 7


def file_name(timeline: Timeline, rank: int) -> str:
    """Torchtitan's name, or the one of torch's own trace handler."""
    job = timeline.job
    if job.era == "2.13":
        return f"rank{rank}_trace.json"
    host = timeline.topology.host_names[timeline.topology.host_of[rank]]
    end = EPOCH_NS[job.era] + int(timeline.slots[-1].host_end[0])
    return f"{host}_{process_id(rank, job.seed)}.{end + rank * 7919}.pt.trace.json"


def write_traces(timeline: Timeline, folder: Path, *, level: int = 6) -> list[Path]:
    """All traces but those of dropped ranks, gzipped without a time stamp. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = _by_rank(timeline)
    written = []
    for rank in range(timeline.job.ranks):
        if rank in timeline.job.drop_ranks:
            continue
        name = file_name(timeline, rank)
        path = folder / f"{name}.gz"
        text = _Rank(timeline, rank, name).document(batches[rank])
        path.write_bytes(gzip.compress(text.encode(), level, mtime=0))
        written.append(path)
    return written


@dataclass(slots=True)
class _Times:
    """A slot's times as whole ns relative to the file's base, one per rank of the slot."""

    host_start: list[int]
    host_end: list[int]
    launch: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)


def _by_rank(timeline: Timeline) -> list[list[tuple[Slot, _Times, int]]]:
    shift = EPOCH_NS[timeline.job.era] - BASE_NS[timeline.job.era]
    batches: list[list[tuple[Slot, _Times, int]]] = [[] for _ in range(timeline.job.ranks)]
    for slot in timeline.slots:

        def whole(values: object, ranks: object = slot.ranks) -> list[int]:
            if values is None:
                return []
            seen = timeline.observed(ranks, values)  # type: ignore[arg-type]
            return [int(v) + shift for v in np.rint(seen).tolist()]

        times = _Times(*map(whole, (slot.host_start, slot.host_end, slot.launch, slot.start, slot.end)))
        for i, rank in enumerate(slot.ranks.tolist()):
            batches[rank].append((slot, times, i))
    return batches


class _Rank:
    """The trace of one rank."""

    def __init__(self, timeline: Timeline, rank: int, name: str) -> None:
        self.timeline, self.job, self.rank, self.name = timeline, timeline.job, rank, name
        self.text = Text213() if self.job.era == "2.13" else Text24()
        self.modern = self.job.era == "2.13"
        self.pid = process_id(rank, self.job.seed)
        self.threads = {"main": self.pid, AUTOGRAD: self.pid + 611}
        self.device = rank % self.job.cluster.gpus_per_host
        self.arguments = CollectiveArgs(timeline, rank)
        self.ident, self.correlation, self.index = 1, 30_000 + rank * 17, 0
        self.cpu: list[tuple[int, str]] = []
        self.gpu: list[str] = []
        self.marks: list[str] = []
        self.used_streams: set[int] = {_COMPUTE_STREAM}
        self.gpu_name = timeline.conditions.gpu_names[timeline.topology.host_of[rank]]
        self.sms = 108 if "A100" in self.gpu_name else 132

    def document(self, batch: list[tuple[Slot, _Times, int]]) -> str:
        """The file's text."""
        for slot, times, i in batch:
            op = slot.op
            if isinstance(op, Kernel):
                self._kernel(slot, op, times, i)
            elif isinstance(op, Collective | PointToPoint):
                self._communication(slot, op, times, i)
            elif isinstance(op, Copy):
                self._copy(op, times, i)
            elif isinstance(op, End):
                self._annotation(op.name, slot, times, i)
            elif isinstance(op, Sync):
                self._runtime("cudaStreamSynchronize", 131, times.host_start[i], times.host_end[i], "main")
            elif isinstance(op, Pause):
                self._allocator(times, i)
        self.cpu.sort(key=lambda item: item[0])
        first = min(t.host_start[i] for _, t, i in batch)
        last = max(max(t.end[i] if t.end else 0, t.host_end[i]) for _, t, i in batch)
        body = [text for _, text in self.cpu] + self.gpu + self.marks
        meta = row_names(
            self.text,
            first,
            pid=self.pid,
            threads=self.threads,
            device=self.device,
            streams=self.used_streams,
            devices=self.job.cluster.gpus_per_host,
        )
        around = span(self.text, first - 92_000, last - first + 300_000)
        events = [*meta, *body, *around] if self.modern else [*body, *meta, *around]
        devices = device_properties([self.gpu_name] * self.job.cluster.gpus_per_host)
        return self.text.document(header(self.timeline, self.rank), devices, BASE_NS[self.job.era], events, self.name)

    # -- one operation each -------------------------------------------------------------------------

    def _next(self) -> tuple[int, str]:
        """External id of a new host event, and the bookkeeping arguments that follow it."""
        self.ident += 1
        self.index += 1
        function = 0 if self.modern else self.ident
        return self.ident, f'"External id": {self.ident},"Record function id": {function}, '

    def _host(self, cat: str, name: str, ts: int, end: int, thread: str, extra: str = "") -> int:
        ident, head = self._next()
        args = f'{head}{extra}"Ev Idx": {self.index - 1}'
        self.cpu.append((ts, self.text.complete(cat, name, self.pid, self.threads[thread], ts, max(0, end - ts), args)))
        return ident

    def _runtime(self, name: str, cbid: int, ts: int, end: int, thread: str, ident: int = 0) -> int:
        self.correlation += 3
        outer = f'"External id": {ident},{self._gap}' if ident else ""
        args = f'{outer}"cbid": {cbid},{self.text.arg_gap}"correlation": {self.correlation}'
        tid = self.threads[thread]
        self.gpu.append(self.text.complete("cuda_runtime", name, self.pid, tid, ts, max(0, end - ts), args))
        if ident:
            self.gpu.append(self.text.flow("s", self.correlation, self.pid, tid, ts))
        return self.correlation

    @property
    def _gap(self) -> str:
        return "" if self.modern else "      "

    def _device(self, cat: str, name: str, ident: int, ts: int, end: int, stream: int, args: str) -> None:
        args = f'"External id": {ident},{self._gap}{args}'
        self.used_streams.add(stream)
        self.gpu.append(self.text.complete(cat, name, self.device, stream, ts, max(0, end - ts), args))
        self.gpu.append(self.text.flow("f", self.correlation, self.device, stream, ts))

    def _shape(self, op: Kernel, work: float) -> tuple[list[int], str]:
        grid = [max(1, round(op.grid[0] * work)) if op.power else op.grid[0], *op.grid[1:]]
        if not op.dims or not self.modern:
            return grid, ""
        dims = [list(d) for d in op.dims]
        if op.power:
            dims[0][-2 if len(dims[0]) > 2 else 0] = round(dims[0][-2 if len(dims[0]) > 2 else 0] * work)
        kinds = json.dumps(["c10::BFloat16"] * len(dims))
        return grid, f'"Input type": {kinds}, "Input Dims": {json.dumps(dims)}, '

    def _kernel(self, slot: Slot, op: Kernel, times: _Times, i: int) -> None:
        work = float(slot.work[i]) if slot.work is not None else 1.0
        grid, shapes = self._shape(op, work)
        ident = self._host("cpu_op", op.op, times.host_start[i], times.host_end[i] - 900, op.thread, shapes)
        name = name_on(self.gpu_name, op.name)
        launch = "cudaLaunchKernelExC" if name.startswith(("nvjet", "sm90")) else "cudaLaunchKernel"
        at = times.launch[i]
        cbid = 430 if launch.endswith("ExC") else 211
        end = at + (times.host_end[i] - times.host_start[i]) * 2 // 5
        correlation = self._runtime(launch, cbid, at, end, op.thread, ident)
        args = self._launch_args(grid, list(op.block), op.registers, op.shared, _COMPUTE_STREAM, correlation)
        self._device("kernel", name, ident, times.start[i], times.end[i], _COMPUTE_STREAM, args)

    def _launch_args(
        self, grid: list[int], block: list[int], registers: int, shared: int, stream: int, correlation: int
    ) -> str:
        blocks = grid[0] * grid[1] * grid[2] / self.sms
        warps = blocks * block[0] / 32
        g = self.text.arg_gap
        return (
            f'"queued": 0, "device": {self.device}, "context": 1,{g}"stream": {stream}, '
            f'"correlation": {correlation},{g}"registers per thread": {registers},{g}"shared memory": {shared},'
            f'{g}"blocks per SM": {blocks:.6g},{g}"warps per SM": {warps:.6g},{g}"grid": {grid},{g}"block": {block},'
            f'{g}"est. achieved occupancy %": {min(100, int(warps / 64 * 100))}'
        )

    def _communication(self, slot: Slot, op: Collective | PointToPoint, times: _Times, i: int) -> None:
        names = self.arguments.names(op)
        begin, end = times.host_start[i], times.host_end[i]
        cost = end - begin
        self._host("cpu_op", names.cpu_op, begin, end - 600, op.thread)
        record, on_kernel = self.arguments.of(slot, op, i)
        ident = self._host("cpu_op", "record_param_comms", begin + cost // 6, end - cost // 12, op.thread, record)
        mark = self._host("user_annotation", names.annotation, begin + cost // 4, end - cost // 8, op.thread)
        at = times.launch[i]
        correlation = self._runtime("cudaLaunchKernelExC", 430, at, at + cost // 5, op.thread, ident)
        stream = STREAMS[op.stream]
        args = self._launch_args([names.channels, 1, 1], [544, 1, 1], 96, 82_240, stream, correlation)
        gap = "," if self.modern else ", "
        start, stop = times.start[i], times.end[i]
        self._device("kernel", names.kernel, ident, start, stop, stream, f"{args}{gap}{on_kernel}")
        self.marks.append(
            self.text.complete(
                "gpu_user_annotation",
                names.annotation,
                self.device,
                stream,
                start - 1,
                stop - start + 2,
                f'"External id": {mark}',
            )
        )

    def _copy(self, op: Copy, times: _Times, i: int) -> None:
        begin, end = times.host_start[i], times.host_end[i]
        ident = self._host("cpu_op", "aten::copy_", begin, end, "main")
        correlation = self._runtime("cudaMemcpyAsync", 41, times.launch[i], end - 800, "main", ident)
        start, stop = times.start[i], times.end[i]
        place = "Pinned" if op.pinned else "Pageable"
        name = f"Memcpy HtoD ({place} -> Device)" if op.direction == "HtoD" else f"Memcpy DtoH (Device -> {place})"
        rate = op.bytes / max(1, stop - start)
        args = (
            f'"device": {self.device}, "context": 1,{self.text.arg_gap}"stream": {_COMPUTE_STREAM}, '
            f'"correlation": {correlation},{self.text.arg_gap}"bytes": {op.bytes}, '
            f'"memory bandwidth (GB/s)": {rate!r}'
        )
        self._device("gpu_memcpy", name, ident, start, stop, _COMPUTE_STREAM, args)

    def _annotation(self, name: str, slot: Slot, times: _Times, i: int) -> None:
        if name == STEP:
            if not self.job.step_annotations:
                return
            name = f"ProfilerStep#{slot.step}"
        thread = "main"
        self._host("user_annotation", name, times.host_start[i], times.host_end[i], thread)
        if name == LOADER:
            self.index += 1

    def _allocator(self, times: _Times, i: int) -> None:
        begin, end = times.host_start[i], times.host_end[i]
        cut = begin + (end - begin) * 2 // 5
        for k in range(4):
            part = (cut - begin) // 4
            self._runtime("cudaFree", 22, begin + k * part, begin + (k + 1) * part - 2_000, "main")
        self._runtime("cudaMalloc", 20, cut, end - 3_000, "main")
