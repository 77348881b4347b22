"""What is simulated: the model, the cluster, the noise and the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Layout = Literal["ddp", "fsdp", "hsdp", "dp_tp", "dp_tp_pp", "moe"]
Era = Literal["2.13", "2.4"]
LAYOUTS: tuple[Layout, ...] = ("ddp", "fsdp", "hsdp", "dp_tp", "dp_tp_pp", "moe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A transformer, as far as kernel times need it. Sizes are elements."""

    layers: int = 4  # per pipeline stage
    hidden: int = 4096
    tokens: int = 6144  # per micro-batch and data-parallel rank
    vocab: int = 32000
    micro_batches: int = 1
    detail: Literal["fine", "coarse"] = "fine"  # fine: about 24 kernels a layer, coarse: 6
    head: bool = True  # embedding and loss head


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Rates of the hardware. Bandwidths are bus bandwidths in bytes/s, latencies in ns."""

    gpu: str = "NVIDIA H100 80GB HBM3"
    gpus_per_host: int = 4
    hosts_per_leaf: int = 4
    flops: float = 450e12
    hbm: float = 2.4e12
    nvlink: float = 220e9
    nic: float = 42e9  # what a 400 Gbit/s port carries in a ring
    alpha_intra_ns: float = 14_000.0
    alpha_inter_ns: float = 24_000.0
    alpha_hop_ns: float = 4_500.0  # for each host of the group beyond the second
    oversubscription: float = 1.0  # bandwidth between leaves is nic / this
    protocol_factor: dict[str, float] = field(default_factory=dict)  # collective -> share of bandwidth kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Natural variation; every value is a ratio unless the name carries a unit."""

    gpu_spread: float = 0.015
    step_noise: float = 0.01  # scale of a Student-t with four degrees of freedom
    kernel_jitter: float = 0.01
    pause_probability: float = 0.02  # per rank and step
    pause_mean: float = 0.15  # of a typical step
    host_jitter: float = 0.12
    end_skew: tuple[float, float] = (0.03, 0.06)  # of the transfer time
    end_skew_cap_ns: float = 350_000.0
    end_skew_floor_ns: float = 4_000.0
    transfer_jitter: float = 0.02
    contention: float = 0.02  # compute slows by this while communication runs beside it
    clock_offset_ns: float = 5e6
    clock_drift_ppm: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: who takes part, what is profiled, and what the loop looks like."""

    layout: Layout = "fsdp"
    ranks: int = 8
    tp: int = 1
    pp: int = 1
    shard: int = 0  # hsdp: ranks of one shard group; 0 means half of all ranks
    model: Model = field(default_factory=Model)
    cluster: Cluster = field(default_factory=Cluster)
    noise: Noise = field(default_factory=Noise)
    steps: int = 8  # profiled
    job_steps: int = 0  # of the whole job; 0 means the profiled ones plus wait and warm-up
    seed: int = 1
    era: Era = "2.13"
    sync_each_step: bool = True  # loss.item() at the end of every step
    buckets_per_layer: int = 1  # ddp
    host_op_ns: float = 14_000.0  # Python and dispatcher per kernel
    host_comm_ns: float = 60_000.0  # the same per collective
    loader_ns: float = 260_000.0
    stage_weight: tuple[float, ...] = ()  # relative work of each pipeline stage
    drop_ranks: tuple[int, ...] = ()  # traces that nobody kept
    step_annotations: bool = True
    sequence_numbers: bool | None = None  # None: as the torch version does it

    @property
    def total_steps(self) -> int:
        """Steps of the whole job."""
        return self.job_steps or self.steps + 4

    @property
    def first_profiled(self) -> int:
        """Number of the first profiled step."""
        return max(0, self.total_steps - self.steps - 1)

    @property
    def dp(self) -> int:
        """Ranks that see different data."""
        return self.ranks // (self.tp * self.pp)
