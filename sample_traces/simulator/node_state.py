"""What the exporters of a node would see at a moment of the run: clocks, power, traffic, CPU time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from simulator.conditions import stream
from simulator.ops import DTYPE_BYTES, Collective, PointToPoint
from simulator.programs import program
from simulator.topology import wire_factor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.timeline import Timeline

CORES = 8  # exported per host; a real one has more, all alike
_MAX_CLOCK = {"H100": 1980, "A100": 1410}
_IDLE_W, _SPIN_W, _BUSY_W = 95.0, 265.0, 655.0


@dataclass(frozen=True, slots=True)
class Gpu:
    """State of one GPU at a moment. Counters run since the driver was loaded."""

    index: int
    uuid: str
    bus: str
    name: str
    clock_mhz: int
    max_clock_mhz: int
    temperature: int
    power_w: float
    thermal: bool
    thermal_us: int  # counter
    busy: float


class NodeState:
    """Reads a timeline as an exporter on one of its hosts would."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.job = timeline, timeline.job
        self.topology, self.given = timeline.topology, timeline.conditions
        self.end_ns = float(timeline.step_end.max())

    @cached_property
    def busy(self) -> NDArray[np.float64]:
        """Share of each step that the device does not stand waiting, as [rank, step]."""
        steps = np.maximum(1.0, self.timeline.step_ns())[None, :]
        lost = self.timeline.exposed_wait + self.timeline.exposed_transfer + self.given.pause["loader"]
        return np.clip(1 - lost / steps, 0.02, 1.0)

    @cached_property
    def sent_bytes(self) -> NDArray[np.float64]:
        """Bytes that one rank of each host sends to other hosts in a step: [host, by RDMA port or by socket]."""
        total = np.zeros((self.topology.hosts, 2))
        for op in program(self.job, 0):
            if isinstance(op, Collective):
                groups = self.topology.groups(op.group, 0)
                if groups.hosts > 1:
                    size = wire_factor(op.collective, groups.size) * op.nelems * DTYPE_BYTES[op.dtype]
                    for members in groups.members:
                        mine = np.unique(self.topology.host_of[members])
                        total[mine, int(self.on_sockets(mine))] += size / self.ranks_of_host
            elif isinstance(op, PointToPoint) and op.direction == "send":
                for host in range(self.topology.hosts):
                    total[host, int(host in self.given.socket_hosts)] += op.nelems * DTYPE_BYTES[op.dtype]
        return total

    @property
    def ranks_of_host(self) -> int:
        """Ranks on a host."""
        return min(self.job.cluster.gpus_per_host, self.job.ranks)

    def on_sockets(self, hosts: NDArray[np.int64]) -> bool:
        """Whether a group over these hosts uses sockets."""
        return bool(self.given.socket_hosts & set(hosts.tolist()))

    def step_at(self, t: float) -> int:
        """The step that runs at a time."""
        starts = self.timeline.step_start.min(axis=0)
        return int(np.clip(np.searchsorted(starts, t, side="right") - 1, 0, len(starts) - 1))

    def steps_done(self, t: float) -> float:
        """Steps finished at a time, with the fraction of the running one."""
        return float(np.interp(t, self.timeline.step_start.min(axis=0), np.arange(self.job.total_steps)))

    def running(self, t: float) -> bool:
        """Whether the job runs."""
        return 0.0 <= t <= self.end_ns

    def gpu(self, rank: int, t: float) -> Gpu:
        """The GPU of a rank."""
        step, host = self.step_at(t), int(self.topology.host_of[rank])
        name = self.given.gpu_names[host]
        top = next((v for k, v in _MAX_CLOCK.items() if k in name), 1980)
        local = rank % self.job.cluster.gpus_per_host
        rng = stream(self.job.seed, "gpu-metric", rank, int(t // 1e8))
        ratio = float(self.given.clock_ratio[rank, step])
        hot = ratio < 0.98
        running = self.running(t)
        busy = float(self.busy[rank, step]) if running else 0.0
        power = _IDLE_W + busy * (_BUSY_W - _SPIN_W) * ratio**2 + (_SPIN_W - _IDLE_W if running else 0)
        held = self.given.clock_ratio[rank] < 0.98
        hot_ns = float(np.where(held, self.timeline.step_ns(), 0.0)[: step + 1].sum()) if hot or held.any() else 0.0
        digest = zlib.crc32(f"{self.job.seed}/{rank}".encode())
        return Gpu(
            index=local,
            uuid=f"GPU-{digest:08x}-{host:04x}-4{local:03x}-9d51-{digest:08x}{rank:04x}",
            bus=("18", "2A", "3A", "5D", "9A", "AB", "BA", "DB")[local % 8],
            name=name,
            clock_mhz=int(round((top * ratio if running else 345) / 15) * 15),
            max_clock_mhz=top,
            temperature=int((88 if hot else 61 if running else 34) + rng.integers(-2, 3)),
            power_w=float(power + 6 * rng.standard_normal()),
            thermal=hot and running,
            thermal_us=int(hot_ns / 1000),
            busy=busy,
        )

    def node(self, host: int, t: float) -> dict[str, float]:
        """CPU and traffic counters of a host, as plain numbers. Seconds, bytes, counts."""
        ranks = np.nonzero(self.topology.host_of == host)[0]
        done, seconds = self.steps_done(min(t, self.end_ns)), min(max(t, 0.0), self.end_ns) / 1e9
        slow_host = float(self.given.host[ranks].mean())
        stall = float(self.given.pause["loader"][ranks][:, : int(done) + 1].mean(axis=0).sum()) / 1e9
        rng, socket_bytes = stream(self.job.seed, "node-metric", host, int(t // 1e8)), float(self.sent_bytes[host, 1])
        extra = min(0.9, 0.35 * max(0.0, slow_host - 1.15))
        waiting = min(seconds, stall) if stall > 0.03 * seconds else 0.0
        return {
            "user": 41_200.0 + 3_000 * host + seconds * (0.18 + extra) * CORES,
            "system": 6_300.0 + 100 * host + seconds * 0.05 * CORES,
            "iowait": 55.0 + 0.6 * waiting * CORES,
            "idle": 912_000.0 + max(0.0, t / 1e9) * CORES - seconds * (0.23 + extra) * CORES - 0.6 * waiting * CORES,
            "load1": (1 + extra * 14) * CORES * 0.3 + 0.2 * float(rng.random()),
            "psi_cpu": 120.0 + seconds * (0.004 + extra),
            "psi_io": 31.0 + 0.8 * waiting,
            "disk_busy": 2_200.0 + 0.9 * waiting + 0.01 * seconds,
            "disk_read": 8.1e11 + 2.0e8 * seconds + 9e8 * waiting,
            "port": 3.1e13 + done * float(self.sent_bytes[host, 0]),
            "eth": 4.4e11 + (done * socket_bytes * len(ranks) if socket_bytes else 2.1e5 * seconds),
            "foreign": seconds * self.given.foreign.get(host, 0.0),
            "offset": float(self.given.clock_offset_ns[host]) / 1e9,
        }

    def port(self, host: int, local: int, t: float) -> dict[str, float]:
        """Rate and error counters of a port."""
        ranks = np.nonzero(self.topology.host_of == host)[0]
        rank = int(ranks[min(local, len(ranks) - 1)])
        share = float(self.given.nic[rank, self.step_at(t)])
        # A port that trains at a lower speed reports it: 400, 200 or 100 Gbit/s.
        other = self.given.socket_hosts or host in self.given.foreign
        gbits = 400 if share > 0.75 or other else 200 if share > 0.4 else 100
        lossy = rank in self.given.tail
        done = self.steps_done(min(t, self.end_ns))
        return {
            "rate": gbits * 1e9 / 8,
            "symbol_errors": 3.0 + (round(done * 7) if lossy else 0),
            "receive_errors": 1.0 + (round(done * 2) if lossy else 0),
            "wait": 8.2e6 + done * (9e5 if gbits < 400 else 4e4),
        }
