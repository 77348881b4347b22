"""Faults: each changes the conditions of a run and says what an honest diagnosis should name.

Causes are words of the report's vocabulary. Magnitudes are ratios unless the name carries a unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from simulator.conditions import Interruption, stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.conditions import Conditions
    from simulator.config import Job
    from simulator.topology import Topology

ALL_STEPS = "all"


@dataclass(frozen=True, slots=True)
class Truth:
    """What was done: the answer key for one fault."""

    cause: str
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    steps: list[int] | str = ALL_STEPS
    persistence: str = "persistent"
    magnitude: float = 0.0
    what: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault may look at."""

    job: Job
    topology: Topology
    given: Conditions
    step_ns: float  # of the run without the fault

    def host(self, index: int) -> list[int]:
        """Ranks of a host."""
        return [int(r) for r in np.nonzero(self.topology.host_of == index)[0]]

    def name(self, index: int) -> str:
        """Name of a host."""
        return self.topology.host_names[index]

    def place(self, ranks: list[int]) -> list[str]:
        """Hosts of some ranks."""
        return [self.name(int(h)) for h in np.unique(self.topology.host_of[ranks])]

    def rng(self, name: str) -> np.random.Generator:
        """Draws of one fault."""
        return stream(self.job.seed, "fault", name)

    @property
    def profiled(self) -> slice:
        """Steps that the traces show."""
        return slice(self.job.first_profiled, self.job.first_profiled + self.job.steps)


def gpu_slow(rank: int, factor: float, *, steps: slice | list[int] | None = None) -> Callable[[Scene], Truth]:
    """A GPU whose SM clock is held down: arithmetic slows by the factor, memory traffic by a third of it."""

    def apply(scene: Scene) -> Truth:
        given, chosen = scene.given, slice(None) if steps is None else steps
        given.compute[rank, chosen] *= factor
        given.memory[rank, chosen] *= 1 + (factor - 1) * 0.35
        given.clock_ratio[rank, chosen] /= factor
        listed = _listed(scene, steps)
        kind = "persistent" if steps is None or isinstance(steps, slice) else "transient"
        what = "SM clock held down"
        return Truth("gpu_slow", [rank], scene.place([rank]), listed, kind, factor, what)

    return apply


def _listed(scene: Scene, steps: slice | list[int] | None) -> list[int] | str:
    if steps is None:
        return ALL_STEPS
    every = range(scene.job.total_steps)
    return list(every)[steps] if isinstance(steps, slice) else [int(s) for s in steps]


def hbm_slow(rank: int, factor: float) -> Callable[[Scene], Truth]:
    """A GPU whose memory is slow: only kernels bound by memory suffer."""

    def apply(scene: Scene) -> Truth:
        scene.given.memory[rank] *= factor
        return Truth("gpu_memory_slow", [rank], scene.place([rank]), magnitude=factor, what="slow device memory")

    return apply


def node_slow(host: int, factor: float) -> Callable[[Scene], Truth]:
    """All GPUs of a host throttle: power or cooling of the node."""

    def apply(scene: Scene) -> Truth:
        ranks = scene.host(host)
        for rank in ranks:
            gpu_slow(rank, factor)(scene)
        return Truth("gpu_slow", ranks, [scene.name(host)], magnitude=factor, what="all GPUs of the node throttle")

    return apply


def host_busy(host: int, factor: float) -> Callable[[Scene], Truth]:
    """Another process takes CPU time on a host: every launch takes longer."""

    def apply(scene: Scene) -> Truth:
        ranks = scene.host(host)
        scene.given.host[ranks] *= factor
        return Truth("host_slow", ranks, [scene.name(host)], magnitude=factor, what="CPU contention on the host")

    return apply


def loader(ranks: list[int] | str, share: float, probability: float = 1.0) -> Callable[[Scene], Truth]:
    """Batches come late. ranks is a list, 'all', or 'random' for a different rank in every step."""

    def apply(scene: Scene) -> Truth:
        job, rng = scene.job, scene.rng("loader")
        delay = share * scene.step_ns * (0.8 + 0.4 * rng.random((job.ranks, job.total_steps)))
        hit = np.zeros((job.ranks, job.total_steps), dtype=bool)
        if ranks == "random":
            hit[rng.integers(0, job.ranks, job.total_steps), np.arange(job.total_steps)] = True
        elif ranks == "all":
            hit[:] = True
            delay[:] = delay.mean(axis=0, keepdims=True)
        else:
            hit[ranks] = True
        hit &= rng.random(job.total_steps)[None, :] < probability
        scene.given.pause["loader"] += np.where(hit, delay, 0.0)
        named = [] if isinstance(ranks, str) else ranks
        kind = "rotating" if ranks == "random" else "persistent"
        hosts = scene.place(named) if named else []
        return Truth("input_stall", named, hosts, ALL_STEPS, kind, share, "the data loader delivers late")

    return apply


def gc(every: int, low_ms: float, high_ms: float) -> Callable[[Scene], Truth]:
    """Garbage collection on random ranks, about once in so many steps of each rank."""

    def apply(scene: Scene) -> Truth:
        job, rng = scene.job, scene.rng("gc")
        hit = rng.random((job.ranks, job.total_steps)) < 1 / every
        for rank, step in zip(*np.nonzero(hit), strict=True):
            ns = 1e6 * (low_ms + (high_ms - low_ms) * rng.random())
            where = float(rng.uniform(0.1, 0.8))
            scene.given.interruptions.append(Interruption(int(rank), int(step), ns, where, "gc"))
        seen = np.nonzero(hit[:, scene.profiled].any(axis=0))[0] + scene.job.first_profiled
        steps = [int(s) for s in seen]
        return Truth("gc_pause", [], [], steps, "rotating", (low_ms + high_ms) / 2, "Python garbage collection")

    return apply


