"""The content of a report with everything filled, as plain values."""

from __future__ import annotations

import random
from typing import Any

from report_charts import charts
from report_findings import MS, findings
from report_job import STEP_NS, Job, parts

from diagnose.model import NotChecked


def raw(ranks: int = 8, steps: int = 20, *, per_host: int = 4, host: str = "node-{}") -> dict[str, Any]:
    """The whole of it."""
    random_ = random.Random(7)  # noqa: S311 - noise, no secret
    hosts = [host.format(index) for index in range(max(1, ranks // per_host))]
    of = [hosts[min(rank // per_host, len(hosts) - 1)] for rank in range(ranks)]
    waits = [0.01 if rank == 3 else 0.1 + random_.random() / 50 for rank in range(ranks)]
    job = Job(ranks, hosts, of, waits, list(range(10, 10 + steps)))
    return {
        **_identity(job), **_times(job), **_communication(job), **_answers(), **_quality(job), **charts(job, random_)
    }  # fmt: skip


def _identity(job: Job) -> dict[str, Any]:
    """What ran, and the verdict."""
    ranks, hosts, of, numbers = job.ranks, job.hosts, job.of, job.numbers
    return {
        "tool": {"name": "diagnose", "version": "0.1.0"},
        "run": {
            "name": "llama-7b-fsdp",
            "world_size": ranks,
            "ranks": list(range(ranks)),
            "missing_ranks": [],
            "hosts": [{"host": name, "ranks": [rank for rank in range(ranks) if of[rank] == name]} for name in hosts],
            "backend": "nccl",
            "device_names": ["NVIDIA H100 80GB HBM3"],
            "parallelism": {"dp": ranks // 2, "tp": 2},
            "wall_time_ns": 9_000 * MS,
            "steps": numbers,
            "excluded_steps": [
                {"step": 10, "why": "warm-up"},
                {"step": 11, "why": "warm-up"},
                {"step": 18, "why": "checkpoint"},
            ],
        },
        "verdict": {
            "bottleneck": "straggler",
            "network_bound": False,
            "text": "Rank 3 on node-0 is slow and the others wait for it: 10 % of every step. "
            "The network is not the bottleneck: 4.1 % of the step blocks on transfer; "
            "twice the bandwidth would gain 2.0 %.",
            "confidence": 0.92,
        },
    }


def _times(job: Job) -> dict[str, Any]:
    """Where the time of steps went."""
    ranks, of, waits, numbers = job.ranks, job.of, job.waits, job.numbers
    return {
        "step_time": {
            "window": "ProfilerStep annotations; device work belongs to the step that "
            "launched it; first start to next first start",
            "steps_used": len(numbers) - 3,
            "median_ns": STEP_NS,
            "breakdown": parts(STEP_NS) | {"blocking_comm_ns": 17 * MS},
            "trace": {
                str(rank): parts(STEP_NS * len(numbers)) | {"span_ns": STEP_NS * len(numbers)}
                for rank in range(min(ranks, 64))
            },
            "per_rank": [
                {
                    "rank": rank,
                    "host": of[rank],
                    "step_ns": STEP_NS,
                    **parts(STEP_NS, wait=waits[rank], noise=0.11 - waits[rank]),
                }
                for rank in range(ranks)
            ],
            "per_step": [
                {
                    "rank": rank,
                    "step": step,
                    "step_ns": STEP_NS * (3 if step == 18 else 1),
                    "window_ns": STEP_NS,
                    "label": {10: "warm_up", 11: "warm_up", 18: "checkpoint"}.get(step, "normal"),
                    **parts(STEP_NS * (3 if step == 18 else 1) + (step * 7919 % 40) * MS, wait=waits[rank]),
                }
                for rank in range(ranks)
                for step in numbers
            ],
        },
    }


def _communication(job: Job) -> dict[str, Any]:
    """Collectives, network, clocks and transports."""
    ranks, hosts = job.ranks, job.hosts
    return {
        "collectives": [
            {
                "collective": kind,
                "process_group": group,
                "group_size": ranks if group == "default_pg" else 2,
                "nodes": len(hosts) if group == "default_pg" else 1,
                "tier": "inter-node" if group == "default_pg" else "intra-node",
                "dtype": "bfloat16",
                "msg_bytes": size,
                "count": 40,
                "matched_ratio": 1.0,
                "match_method": "seq",
                "transfer_ns": 900_000,
                "wait_ns": 2_100_000,
                "algbw_bytes_per_s": 2.4e10,
                "busbw_bytes_per_s": 4.2e10,
                "bound": bound,
            }
            for kind, group, size, bound in (
                ("all_gather", "default_pg", 33_554_432, "wait"),
                ("reduce_scatter", "default_pg", 33_554_432, "bandwidth"),
                ("all_reduce", "tp", 4096, "latency"),
            )
        ],
        "network": {
            "tiers": [
                {
                    "tier": tier,
                    "collective": kind,
                    "group_size": ranks,
                    "alpha_ns": 21_000,
                    "busbw_bytes_per_s": 4.2e10,
                    "busbw_ci": [4.0e10, 4.4e10],
                    "half_size_bytes": 880_000,
                    "bound": "wire speed",
                }
                for tier in ("intra-node", "inter-node")
                for kind in ("all_gather", "reduce_scatter")
            ],
            "oversubscription": {"ratio": 1.9, "ci": [1.7, 2.1]},
            "suspects": [{"kind": "nic", "hosts": [hosts[-1]], "devices": ["mlx5_2"], "score": 3.4, "ambiguous": True}],
        },
        "clocks": [
            {"host": name, "offset_ns": 1_200_000 * index, "drift_ppm": 1.7, "residual_ns": 4_000}
            for index, name in enumerate(hosts)
        ],
        "transports": {
            "network": "IB",
            "by_kind": {"NET/IB": 32, "P2P": 96, "SHM": 0},
            "gdr": "all",
            "interfaces": {"mlx5_0": 16, "mlx5_1": 16},
            "per_host": [{"host": name, "network": "IB", "channels_count": 16} for name in hosts],
        },
    }


def _answers() -> dict[str, Any]:
    """Scaling, what-if, findings and open questions."""
    return {
        "scaling": {
            "type": "weak",
            "points": [
                {"gpus": 8, "value": 80_000.0, "used": True, "why": None},
                {"gpus": 16, "value": 151_000.0, "used": True, "why": None},
                {"gpus": 32, "value": 120_000.0, "used": False, "why": "other batch size"},
            ],
            "fit": {"model": "usl", "sigma": 0.02, "kappa": 0.0001},
            "efficiency": [{"gpus": 8, "ratio": 1.0}, {"gpus": 16, "ratio": 0.94}],
            "predictions": [{"gpus": 64, "value": 520_000.0, "interval": [480_000.0, 550_000.0], "confidence": 0.7}],
            "plateau": {"gpus": 512},
            "warnings": ["Only two sizes were used."],
        },
        "what_if": [
            {
                "scenario": "straggler_removed",
                "step_ns": 371 * MS,
                "speedup": 1.11,
                "gpu_hours_per_day": 19.2,
                "explained_ratio": 0.98,
                "cost_per_day": 48.0,
                "currency": "USD",
            },
            {
                "scenario": "no_input_stall",
                "step_ns": 392 * MS,
                "speedup": 1.05,
                "gpu_hours_per_day": 9.6,
                "explained_ratio": 0.98,
            },
            {
                "scenario": "bandwidth_x2",
                "step_ns": 404 * MS,
                "speedup": 1.02,
                "gpu_hours_per_day": 3.9,
                "explained_ratio": 0.98,
            },
        ],
        "findings": findings(),
        "not_checked": [
            NotChecked(
                "Did the NICs report errors?",
                "No node metrics were given.",
                "Query Prometheus: node_infiniband_port_transmit_wait_total over the run, step 15 s.",
            ),
        ],
    }


def _quality(job: Job) -> dict[str, Any]:
    """Sources and issues."""
    ranks, of = job.ranks, job.of
    return {
        "data_quality": {
            "sources": [
                *(
                    {
                        "path": f"traces/rank{rank}.json.gz",
                        "kind": "kineto",
                        "bytes": 54_000_000,
                        "rank": rank,
                        "host": of[rank],
                        "rows": 217_000,
                        "status": "ok",
                    }
                    for rank in range(ranks)
                ),
                {
                    "path": "traces/rank5.old.json",
                    "kind": "kineto",
                    "bytes": 1_000,
                    "rank": 5,
                    "host": None,
                    "rows": 12,
                    "status": "partial",
                    "problem": "truncated at byte 988",
                },
                {
                    "path": "traces/memory.pickle",
                    "kind": "memory-dump",
                    "bytes": 5_000,
                    "status": "skipped",
                    "problem": "memory snapshots are not read",
                },
            ],
            "issues": [
                {
                    "code": "negative_duration",
                    "severity": "warning",
                    "count": 3,
                    "example": "traces/rank5.old.json: aten::add dur -4",
                }
            ],
        },
    }
