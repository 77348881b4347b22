"""Documents for the report tests: rich, empty, one rank, hostile names, thousands of ranks."""

from __future__ import annotations

import random
from typing import Any

from diagnose.findings.rules import Rule, Threshold
from diagnose.model import Evidence, Finding, Impact, NotChecked
from diagnose.report.document import Document, from_raw

MS = 1_000_000
HOSTILE = (
    '<script>alert(1)</script>"></svg>',
    "a|b`c`*d*_e_@team",
    "\x1b[31mred\x1b[0m\r\n# heading",
    "\u202eevil",
    "]]>&amp;",
)

RULES = (
    Rule(
        code="RANK001",
        title="Straggling rank",
        cause="gpu_slow",
        meaning="One rank does the same work slower than its peers.",
        message="m",
        actions=("Drain the node.",),
        thresholds={
            "slowdown": Threshold(
                why="below 5 % the noise of a step hides it", unit="ratio", warning=0.05, critical=0.1
            )
        },
        explains=("COMM002",),
        references=("docs/rules/RANK001.md",),
    ),
    Rule(code="COMM002", title="Long waits", cause="congestion", meaning="w", message="m"),
    Rule(code="NET003", title="Bandwidth below reference", cause="bandwidth_bound", meaning="b", message="m"),
    Rule(code="INPUT001", title="Input stalls", cause="input_stall", meaning="i", message="m"),
    Rule(code="WARM001", title="Warm-up excluded", cause="warm_up", meaning="u", message="m", severity="info"),
)