def allocator(rank: int, every: int, low_ms: float, high_ms: float) -> Callable[[Scene], Truth]:
    """The caching allocator runs out, frees blocks and allocates again."""

    def apply(scene: Scene) -> Truth:
        rng, steps = scene.rng("allocator"), []
        for step in range(scene.job.total_steps):
            if (step + rank) % every == 0:
                ns = 1e6 * (low_ms + (high_ms - low_ms) * rng.random())
                where = float(rng.uniform(0.2, 0.7))
                scene.given.interruptions.append(Interruption(rank, step, ns, where, "allocator"))
                steps.append(step)
        kind = "persistent" if every == 1 else "transient"
        return Truth(
            "allocator", [rank], scene.place([rank]), steps, kind, (low_ms + high_ms) / 2, "cudaMalloc retries"
        )

    return apply


def sequence_lengths(cv: float) -> Callable[[Scene], Truth]:
    """Documents of random length: every data-parallel rank has other work in every micro-batch."""

    def apply(scene: Scene) -> Truth:
        given, job = scene.given, scene.job
        shape = (job.dp, *given.work.shape[1:])
        draws = np.exp(cv * scene.rng("length").standard_normal(shape) - cv * cv / 2)
        given.work *= draws[scene.topology.data_index()]
        return Truth("workload_imbalance", persistence="rotating", magnitude=cv, what="sequence lengths vary")

    return apply


def long_documents(data_rank: int, factor: float) -> Callable[[Scene], Truth]:
    """One data-parallel rank is always fed longer documents."""

    def apply(scene: Scene) -> Truth:
        ranks = [int(r) for r in np.nonzero(scene.topology.data_index() == data_rank)[0]]
        scene.given.work[ranks] *= factor
        hosts = scene.place(ranks)
        return Truth("workload_imbalance", ranks, hosts, magnitude=factor, what="one data shard has longer documents")

    return apply


def experts(peak: float, rank: int | None = None) -> Callable[[Scene], Truth]:
    """Routing sends most tokens to one expert rank: a fixed one, or another in every step."""

    def apply(scene: Scene) -> Truth:
        tokens, job = scene.given.tokens, scene.job
        hot = scene.rng("experts").integers(0, job.ranks, job.total_steps) if rank is None else rank
        tokens[hot, np.arange(job.total_steps)] *= peak
        tokens /= tokens.mean(axis=0, keepdims=True)
        named = [] if rank is None else [rank]
        kind = "rotating" if rank is None else "persistent"
        hosts = scene.place(named) if named else []
        return Truth("moe_imbalance", named, hosts, ALL_STEPS, kind, peak, "experts receive unequal token counts")

    return apply


def checkpoint(seconds: float) -> Callable[[Scene], Truth]:
    """All ranks write a checkpoint in the middle of the profiled steps."""

    def apply(scene: Scene) -> Truth:
        step = scene.job.first_profiled + scene.job.steps // 2
        scene.given.pause["checkpoint"][:, step] = 1e9 * seconds
        return Truth("checkpoint", [], [], [step], "transient", seconds, "a checkpoint is written")

    return apply


def warm_up(count: int, factor: float) -> Callable[[Scene], Truth]:
    """The first profiled steps compile and tune on all ranks."""

    def apply(scene: Scene) -> Truth:
        first = scene.job.first_profiled
        steps = list(range(first, first + count))
        for k, step in enumerate(steps):
            scene.given.pause["compile"][:, step] = scene.step_ns * factor / (k + 1)
        return Truth("warm_up", [], [], steps, "transient", factor, "first steps compile")

    return apply


def rank0_work(ms: float) -> Callable[[Scene], Truth]:
    """Rank 0 logs and aggregates at the end of every step."""

    def apply(scene: Scene) -> Truth:
        scene.given.pause["rank0"][0] = 1e6 * ms
        return Truth("host_slow", [0], scene.place([0]), magnitude=ms, what="extra host work on rank 0")

    return apply


def other_gpus(hosts: list[int], name: str, factor: float) -> Callable[[Scene], Truth]:
    """Some hosts have an older kind of GPU."""

    def apply(scene: Scene) -> Truth:
        ranks = [r for h in hosts for r in scene.host(h)]
        scene.given.compute[ranks] *= factor
        scene.given.memory[ranks] *= 1 + 0.7 * (factor - 1)
        for host in hosts:
            scene.given.gpu_names[host] = name
        return Truth(
            "mixed_hardware", ranks, [scene.name(h) for h in hosts], magnitude=factor, what=f"hosts with {name}"
        )

    return apply


def clocks_off(offset_ms: float, drift_ppm: float) -> Callable[[Scene], Truth]:
    """Host clocks are far apart. The diagnosis must not change; no step gets slower."""

    def apply(scene: Scene) -> Truth:
        rng, hosts = scene.rng("clocks"), scene.topology.hosts
        scene.given.clock_offset_ns = 1e6 * offset_ms * rng.choice([-1.0, 1.0], hosts) * (0.6 + 0.4 * rng.random(hosts))
        scene.given.clock_drift_ppm = drift_ppm * rng.standard_normal(hosts)
        return Truth("data_quality", magnitude=offset_ms, what="host clocks disagree")

    return apply
