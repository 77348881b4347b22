"""One case from simulation to a record of what was true and what was said."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from fault_baselines import baselines
from simulated import store_run

from diagnose.config import Config
from diagnose.findings.evaluate import evaluate
from diagnose.store.reader import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "sample_traces"))
from simulator.config import Model
from simulator.ops import DTYPE_BYTES, Collective
from simulator.programs import program
from simulator.simulation import elsewhere, simulate
from simulator.truth import answer

if TYPE_CHECKING:
    from fault_cases import Case
    from simulator.simulation import Run

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Tables

_LARGE_BYTES = 8_000_000


def simulated(case: Case) -> Run:
    """The case's run."""
    job = dict(case.job)
    if job.pop("coarse", False):
        job["model"] = Model(detail="coarse")
    return simulate(case.scenario, parameters=case.parameters, seed=case.seed, **job)


def record(case: Case, store: Path | None = None, *, wires: bool = False) -> dict[str, Any]:
    """Simulate, analyse, and note both sides. ``wires``: also simulate the run with links of twice the bandwidth."""
    run = simulated(case)
    topology = run.timeline.topology
    leaves = {name: f"leaf{topology.leaf_of_host[host]}" for host, name in enumerate(topology.host_names)}
    config = Config(topology=leaves) if case.topology else Config()
    with tempfile.TemporaryDirectory() as folder:
        path = store_run(run, store or Path(folder) / "run.duckdb", config)
        with Store(path) as tables:
            result = evaluate(tables, config)
            said = _said(tables, result.findings, result.verdict, result.job)
            said["baselines"] = baselines(tables)
            said["clock_error_ns"] = _clock_errors(tables, run)
            said["bandwidth"] = _bandwidths(tables, run)
            said["labels"] = dict(
                tables.query("SELECT label, count(DISTINCT step) FROM step GROUP BY label ORDER BY label").iter_rows()
            )
    said["step_ns"] = _step_ns(result.job)
    return {"group": case.group, "scenario": case.scenario, "seed": case.seed, "parameters": case.parameters,
            "job": {name: value for name, value in case.job.items() if name != "model"}, "true": _true(run) | _means(run) | (_twice(run) if wires else {}), "said": said}  # fmt: skip


def _step_ns(job: JobSummary | None) -> int | None:
    return None if job is None else job.step_ns


def _twice(run: Run) -> dict[str, float]:
    """Mean step of the same run with all links at twice their bandwidth."""
    cluster = run.plan.job.cluster
    return {"mean_twice_ns": _mean(elsewhere(run, nic=2 * cluster.nic, nvlink=2 * cluster.nvlink))}


def _means(run: Run) -> dict[str, float]:
    """Mean step over the profiled ones, with and without the fault: single long steps do not move a median."""
    clean = run.plan.without
    job = clean if clean is not None else run.timeline.job
    names = {field: getattr(job, field) for field in job.__dataclass_fields__}
    same = simulate("healthy", counterfactuals=False, **names).timeline
    return {"mean_ns": _mean(run.timeline), "mean_without_ns": _mean(same)}


def _mean(timeline: Any) -> float:
    first = timeline.job.first_profiled
    return float(np.mean(timeline.step_ns()[first : first + timeline.job.steps]))


def _true(run: Run) -> dict[str, Any]:
    key = answer(run)
    return {
        "faults": [
            {"cause": fault.cause, "ranks": fault.ranks, "hosts": fault.hosts, "persistence": fault.persistence, "magnitude": fault.magnitude}
            for fault in run.truths
        ],
        "expected": key["expected"], "step_ns": run.timeline.median_step_ns(), "without_ns": run.without_fault_ns,
        "ranks": run.timeline.job.ranks, "missing": list(run.timeline.job.drop_ranks), "steps": run.timeline.job.steps,
        "pipeline": run.timeline.job.pp > 1,
    }  # fmt: skip


