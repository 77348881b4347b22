"""The catalogue of runs."""

from __future__ import annotations

from dataclasses import replace

from simulator import faults as f
from simulator import network_faults as nf
from simulator.config import Cluster, Model
from simulator.plans import (
    Plan,
    Scenario,
    bubble,
    faulty,
    heavy_stage,
    host_of,
    missing_ranks,
    noisy,
    oversubscribed,
    rank_of,
    slow_network,
    small_model,
    some_steps,
    spread,
    tiny_buckets,
    wrong_protocol,
)

PIPELINE = {
    "layout": "dp_tp_pp",
    "ranks": 16,
    "tp": 2,
    "pp": 4,
    "model": Model(layers=2, hidden=8192, micro_batches=8, head=False),
}
_MOE = {"layout": "moe"}
_SMALL = {"layout": "ddp", "model": Model(layers=6, hidden=512, tokens=1024, vocab=4096)}
_LEAVES = {"ranks": 32, "cluster": Cluster(hosts_per_leaf=3), "layout": "hsdp", "shard": 8}
_OVERLAP = {"model": Model(tokens=12288)}
_BIG = "straggler"

SCENARIOS: dict[str, Scenario] = {
    "healthy": Scenario(meaning="nothing is wrong", build=lambda job, _: Plan(job=job)),
    "healthy_spread": Scenario(meaning="healthy, GPUs differ by nature", build=spread, parameters={"spread": 0.03}),
    "healthy_noisy": Scenario(meaning="healthy, steps vary a lot", build=noisy, parameters={"noise": 0.1}),
    "slow_gpu": Scenario(
        meaning="one GPU throttles",
        build=faulty(lambda j, p: f.gpu_slow(rank_of(j, p), p["factor"]), bottleneck=_BIG),
        parameters={"factor": 1.3},
    ),
    "slow_memory": Scenario(
        meaning="the memory of one GPU is slow",
        build=faulty(lambda j, p: f.hbm_slow(rank_of(j, p), p["factor"]), bottleneck=_BIG),
        parameters={"factor": 1.5},
    ),
    "slow_node": Scenario(
        meaning="all GPUs of one host throttle",
        build=faulty(lambda j, p: f.node_slow(host_of(j, p), p["factor"]), bottleneck=_BIG),
        parameters={"factor": 1.35},
    ),
    "two_stragglers": Scenario(
        meaning="two GPUs throttle",
        build=faulty(
            lambda _, p: f.gpu_slow(1, p["factor"]),
            lambda j, p: f.gpu_slow(rank_of(j, p), 1 + 0.8 * (p["factor"] - 1)),
            bottleneck=_BIG,
        ),
        parameters={"factor": 1.25},
    ),
    "few_slow_gpus": Scenario(
        meaning="one GPU in a hundred throttles",
        build=lambda job, p: Plan(
            job=job,
            faults=[f.gpu_slow(r, p["factor"]) for r in range(5, job.ranks, 100)],
            bottleneck=_BIG,
        ),
        parameters={"factor": 1.1},
        job={"ranks": 128, "model": Model(detail="coarse")},
    ),
    "transient_gpu": Scenario(
        meaning="one GPU is slow in some steps",
        build=faulty(lambda j, p: f.gpu_slow(rank_of(j, p), p["factor"], steps=some_steps(j, p)), bottleneck=_BIG),
        parameters={"factor": 1.5, "share": 0.34},
    ),
    "onset": Scenario(
        meaning="one GPU becomes slow in the middle",
        build=faulty(
            lambda j, p: f.gpu_slow(rank_of(j, p), p["factor"], steps=slice(j.first_profiled + j.steps // 2, None)),
            bottleneck=_BIG,
        ),
        parameters={"factor": 1.3},
    ),
    "busy_host": Scenario(
        meaning="another process takes CPU time on one host",
        build=faulty(lambda j, p: f.host_busy(host_of(j, p), p["factor"]), bottleneck="host"),
        parameters={"factor": 4.0},
        job={"host_op_ns": 250_000.0, "host_comm_ns": 400_000.0},
    ),
    "loader_one": Scenario(
        meaning="the loader of one rank is slow",
        build=faulty(lambda j, p: f.loader([rank_of(j, p)], p["share"]), bottleneck="input"),
        parameters={"share": 0.5},
    ),
    "loader_random": Scenario(
        meaning="the loader of another rank is slow in every step",
        build=faulty(lambda _, p: f.loader("random", p["share"]), bottleneck="input"),
        parameters={"share": 0.6},
    ),
    "input_bound": Scenario(
        meaning="the loaders of all ranks are slow",
        build=faulty(lambda _, p: f.loader("all", p["share"]), bottleneck="input"),
        parameters={"share": 0.7},
        job={"ranks": 4, "layout": "ddp"},
    ),
    "gc": Scenario(
        meaning="garbage collection on random ranks",
        build=faulty(lambda _, p: f.gc(int(p["every"]), p["low_ms"], p["high_ms"]), bottleneck="host"),
        parameters={"every": 24, "low_ms": 120, "high_ms": 300},
    ),
    "allocator": Scenario(
        meaning="one rank runs out of cached memory",
        build=faulty(
            lambda j, p: f.allocator(rank_of(j, p), int(p["every"]), p["low_ms"], p["high_ms"]), bottleneck="host"
        ),
        parameters={"every": 1, "low_ms": 20, "high_ms": 60},
    ),
    "slow_nic": Scenario(
        meaning="the ports of one host run below their rate",
        build=faulty(lambda j, p: nf.nic_slow(host_of(j, p), p["share"]), bottleneck="network"),
        parameters={"share": 0.25, "host": 2},
        job={"ranks": 16, "layout": "hsdp"},
    ),
    "lossy_link": Scenario(
        meaning="one port retransmits",
        build=faulty(
            lambda j, p: nf.link_errors(rank_of(j, p), p["probability"], p["low"], p["high"]), bottleneck="network"
        ),
        parameters={"probability": 0.05, "low": 4, "high": 20},
    ),
    "nvlink": Scenario(
        meaning="NVLink of one host is degraded",
        build=faulty(lambda j, p: nf.nvlink_slow(host_of(j, p), p["factor"]), bottleneck="network"),
        parameters={"factor": 3.0},
        job={"layout": "dp_tp", "tp": 4, "ranks": 16, "model": Model(hidden=8192, layers=2, micro_batches=2)},
    ),
    "congestion": Scenario(
        meaning="transfers between hosts collide at random",
        build=faulty(lambda _, p: nf.congestion(p["probability"], p["low"], p["high"]), bottleneck="network"),
        parameters={"probability": 0.4, "low": 1.5, "high": 4.0},
        job={"ranks": 16, "layout": "hsdp"},
    ),
    "oversubscription": Scenario(
        meaning="the uplinks of the leaves are oversubscribed",
        build=oversubscribed,
        parameters={"ratio": 4.0},
        job=_LEAVES,
    ),
    "slow_network": Scenario(meaning="all ports are slow", build=slow_network, parameters={"share": 0.25}),
    "tiny_buckets": Scenario(
        meaning="gradients in tiny buckets",
        build=tiny_buckets,
        parameters={"buckets": 64},
        job={
            "layout": "ddp",
            "ranks": 16,
            "host_comm_ns": 18_000.0,
            "model": Model(layers=4, hidden=1024, tokens=4096, vocab=8192),
        },
    ),
    "wrong_protocol": Scenario(
        meaning="one kind of collective is far too slow",
        build=wrong_protocol,
        parameters={"factor": 0.3},
        job={"model": Model(tokens=4096)},
    ),
    "bubble": Scenario(
        meaning="pipeline with few micro-batches", build=bubble, parameters={"micro_batches": 4}, job=PIPELINE
    ),
    "heavy_stage": Scenario(
        meaning="the last pipeline stage is heavier", build=heavy_stage, parameters={"factor": 1.4}, job=PIPELINE
    ),
    "sequence_lengths": Scenario(
        meaning="sequence lengths vary at random",
        build=faulty(lambda _, p: f.sequence_lengths(p["cv"]), bottleneck="imbalance"),
        parameters={"cv": 0.2},
    ),
    "long_documents": Scenario(
        meaning="one data shard has longer documents",
        build=faulty(lambda j, p: f.long_documents(min(1, j.dp - 1), p["factor"]), bottleneck="imbalance"),
        parameters={"factor": 1.25},
    ),
    "moe_imbalance": Scenario(
        meaning="experts receive unequal token counts",
        build=faulty(lambda _, p: f.experts(p["peak"]), bottleneck="imbalance"),
        parameters={"peak": 2.0},
        job=_MOE,
    ),
    "moe_hot_rank": Scenario(
        meaning="one expert rank receives too many tokens",
        build=faulty(lambda j, p: f.experts(p["peak"], rank_of(j, p)), bottleneck="imbalance"),
        parameters={"peak": 2.0},
        job=_MOE,
    ),
    "checkpoint": Scenario(
        meaning="a checkpoint inside the profile",
        build=faulty(lambda _, p: f.checkpoint(p["seconds"]), bottleneck="compute"),
        parameters={"seconds": 3.0},
    ),
    "warm_up": Scenario(
        meaning="the first profiled steps compile",
        build=faulty(lambda _, p: f.warm_up(int(p["steps"]), p["factor"]), bottleneck="compute"),
        parameters={"steps": 2, "factor": 8.0},
    ),
    "rank0_work": Scenario(
        meaning="rank 0 does extra work on the host",
        build=faulty(lambda _, p: f.rank0_work(p["ms"]), bottleneck="host"),
        parameters={"ms": 25.0},
    ),
    "mixed_gpus": Scenario(
        meaning="one host has an older kind of GPU",
        build=faulty(
            lambda j, p: f.other_gpus([host_of(j, p)], "NVIDIA A100-SXM4-80GB", p["factor"]), bottleneck="imbalance"
        ),
        parameters={"factor": 1.6},
    ),
    "wait_not_network": Scenario(
        meaning="much NCCL time, all of it waiting for one slow GPU",
        build=faulty(lambda j, p: f.gpu_slow(rank_of(j, p), p["factor"]), bottleneck=_BIG),
        parameters={"factor": 1.8},
        job=_OVERLAP,
    ),
    "overlapped": Scenario(
        meaning="large transfers, hidden behind compute", build=lambda job, _: Plan(job=job), job=_OVERLAP
    ),
    "contention": Scenario(
        meaning="compute slows while communication runs beside it",
        build=lambda job, p: Plan(
            job=replace(job, noise=replace(job.noise, contention=p["factor"])),
            without=job,
            job_truth=[f.Truth("congestion", magnitude=p["factor"], what="compute and communication share the GPU")],
        ),
        parameters={"factor": 0.2},
    ),
    "small_model": Scenario(meaning="kernels shorter than their launches", build=small_model, job=_SMALL),
    "clocks_off": Scenario(
        meaning="host clocks far apart, one slow GPU",
        build=faulty(
            lambda j, p: f.gpu_slow(rank_of(j, p), p["factor"]),
            lambda _, p: f.clocks_off(p["offset_ms"], p["drift_ppm"]),
            bottleneck=_BIG,
        ),
        parameters={"factor": 1.3, "offset_ms": 50, "drift_ppm": 100},
    ),
    "missing_ranks": Scenario(
        meaning="missing traces, no Seq, no steps, one slow GPU",
        build=missing_ranks,
        parameters={"missing": 0.2, "factor": 1.3},
    ),
    "two_faults": Scenario(
        meaning="a throttled GPU and slow ports on another host",
        build=faulty(
            lambda j, p: f.gpu_slow(rank_of(j, p), p["factor"]),
            lambda j, p: nf.nic_slow(host_of(j, p), p["share"]),
            bottleneck="network",
        ),
        parameters={"factor": 1.25, "share": 0.25, "host": 1},
        job={"ranks": 16, "layout": "hsdp"},
    ),
    "socket_fallback": Scenario(
        meaning="no RDMA device is found: sockets between hosts",
        build=faulty(lambda _, p: nf.sockets(p["share"]), bottleneck="network"),
        parameters={"share": 0.06},
    ),
    "socket_host": Scenario(
        meaning="one host finds no RDMA device: sockets in all groups with it",
        build=faulty(lambda j, p: nf.host_sockets(host_of(j, p), p["share"]), bottleneck="network"),
        parameters={"share": 0.06, "host": 2},
        job={"ranks": 16, "layout": "hsdp", "shard": 8},
    ),
    "storage_traffic": Scenario(
        meaning="storage traffic of one host on its training ports",
        build=faulty(lambda j, p: nf.storage_traffic(host_of(j, p), p["bytes_per_s"]), bottleneck="network"),
        parameters={"bytes_per_s": 32e9, "host": 1},
        job={"ranks": 16, "layout": "hsdp", "shard": 8},
    ),
}