def parts(step_ns: int, *, wait: float = 0.1, noise: float = 0.0) -> dict[str, int]:
    """A step split that adds up exactly."""
    shares = {
        "compute_ns": 0.5 + noise,
        "exposed_wait_ns": wait,
        "exposed_transfer_ns": 0.12,
        "exposed_memcpy_ns": 0.02,
        "idle_input_ns": 0.05,
        "idle_host_ns": 0.06,
        "idle_sync_ns": 0.02,
        "idle_bubble_ns": 0.01,
    }
    split = {key: round(share * step_ns) for key, share in shares.items()}
    split["idle_other_ns"] = max(0, step_ns - sum(split.values()))
    split["exposed_comm_ns"] = split["exposed_wait_ns"] + split["exposed_transfer_ns"]
    split["idle_ns"] = sum(value for key, value in split.items() if key.startswith("idle_"))
    return split | {"overlapped_comm_ns": step_ns // 5}


def findings() -> list[Finding]:
    """One of every severity, one explained by another."""
    return [
        Finding(
            code="RANK001",
            title="Straggling rank",
            severity="critical",
            cause="gpu_slow",
            message="Rank 3 needs 18 % more time than its peers for the same kernels; the other 7 ranks wait for it.",
            ranks=(3,),
            hosts=("node-0",),
            devices=("GPU-3 (NVIDIA H100 80GB HBM3)",),
            persistence="persistent",
            impact=Impact(41_200_000, 0.1, 19.2),
            confidence=0.93,
            evidence=(
                Evidence("Median of the same kernels against role peers", 0.18, "ratio", "kernel_stat"),
                Evidence("SM clock while busy", 1395, "MHz", "DCGM_FI_DEV_SM_CLOCK node-0/3"),
                Evidence("Share of collectives it entered last", 0.97, "ratio", "collective.last_rank"),
            ),
            actions=(
                "Read the clock and throttle reasons: nvidia-smi -q -d PERFORMANCE -i 3 on node-0.",
                "If they show throttling, drain the node and run the vendor's diagnostic.",
            ),
            explains=("COMM002",),
        ),
        Finding(
            code="COMM002",
            title="Long waits",
            severity="warning",
            cause="congestion",
            message="7 ranks wait 38 ms per step in collectives.",
            ranks=(0, 1, 2, 4, 5, 6, 7),
            impact=Impact(38_000_000, 0.092, 17.7),
            confidence=0.9,
        ),
        Finding(
            code="INPUT001",
            title="Input stalls",
            severity="warning",
            cause="input_stall",
            message="The data loader makes every rank wait in some steps.",
            steps=(12, 16, 20, 24),
            persistence="transient",
            impact=Impact(20_600_000, 0.05, 9.6),
            confidence=0.8,
            evidence=(Evidence("Time inside the data loader's next", 20_600_000, "ns", "breakdown.idle_input_ns"),),
            actions=("Raise num_workers, or keep the decoded samples.",),
        ),
        Finding(
            code="WARM001",
            title="Warm-up excluded",
            severity="info",
            cause="warm_up",
            message="Steps 0-2 were warming up and are not counted.",
            steps=(0, 1, 2),
        ),
    ]


def raw(ranks: int = 8, steps: int = 20, *, per_host: int = 4, host: str = "node-{}") -> dict[str, Any]:
    """A document with everything filled, as plain values."""
    random_ = random.Random(7)  # noqa: S311 - noise, no secret
    step_ns = 412 * MS
    hosts = [host.format(index) for index in range(max(1, ranks // per_host))]
    of = [hosts[min(rank // per_host, len(hosts) - 1)] for rank in range(ranks)]
    waits = [0.01 if rank == 3 else 0.1 + random_.random() / 50 for rank in range(ranks)]
    numbers = list(range(10, 10 + steps))
    sizes = [2**power for power in range(12, 30)]
    busbw = [size / (20e-6 + size / 4.8e10) for size in sizes]
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
        "step_time": {
            "window": "ProfilerStep annotations; device work belongs to the step that "
            "launched it; first start to next first start",
            "steps_used": steps - 3,
            "median_ns": step_ns,
            "breakdown": parts(step_ns) | {"blocking_comm_ns": 17 * MS},
            "trace": {
                str(rank): parts(step_ns * steps) | {"span_ns": step_ns * steps} for rank in range(min(ranks, 64))
            },
            "per_rank": [
                {
                    "rank": rank,
                    "host": of[rank],
                    "step_ns": step_ns,
                    **parts(step_ns, wait=waits[rank], noise=0.11 - waits[rank]),
                }
                for rank in range(ranks)
            ],
            "per_step": [
                {
                    "rank": rank,
                    "step": step,
                    "step_ns": step_ns * (3 if step == 18 else 1),
                    "window_ns": step_ns,
                    "label": {10: "warm_up", 11: "warm_up", 18: "checkpoint"}.get(step, "normal"),
                    **parts(step_ns * (3 if step == 18 else 1) + (step * 7919 % 40) * MS, wait=waits[rank]),
                }
                for rank in range(ranks)
                for step in numbers
            ],
        },
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
        "charts": {
            "lateness": {
                "ranks": list(range(ranks)),
                "steps": numbers,
                "late_ns": [
                    [(38 * MS if rank == 3 else 200_000) + (step * rank * 7919) % 400_000 for step in numbers]
                    for rank in range(ranks)
                ],
            },
            "busbw": [
                {
                    "tier": "inter-node",
                    "collective": "all_gather",
                    "points": [
                        [size, value * (0.9 + random_.random() / 5)] for size, value in zip(sizes, busbw, strict=True)
                    ],
                    "fit": [[size, value] for size, value in zip(sizes, busbw, strict=True)],
                    "reference_bytes_per_s": 4.9e10,
                }
            ],
            "who_waits": [
                {
                    "rank": rank,
                    "host": of[rank],
                    "wait_ns": round(waits[rank] * step_ns),
                    "caused_wait_ns": 250 * MS if rank == 3 else MS,
                    "last_ratio": 0.97 if rank == 3 else 0.004,
                }
                for rank in range(ranks)
            ],
            "nodes": [
                {
                    "host": name,
                    "gpu_clock_mhz": 1980 - 500 * (index == 0),
                    "ecc_count": 0,
                    "busy_ratio": 0.97,
                    "gpu_clock_history": [1980, 1975, 1400, 1395, 1390],
                }
                for index, name in enumerate(hosts)
            ],
        },
    }


def rich_document() -> Document:
    """8 ranks on 2 hosts, everything filled."""
    return from_raw(raw())


def empty_document() -> Document:
    """Logs only: no step, no rank, no finding."""
    return from_raw(
        {
            "tool": {"version": "0.1.0"},
            "run": {"name": "logs"},
            "verdict": {
                "bottleneck": "inconclusive",
                "text": "The data cannot say why the run was slow: there is no trace.",
                "confidence": 0.0,
            },
            "not_checked": [
                NotChecked(
                    "Where does the step's time go?", "No trace was given.", "torch.profiler.profile(schedule=...)"
                )
            ],
        }
    )


def single_document() -> Document:
    """One trace whose rank nothing tells; communication not split."""
    split = parts(9 * MS) | {"exposed_wait_ns": None, "exposed_transfer_ns": None}
    return from_raw(
        {
            "tool": {"version": "0.1.0"},
            "run": {"name": "trace", "hosts": [], "steps": [1, 2]},
            "verdict": {
                "bottleneck": "compute",
                "network_bound": None,
                "text": "Compute fills 50 % of the step.",
                "confidence": 0.7,
            },
            "step_time": {
                "window": "ProfilerStep",
                "steps_used": 2,
                "median_ns": 9 * MS,
                "breakdown": split,
                "trace": {"?": split | {"span_ns": 18 * MS}},
                "per_rank": [{"rank": None, "host": None, "step_ns": 9 * MS, **split}],
                "per_step": [
                    {"rank": None, "step": step, "step_ns": 9 * MS, "window_ns": 9 * MS, "label": "normal", **split}
                    for step in (1, 2)
                ],
            },
        }
    )


def hostile_document() -> Document:
    """Every name that comes from a file tries to break the output."""
    values = raw(host=HOSTILE[0] + "{}")
    bad = " ".join(HOSTILE)
    values["run"] |= {"name": bad, "backend": bad, "device_names": [bad]}
    values["findings"] = [
        Finding(
            code="RANK001",
            title=f"Straggling {bad}",
            severity="critical",
            cause="gpu_slow",
            message=bad,
            ranks=(3,),
            hosts=HOSTILE,
            devices=HOSTILE,
            evidence=tuple(Evidence(name, name, None, name) for name in HOSTILE),
            actions=HOSTILE,
        )
    ]
    values["verdict"]["text"] = f"Rank 3 on {bad} is slow."
    for row in values["collectives"]:
        row |= {"process_group": bad, "collective": bad, "dtype": bad, "tier": bad}
    for row in values["charts"]["busbw"]:
        row |= {"tier": bad, "collective": bad}
    values["charts"]["nodes"] = [{bad: bad, "x_ns": 5}]
    values["not_checked"] = [NotChecked(bad, bad, bad)]
    values["data_quality"] = {
        "sources": [{"path": bad, "kind": bad, "status": "failed", "problem": bad}],
        "issues": [{"code": bad, "severity": "warning", "count": 1, "example": bad}],
    }
    return from_raw(values)


def large_document() -> Document:
    """4096 ranks on 512 hosts."""
    return from_raw(raw(4096, per_host=8))
