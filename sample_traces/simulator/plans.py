"""How a scenario becomes a job with faults, and what that job would be without them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from simulator import faults as f

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulator.config import Job
    from simulator.faults import Scene, Truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to simulate, and the verdict that an honest diagnosis should reach."""

    job: Job
    faults: list[Callable[[Scene], Truth]] = field(default_factory=list)
    without: Job | None = None  # the job without the fault, where the fault is the job's own shape
    job_truth: list[f.Truth] = field(default_factory=list)
    bottleneck: str = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """An entry: one line of meaning, defaults of the job, default parameters, and how to plan it."""

    meaning: str
    build: Callable[[Job, dict[str, float]], Plan]
    parameters: Mapping[str, float] = field(default_factory=dict)
    job: Mapping[str, object] = field(default_factory=dict)


def faulty(*made: Callable[[Job, dict[str, float]], Callable[[Scene], Truth]], bottleneck: str) -> Callable[..., Plan]:
    """A plan builder for faults made from the job and the parameters."""

    def build(job: Job, p: dict[str, float]) -> Plan:
        return Plan(job=job, faults=[m(job, p) for m in made], bottleneck=bottleneck)

    return build


def rank_of(job: Job, p: dict[str, float]) -> int:
    """The rank that a fault hits."""
    return min(int(p.get("rank", job.ranks - 3)), job.ranks - 1)


def host_of(job: Job, p: dict[str, float]) -> int:
    """The host that a fault hits."""
    hosts = -(-job.ranks // job.cluster.gpus_per_host)
    return min(int(p.get("host", hosts - 1)), hosts - 1)


def some_steps(job: Job, p: dict[str, float]) -> list[int]:
    """A share of the steps, evenly spread."""
    every = max(1, round(1 / p["share"]))
    return [s for s in range(job.total_steps) if s % every == 1 % every]


def tiny_buckets(job: Job, p: dict[str, float]) -> Plan:
    """Gradients in many small buckets instead of one a layer."""
    job = replace(job, layout="ddp", buckets_per_layer=int(p["buckets"]))
    truth = f.Truth("latency_bound", magnitude=p["buckets"], what="many tiny gradient buckets")
    return Plan(job=job, without=replace(job, buckets_per_layer=1), job_truth=[truth], bottleneck="network")


def wrong_protocol(job: Job, p: dict[str, float]) -> Plan:
    """One kind of collective keeps only a share of its bandwidth."""
    kind = "allreduce" if job.layout not in {"fsdp", "hsdp"} else "_reduce_scatter_base"
    slow = replace(job, cluster=replace(job.cluster, protocol_factor={kind: p["factor"]}))
    truth = f.Truth("wrong_protocol", magnitude=p["factor"], what=f"{kind} far below the other collectives")
    return Plan(job=slow, without=job, job_truth=[truth], bottleneck="network")


def oversubscribed(job: Job, p: dict[str, float]) -> Plan:
    """Bandwidth between leaves divided by a ratio."""
    slow = replace(job, cluster=replace(job.cluster, oversubscription=p["ratio"]))
    truth = f.Truth("oversubscription", magnitude=p["ratio"], what="uplinks of the leaves are oversubscribed")
    return Plan(job=slow, without=job, job_truth=[truth], bottleneck="network")


def bubble(job: Job, p: dict[str, float]) -> Plan:
    """A pipeline with few micro-batches."""
    few = replace(job, model=replace(job.model, micro_batches=int(p["micro_batches"])))
    return Plan(
        job=few, bottleneck="pipeline", job_truth=[f.Truth("stage_imbalance", what="few micro-batches: bubble only")]
    )


def heavy_stage(job: Job, p: dict[str, float]) -> Plan:
    """A last stage with more work."""
    heavy = replace(job, stage_weight=(1.0,) * (job.pp - 1) + (p["factor"],))
    size = job.ranks // job.pp
    truth = f.Truth(
        "stage_imbalance", list(range(job.ranks - size, job.ranks)), magnitude=p["factor"], what="last stage"
    )
    return Plan(job=heavy, without=job, job_truth=[truth], bottleneck="imbalance")


def slow_network(job: Job, p: dict[str, float]) -> Plan:
    """All ports at a share of their rate."""
    slow = replace(job, cluster=replace(job.cluster, nic=job.cluster.nic * p["share"]))
    truth = f.Truth("bandwidth_bound", magnitude=p["share"], what="every port carries a share of its rate")
    return Plan(job=slow, without=job, job_truth=[truth], bottleneck="network")


def small_model(job: Job, _: dict[str, float]) -> Plan:
    """Nothing but launches that take longer than kernels."""
    return Plan(
        job=job, bottleneck="host", job_truth=[f.Truth("host_slow", what="kernels shorter than their launches")]
    )


def missing_ranks(job: Job, p: dict[str, float]) -> Plan:
    """A slow GPU seen through incomplete traces."""
    count = max(1, int(job.ranks * p["missing"]))
    drop = tuple(range(1, job.ranks, max(1, job.ranks // count)))[:count]
    job = replace(job, drop_ranks=drop, sequence_numbers=False, step_annotations=False)
    rank = next(r for r in range(job.ranks - 1, -1, -1) if r not in drop)
    truth = f.Truth("data_quality", list(drop), what="traces missing, no Seq, no step annotations")
    return Plan(job=job, faults=[f.gpu_slow(rank, p["factor"])], job_truth=[truth], bottleneck="straggler")


def noisy(job: Job, p: dict[str, float]) -> Plan:
    """A healthy job with noisy steps."""
    return Plan(job=replace(job, noise=replace(job.noise, step_noise=p["noise"])))


def spread(job: Job, p: dict[str, float]) -> Plan:
    """A healthy job with unequal GPUs."""
    return Plan(job=replace(job, noise=replace(job.noise, gpu_spread=p["spread"])))