def _said(tables: Tables, findings: list[Any], verdict: Any, job: JobSummary | None) -> dict[str, Any]:
    stat = dict(tables.query("SELECT name, value FROM job_stat").iter_rows())
    return {
        "bottleneck": verdict.bottleneck, "network_bound": verdict.network_bound, "text": verdict.text,
        "blocking": None if job is None or job.blocking_ns is None else job.blocking_ns / (job.span_ns or 1),
        "findings": [
            {"code": item.code, "cause": item.cause, "severity": item.severity, "ranks": list(item.ranks), "hosts": list(item.hosts),
             "persistence": item.persistence, "share": item.impact.step_ratio}
            for item in findings
        ],
        "suspects": tables.query("SELECT name, host, ranks, score, ambiguous FROM network_suspect ORDER BY score DESC, name").to_dicts(),
        "what_if": dict(tables.query("SELECT scenario, step_ns FROM what_if").iter_rows()), "stat": stat,
    }  # fmt: skip


def _clock_errors(tables: Tables, run: Run) -> list[float]:
    """Estimated minus true time of every host against the first, in the middle of the profile."""
    rows = tables.query("SELECT host, offset_ns, drift_ppm, component FROM clock ORDER BY host")
    names = run.timeline.topology.host_names
    known = {row["host"]: row for row in rows.iter_rows(named=True)}
    if len(known) < 2 or any(name not in known for name in names):
        return []
    given, timeline = run.timeline.conditions, run.timeline
    slots = [slot for slot in timeline.slots if slot.end is not None]
    middle = float(np.median(np.concatenate([slot.end for slot in slots])))
    true = given.clock_offset_ns + middle * given.clock_drift_ppm * 1e-6
    found = np.array([known[name]["offset_ns"] for name in names], float)
    error = (found - found[0]) - (true - true[0])
    return [float(value) for value in error[1:]]


def _bandwidths(tables: Tables, run: Run) -> list[dict[str, Any]]:
    """Fitted against true bandwidth, per tier and kind of collective whose groups are alike and large enough to have one."""
    true = _true_bandwidths(run)
    found = []
    for row in tables.frame("network_tier").iter_rows(named=True):
        tier = {"intra-leaf": "inside", "cross-leaf": "across"}.get(row["tier"], row["tier"])
        rates = true.get((tier, row["collective"], row["group_size"]), [])
        if rates and row["busbw_bytes_per_s"] and max(rates) < 1.05 * min(rates):
            found.append(
                {
                    "kind": row["collective"],
                    "tier": row["tier"],
                    "found": row["busbw_bytes_per_s"],
                    "true": float(np.median(rates)),
                }
            )
    return found


def _true_bandwidths(run: Run) -> dict[tuple[str, str, int], list[float]]:
    """Rates of all groups in the middle of the profile, by tier, kind and size; several sizes of one kind must agree."""
    names = {"allreduce": "all_reduce", "_allgather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter"}
    topology, given, job = run.timeline.topology, run.timeline.conditions, run.timeline.job
    step = job.first_profiled + job.steps // 2
    rates: dict[tuple[str, str, int], list[float]] = {}
    for stage in range(job.pp):
        for op in program(job, stage):
            if (
                not isinstance(op, Collective)
                or op.collective not in names
                or op.nelems * DTYPE_BYTES[op.dtype] < _LARGE_BYTES
            ):
                continue
            groups = topology.groups(op.group, stage)
            if groups.size == 1:
                continue
            speed = topology.bandwidth(groups, given.nic[:, step], given.nvlink[:, step], op.collective)
            for place, value in enumerate(speed):
                tiers = (
                    ("intra-node",)
                    if groups.hosts == 1
                    else ("inter-node", "across" if groups.crosses[place] else "inside")
                )
                for tier in tiers:
                    rates.setdefault((tier, names[op.collective], groups.size), []).append(float(value))
    return rates
