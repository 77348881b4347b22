"""What differs between ranks and steps: nature first, faults on top."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.config import Job
    from simulator.topology import Topology

PAUSES = ("loader", "compile", "checkpoint", "rank0")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator for one purpose. Adding a fault must not shift anybody else's draws."""
    return np.random.default_rng([seed, *(zlib.crc32(str(n).encode()) for n in names)])


@dataclass(slots=True)
class Interruption:
    """Host time lost in the middle of a step. where is the share of the program done before it."""

    rank: int
    step: int
    ns: float
    where: float
    kind: str  # gc, hiccup, allocator


@dataclass(slots=True)
class Conditions:
    """Multipliers and delays as [rank, step] unless said otherwise."""

    compute: NDArray[np.float64]  # kernels bound by arithmetic
    memory: NDArray[np.float64]  # kernels bound by memory
    host: NDArray[np.float64]  # time of the launching thread
    nic: NDArray[np.float64]  # share of the port's bandwidth
    nvlink: NDArray[np.float64]
    work: NDArray[np.float64]  # sequence length [rank, step, micro-batch]
    tokens: NDArray[np.float64]  # tokens routed to a rank's experts, relative
    pause: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    interruptions: list[Interruption] = field(default_factory=list)
    tail: dict[int, tuple[float, float, float]] = field(default_factory=dict)  # rank -> probability, low, high
    congestion: tuple[float, float, float] | None = None  # probability, low, high for groups between hosts
    clock_offset_ns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # [host]
    clock_drift_ppm: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    gpu_names: list[str] = field(default_factory=list)  # [host]
    clock_ratio: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # SM clock [rank, step]
    socket_hosts: frozenset[int] = frozenset()  # their processes find no RDMA device
    foreign: dict[int, float] = field(default_factory=dict)  # host -> bytes/s of others that each port receives


def natural(job: Job, topology: Topology, typical_step_ns: float) -> Conditions:
    """Conditions of a run in which nothing is wrong."""
    ranks, steps, noise = job.ranks, job.total_steps, job.noise
    natural_speed = np.exp(noise.gpu_spread * stream(job.seed, "gpu").standard_normal(ranks))[:, None]
    wobble = 1 + noise.step_noise * np.abs(stream(job.seed, "step").standard_t(4, size=(ranks, steps)))
    one = np.ones((ranks, steps))
    rng = stream(job.seed, "loader")
    conditions = Conditions(
        compute=natural_speed * wobble,
        memory=np.exp(0.5 * np.log(natural_speed)) * wobble,
        host=np.exp(0.04 * stream(job.seed, "host").standard_normal((ranks, 1))) * one,
        nic=np.exp(-0.01 * np.abs(stream(job.seed, "nic").standard_normal((ranks, 1)))) * one,
        nvlink=one.copy(),
        work=np.ones((ranks, steps, job.model.micro_batches)),
        tokens=np.ones((ranks, steps)),
        pause={k: np.zeros((ranks, steps)) for k in PAUSES},
        clock_ratio=one.copy(),
        gpu_names=[job.cluster.gpu] * topology.hosts,
    )
    conditions.pause["loader"][:] = job.loader_ns * np.exp(0.15 * rng.standard_normal((ranks, steps)))
    if job.layout == "moe":
        spread = stream(job.seed, "tokens").standard_normal((ranks, steps))
        conditions.tokens[:] = np.exp(0.03 * spread)
    _hiccups(conditions, job, typical_step_ns)
    rng = stream(job.seed, "clock")
    conditions.clock_offset_ns = noise.clock_offset_ns * rng.standard_normal(topology.hosts)
    conditions.clock_drift_ppm = noise.clock_drift_ppm * rng.standard_normal(topology.hosts)
    return conditions


def _hiccups(conditions: Conditions, job: Job, typical_step_ns: float) -> None:
    rng, noise = stream(job.seed, "pause"), job.noise
    hit = rng.random((job.ranks, job.total_steps)) < noise.pause_probability
    length = rng.exponential(noise.pause_mean * typical_step_ns, size=hit.shape)
    where = rng.random(hit.shape)
    for rank, step in zip(*np.nonzero(hit), strict=True):
        conditions.interruptions.append(
            Interruption(int(rank), int(step), float(length[rank, step]), float(where[rank, step]), "hiccup")
        )
