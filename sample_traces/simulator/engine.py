"""Runs the programs: a max-plus pass over host thread, compute stream and communication streams.

A kernel starts when its stream is free, its launch has arrived and its inputs are there. A collective starts
moving data when its last member has started. All arrays run over ranks, so a pass costs the same number of
numpy calls for 2 ranks and for 2048.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

from simulator.conditions import Conditions, Interruption, stream
from simulator.groups import GroupBook
from simulator.ops import Begin, Collective, Copy, End, Kernel, Pause, PointToPoint, Sync, Wait
from simulator.programs import STEP, program
from simulator.timeline import Slot, Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.config import Job
    from simulator.ops import Op
    from simulator.topology import Topology

    Array = NDArray[np.float64]

_LAUNCH_LATENCY_NS, _COMM_LATENCY_NS, _KERNEL_GAP_NS = 2_500.0, 4_000.0, 900.0
_HTOD, _DTOH = 22e9, 6e9  # bytes/s over PCIe, pinned and pageable


class Engine:
    """Simulates one job under given conditions."""

    def __init__(self, job: Job, topology: Topology, conditions: Conditions, *, free_network: bool = False) -> None:
        self.job, self.topology, self.conditions = job, topology, conditions
        self.book = GroupBook(job, topology, free=free_network)
        self.programs = [program(job, stage) for stage in range(job.pp)]
        n, total = job.ranks, job.total_steps
        self.host, self.device = np.zeros(n), np.zeros(n)
        self.busy_from, self.busy_until = np.zeros(n), np.zeros(n)
        self.streams: dict[str, Array] = defaultdict(lambda: np.zeros(n))
        self.ends: dict[str, Array] = defaultdict(lambda: np.zeros(n))
        self.stream_of: dict[str, str] = {}
        self.moving: dict[tuple[str, int], list[tuple[Array, Array]]] = defaultdict(list)
        self.sequence: dict[str, NDArray[np.int64]] = defaultdict(lambda: np.zeros(n, dtype=np.int64))
        self.timeline = Timeline(job, topology, conditions, self.book.groups)
        for name in ("step_start", "step_end", "exposed_wait", "exposed_transfer"):
            setattr(self.timeline, name, np.zeros((n, total)))
        self.interruptions = self._index_interruptions()

    def _index_interruptions(self) -> dict[tuple[int, int, int], list[Interruption]]:
        index = defaultdict(list)
        for one in self.conditions.interruptions:
            stage = one.rank // self.topology.stage_size
            at = min(int(one.where * len(self.programs[stage])), len(self.programs[stage]) - 1)
            index[stage, one.step, at].append(one)
        return index

    def run(self) -> Timeline:
        """All steps of the job; only profiled ones are recorded."""
        previous = self.device.copy()
        for step in range(self.job.total_steps):
            before = self.device.copy()
            self._run_step(step)
            if not self.job.sync_each_step:  # the host runs at most one step ahead
                self.host = np.maximum(self.host, previous)
            previous = before if step else previous
        return self.timeline

    def _run_step(self, step: int) -> None:
        first = self.job.first_profiled
        self.step, self.recording = step, first <= step < first + self.job.steps
        stages = range(self.job.pp)
        self.noise = [self._draw(step, stage) for stage in stages]
        self.transfer_noise = [stream(self.job.seed, "transfer", step, stage) for stage in stages]
        self.open: list[list[tuple[str, Array]]] = [[] for _ in stages]
        self.sends: dict[tuple[int, int], deque[tuple[Slot, Array]]] = defaultdict(deque)
        self.links: dict[tuple[int, int], Array | float] = defaultdict(float)
        self.posted: dict[int, Array] = {}
        cursor = [0] * self.job.pp
        while any(cursor[s] < len(self.programs[s]) for s in stages):
            moved = False
            for stage in stages:
                while cursor[stage] < len(self.programs[stage]) and self._advance(stage, cursor[stage]):
                    cursor[stage] += 1
                    moved = True
            if not moved:
                raise RuntimeError(f"step {step}: every stage waits for another one")

    def _draw(self, step: int, stage: int) -> NDArray[np.float32]:
        count, size = len(self.programs[stage]), self.topology.stage_size
        return stream(self.job.seed, "kernel", step, stage).standard_normal((count, 2, size), dtype=np.float32)

    def _advance(self, stage: int, at: int) -> bool:
        """Executes one operation of a stage; false while another stage has to come first."""
        op = self.programs[stage][at]
        size = self.topology.stage_size
        own = slice(stage * size, (stage + 1) * size)
        if isinstance(op, PointToPoint) and op.direction == "recv" and not self.sends[stage + op.peer, stage]:
            return False
        if isinstance(op, Collective) and op.group == "world" and self.job.pp > 1 and not self._gathered(stage, own):
            return False
        for one in self.interruptions.get((stage, self.step, at), ()):
            self._interrupt(one)
        noise = self.noise[stage][at]
        if isinstance(op, Kernel):
            self._kernel(op, own, stage, noise)
        elif isinstance(op, Collective):
            self._collective(op, own, stage, noise)
        elif isinstance(op, PointToPoint):
            self._point_to_point(op, own, stage, noise)
        elif isinstance(op, Copy):
            self._copy(op, own)
        else:
            self._host_side(op, own, stage)
        return True

    def _gathered(self, stage: int, own: slice) -> bool:
        """Whether all stages have come to the collective that spans them."""
        self.posted[stage] = self.host[own]
        if len(self.posted) == self.job.pp:
            return True
        return self.book.world_done(self.step)

    # -- one kind of operation each -----------------------------------------------------------------

    def _launch(self, own: slice, base_ns: float, jitter: NDArray[np.float32]) -> tuple[Array, Array, Array]:
        """Host start, launch and host end of an operator; moves the host on."""
        cost = base_ns * self.conditions.host[own, self.step]
        cost = cost * (1 + self.job.noise.host_jitter * np.abs(jitter))
        start = self.host[own].copy()
        self.host[own] = start + cost
        return start, start + 0.45 * cost, start + cost

    def _record(self, op: Op, own: slice, host: tuple[Array, Array, Array], **times: object) -> None:
        if self.recording:
            ranks = np.arange(own.start, own.stop)
            self.timeline.slots.append(
                Slot(self.step, op, ranks, host[0], host[2], host[1], **times)  # type: ignore[arg-type]
            )

    def _kernel(self, op: Kernel, own: slice, stage: int, noise: NDArray[np.float32]) -> None:
        host = self._launch(own, self.job.host_op_ns, noise[1])
        given = self.conditions
        work = given.work[own, self.step, op.micro] if op.power else np.ones(own.stop - own.start)
        if op.experts:
            work = work * given.tokens[own, self.step]
        scale = (given.compute if op.bound == "compute" else given.memory)[own, self.step]
        weight = self.job.stage_weight[stage] if self.job.stage_weight and op.power else 1.0
        jitter = 1 + self.job.noise.kernel_jitter * noise[0]
        start = np.maximum(self.device[own] + _KERNEL_GAP_NS, host[1] + _LAUNCH_LATENCY_NS)
        end = start + op.base_ns * weight * scale * work**op.power * jitter
        beside = np.minimum(end, self.busy_until[own]) - np.maximum(start, self.busy_from[own])
        end += self.job.noise.contention * np.maximum(0.0, beside)
        self.device[own] = end
        self._record(op, own, host, start=start, end=end, work=work)

    def _copy(self, op: Copy, own: slice) -> None:
        chosen = np.arange(own.start, own.stop)
        if op.when:
            chosen = chosen[self.conditions.pause[op.when][own, self.step] > 0]
        if not len(chosen):
            return
        begin = self.host[chosen]
        cost = 11_000.0 * self.conditions.host[chosen, self.step]
        start = np.maximum(self.device[chosen] + _KERNEL_GAP_NS, begin + 0.5 * cost + _LAUNCH_LATENCY_NS)
        end = start + 1_200 + 1e9 * op.bytes / (_HTOD if op.pinned else _DTOH)
        self.device[chosen] = end
        self.host[chosen] = begin + cost
        if self.recording:
            self.timeline.slots.append(Slot(self.step, op, chosen, begin, begin + cost, begin + 0.5 * cost, start, end))

    def _collective(self, op: Collective, own: slice, stage: int, noise: NDArray[np.float32]) -> None:
        if op.group == "world" and self.job.pp > 1:
            own = slice(0, self.job.ranks)
            if self.book.world_done(self.step):
                return
            self.book.mark_world(self.step)
            noise = np.concatenate([n[0] for n in self.noise], axis=-1)
        groups = self.book.at(op.group, stage)
        if groups.size == 1:
            return
        host = self._launch(own, self.job.host_comm_ns, noise[1])
        start = np.maximum(self.streams[op.stream][own], host[1] + _COMM_LATENCY_NS)
        start = np.maximum(start, self.device[own])
        if op.after:
            start = np.maximum(start, self.ends[op.after][own])
        whole = np.zeros(self.job.ranks)
        whole[own] = start
        arrive, end = self.book.transfer(op, groups, whole, self.conditions, self.step, self.transfer_noise[stage])
        self._occupy(op.stream, op.handle, own, arrive[own], end[own])
        self.sequence[op.group][own] += 1
        self._record(
            op,
            own,
            host,
            start=start,
            end=end[own],
            arrive=arrive[own],
            group=self.book.group_of(op.group)[own],
            seq=self.sequence[op.group][own].copy(),
            work=self.conditions.tokens[own, self.step] if op.collective == "all_to_allv" else None,
        )
        if op.wait_now:
            self._wait(op.handle, own)

    def _occupy(self, name: str, handle: str, own: slice, arrive: Array, end: Array) -> None:
        self.streams[name][own] = end
        self.ends[handle][own] = end
        self.stream_of[handle] = name
        self.moving[name, own.start].append((arrive, end))
        still = self.busy_until[own] > self.device[own]
        self.busy_from[own] = np.where(still, np.minimum(self.busy_from[own], arrive), arrive)
        self.busy_until[own] = np.maximum(end, self.busy_until[own])

    def _wait(self, handle: str, own: slice) -> None:
        before, end = self.device[own].copy(), self.ends[handle][own]
        stall, transfer = np.maximum(0.0, end - before), np.zeros(own.stop - own.start)
        key = (self.stream_of.get(handle, handle), own.start)
        for moved_from, moved_until in self.moving[key]:  # what the stream did while the device stood
            transfer += np.maximum(0.0, np.minimum(end, moved_until) - np.maximum(moved_from, before))
        self.moving[key] = [m for m in self.moving[key] if (m[1] > end).any()]
        self.timeline.exposed_transfer[own, self.step] += transfer
        self.timeline.exposed_wait[own, self.step] += stall - transfer
        self.device[own] = np.maximum(before, end)

    def _point_to_point(self, op: PointToPoint, own: slice, stage: int, noise: NDArray[np.float32]) -> None:
        host = self._launch(own, 0.6 * self.job.host_comm_ns, noise[1])
        ready = np.maximum(host[1] + _COMM_LATENCY_NS, self.device[own])
        self.sequence["p2p"][own] += 1
        ranks = np.arange(own.start, own.stop)
        slot = Slot(self.step, op, ranks, host[0], host[2], host[1])
        slot.seq, slot.group = self.sequence["p2p"][own].copy(), self.book.group_of("pp")[own]
        if op.direction == "send":
            self.sends[stage, stage + op.peer].append((slot, ready))
            return
        link = (stage + op.peer, stage)
        sent, sent_ready = self.sends[link].popleft()
        slot.start, sent.start = np.maximum(ready, self.links[link]), np.maximum(sent_ready, self.links[link])
        arrive = np.maximum(slot.start, sent.start)
        cost = self.book.hop_ns(op, sent.ranks, ranks, self.conditions, self.step, self.transfer_noise[stage])
        slot.arrive = sent.arrive = arrive
        slot.end = arrive + cost
        sent.end = slot.end - 0.4 * self.job.noise.end_skew_floor_ns * np.abs(noise[0])
        self.links[link] = slot.end
        self.ends["p2p"][own] = slot.end
        self.moving["p2p", own.start] = [(arrive, slot.end)]
        if self.recording:
            self.timeline.slots += [sent, slot]
        self._wait("p2p", own)

    def _host_side(self, op: Op, own: slice, stage: int) -> None:
        now = self.host[own].copy()
        if isinstance(op, Begin):
            self.open[stage].append((op.name, now))
            self.host[own] = now + 1_500
            if op.name == STEP:
                self.timeline.step_start[own, self.step] = now
        elif isinstance(op, End):
            _, begin = self.open[stage].pop()
            self.host[own] = now + 1_500
            self._record(op, own, (begin, begin, now + 700))
            if op.name == STEP:
                self.timeline.step_end[own, self.step] = np.maximum(now, self.device[own])
        elif isinstance(op, Wait):
            self._wait(op.handle, own)
        elif isinstance(op, Sync):
            self.host[own] = np.maximum(now, self.device[own]) + 6_000
            self._record(op, own, (now, now, self.host[own] - 2_000))
        elif isinstance(op, Pause):
            self.host[own] = now + self.conditions.pause[op.kind][own, self.step]

    def _interrupt(self, one: Interruption) -> None:
        begin = self.host[one.rank]
        if one.kind == "allocator":  # cudaFree waits for the device
            begin = max(begin, self.device[one.rank])
        self.host[one.rank] = begin + one.ns
        if self.recording and one.kind == "allocator":
            ranks, at = np.array([one.rank]), np.array([begin])
            self.timeline.slots.append(Slot(self.step, Pause("allocator"), ranks, at, at + one.ns, note="allocator"))
