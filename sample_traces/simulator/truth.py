"""The answer key of a run. It lies beside the run's inputs and is no input itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import yaml

from simulator.ops import DTYPE_BYTES, Collective
from simulator.programs import program

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.simulation import Run
    from simulator.timeline import Timeline

_BOUND_FROM, _FREE_BELOW = 0.15, 0.10  # of the step, as docs define "network bound"


def answer(run: Run) -> dict[str, object]:
    """The answer key as plain values."""
    timeline, job = run.timeline, run.timeline.job
    window = slice(job.first_profiled, job.first_profiled + job.steps)
    steps = timeline.step_ns()[window]
    median = timeline.median_step_ns()
    gain = 1 - run.free_network_ns / median
    wait, transfer = timeline.exposed_wait[:, window], timeline.exposed_transfer[:, window]
    critical = int(wait.sum(axis=1).argmin())
    places = [
        {"host": name, "ranks": [int(r) for r in np.nonzero(timeline.topology.host_of == h)[0]]}
        for h, name in enumerate(timeline.topology.host_names)
    ]
    return {
        "simulated": True,
        "scenario": run.name,
        "meaning": run.scenario.meaning,
        "parameters": run.parameters,
        "seed": job.seed,
        "torch": job.era,
        "layout": job.layout,
        "world_size": job.ranks,
        "tensor_parallel": job.tp,
        "pipeline_stages": job.pp,
        "profiled_steps": list(range(window.start, window.stop)),
        "faults": [asdict(t) for t in run.truths],
        "expected": {
            "bottleneck": run.plan.bottleneck,
            "network_bound": True if gain >= _BOUND_FROM else False if gain < _FREE_BELOW else None,
        },
        "step_time": {
            "median_ns": round(median),
            "mean_ns": round(float(steps.mean())),
            "without_fault_median_ns": round(run.without_fault_ns),
            "free_network_median_ns": round(run.free_network_ns),
            "per_step_ns": [round(float(v)) for v in steps],
        },
        "network": {
            "free_network_gain_ratio": round(gain, 4),
            "critical_rank": critical,
            "critical_exposed_transfer_ratio": round(float(np.median(transfer[critical])) / median, 4),
        },
        "pipeline_bubble_ratio": round((job.pp - 1) / (job.model.micro_batches + job.pp - 1), 4),
        "tiers": tiers(timeline),
        "clocks": [
            {"host": name, "offset_ns": round(float(offset)), "drift_ppm": round(float(drift), 4)}
            for name, offset, drift in zip(
                timeline.topology.host_names,
                timeline.conditions.clock_offset_ns,
                timeline.conditions.clock_drift_ppm,
                strict=True,
            )
        ],
        "hosts": places,
    }


def tiers(timeline: Timeline) -> list[dict[str, object]]:
    """True latency and bus bandwidth of every class of collectives, without faults of single members."""
    topology, job = timeline.topology, timeline.job
    one = np.ones(job.ranks)
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for stage in range(job.pp):
        for op in program(job, stage):
            if not isinstance(op, Collective):
                continue
            groups = topology.groups(op.group, stage)
            if groups.size == 1:
                continue
            rate = topology.bandwidth(groups, one, one, op.collective)
            for g in range(len(groups.members)):
                size = op.nelems * DTYPE_BYTES[op.dtype]
                key = (op.group, op.collective, groups.tier(g), size)
                rows[key] = {
                    "group": op.group,
                    "collective": op.collective,
                    "tier": groups.tier(g),
                    "group_size": groups.size,
                    "hosts": groups.hosts,
                    "bytes": size,
                    "alpha_ns": round(topology.alpha_ns(groups)),
                    "busbw_bytes_per_s": round(float(rate[g])),
                }
    return list(rows.values())


def write_truth(run: Run, path: Path) -> None:
    """Writes the answer key as YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"truth": answer(run)}, sort_keys=False, width=110, allow_unicode=True))
