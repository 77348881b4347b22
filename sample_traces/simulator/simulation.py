"""Runs a plan three times with one seed: as it is, without its faults, and with a free network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from simulator.conditions import natural
from simulator.config import Job
from simulator.engine import Engine
from simulator.faults import Scene, Truth
from simulator.scenarios import SCENARIOS
from simulator.topology import Topology

if TYPE_CHECKING:
    from simulator.plans import Plan, Scenario
    from simulator.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated run and its answer key."""

    name: str
    scenario: Scenario
    plan: Plan
    parameters: dict[str, float]
    timeline: Timeline
    truths: list[Truth]
    without_fault_ns: float
    free_network_ns: float


def prepare(
    name: str, *, parameters: dict[str, float] | None = None, **job: object
) -> tuple[Scenario, Job, dict[str, float]]:
    """The scenario, its job with the caller's wishes, and its parameters with the caller's values."""
    scenario = SCENARIOS[name]
    merged = dict(scenario.parameters) | (parameters or {})
    wishes = {k: v for k, v in job.items() if v is not None}
    return scenario, replace(Job(), **(dict(scenario.job) | wishes)), merged  # type: ignore[arg-type]


def simulate(
    name: str, *, parameters: dict[str, float] | None = None, counterfactuals: bool = True, **job: object
) -> Run:
    """One run. Keyword arguments override fields of the scenario's job."""
    scenario, wanted, merged = prepare(name, parameters=parameters, **job)
    plan = scenario.build(wanted, merged)
    topology = Topology(plan.job)
    clean = plan.without or plan.job
    typical = _typical_step_ns(clean)
    without = Engine(
        clean, topology if clean is plan.job else Topology(clean), natural(clean, Topology(clean), typical)
    ).run()
    scene = Scene(plan.job, topology, natural(plan.job, topology, typical), without.median_step_ns())
    truths = [apply(scene) for apply in plan.faults] + list(plan.job_truth)
    timeline = Engine(plan.job, topology, scene.given).run()
    free = timeline.median_step_ns()
    if counterfactuals:
        free = Engine(plan.job, topology, scene.given, free_network=True).run().median_step_ns()
    return Run(name, scenario, plan, merged, timeline, truths, without.median_step_ns(), free)


def elsewhere(run: Run, **rates: float) -> Timeline:
    """The same run, faults and pauses and all, on a cluster of other rates (fields of Cluster)."""
    plan, clean = run.plan, run.plan.without or run.plan.job
    job = replace(plan.job, cluster=replace(plan.job.cluster, **rates))  # type: ignore[arg-type]
    topology = Topology(job)
    scene = Scene(job, topology, natural(job, topology, _typical_step_ns(clean)), run.without_fault_ns)
    for apply in plan.faults:
        apply(scene)
    return Engine(job, topology, scene.given).run()


def _typical_step_ns(job: Job) -> float:
    """Step time of a quiet run: the measure for pauses and delays that are shares of a step."""
    quiet = replace(job, steps=2, job_steps=4, noise=replace(job.noise, pause_probability=0.0))
    topology = Topology(quiet)
    return Engine(quiet, topology, natural(quiet, topology, 0.0)).run().median_step_ns()
