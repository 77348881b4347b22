"""The verdict: what holds the run back, whether it is the network, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.training_log import reference_log
from diagnose.units import format_ns, format_ratio, inside, opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_LOCAL_CAUSES = {
    "gpu_slow": "straggler", "gpu_memory_slow": "straggler", "host_slow": "straggler", "throttling": "straggler", "hardware_error": "straggler",
    "mixed_hardware": "straggler", "gc_pause": "straggler", "allocator": "straggler", "workload_imbalance": "imbalance",
    "moe_imbalance": "imbalance", "stage_imbalance": "pipeline", "input_stall": "input", "checkpoint": "checkpoint",
}  # fmt: skip
_NETWORK_CAUSES = frozenset(
    {"nic_slow", "link_errors", "congestion", "oversubscription", "bandwidth_bound", "latency_bound", "wrong_protocol", "no_rdma",
     "partial_rdma", "no_gdr", "partial_gdr", "wrong_interface", "rail_mismatch", "p2p_disabled", "intra_node_link", "traffic_mixing"}
)  # fmt: skip
_SIGNIFICANT_RATIO = 0.05
_HOSTS_NAMED = 3
_ENDED_ALONE = ("COM-HANG-START", "COM-HANG-DIED", "COM-HANG-EXCEPTION")
"""Stops that a process brought about by itself: without a step, that is all there is to explain."""

_CPU_TRANSPORTS = ("gloo", "mpi")
_STARVED_RATIO = 0.25
"""A host whose every operator is slower by a quarter starves the communication threads that share its processors."""


class Verdict(NamedTuple):
    """As in the report; ``network_why`` is the reason for network_bound in one clause."""

    bottleneck: str
    network_bound: bool | None
    text: str
    confidence: float
    network_why: str


def judge(facts: Facts, job: JobSummary | None, findings: Sequence[Finding]) -> Verdict:
    """One bottleneck: the dearest finding that explains lost time, the network where transfer blocks, else compute.

    A job that stopped says so first.
    """
    verdict = _judge(facts, job, findings)
    stop = next((item for item in findings if item.severity == "critical" and item.cause == "hang"), None)
    if stop is None or job is None:
        return verdict
    before = inside(verdict.text)
    return verdict._replace(text=f"The job stopped: {inside(stop.title)}{_whom(stop)}. Until then: {before}")


def _whom(stop: Finding) -> str:
    """The accused ranks or hosts in brackets, where they are few enough to name."""
    if not 0 < len(stop.ranks or stop.hosts) <= _HOSTS_NAMED:
        return ""
    ranks = f"rank{'s' if len(stop.ranks) > 1 else ''} {', '.join(map(str, stop.ranks))}" if stop.ranks else ""
    hosts = f"on {', '.join(stop.hosts)}" if 0 < len(stop.hosts) <= _HOSTS_NAMED else ""
    return f" ({' '.join(part for part in (ranks, hosts) if part)})"


def _judge(facts: Facts, job: JobSummary | None, findings: Sequence[Finding]) -> Verdict:
    bound, why = network_bound(facts, job, findings)
    if job is None:
        return _without_steps(facts, findings, bound, why)
    blocking = (job.blocking_ns or 0) if bound else 0
    local = [finding for finding in findings if finding.severity != "info" and finding.cause in _LOCAL_CAUSES]
    dearest = max(local, key=lambda finding: finding.impact.ns_per_step or 0, default=None)
    cost = (dearest.impact.ns_per_step or 0) if dearest else 0
    step = job.step_ns or job.span_ns or 1
    if bound and blocking >= cost:
        return Verdict("network", bound, _network_text(facts, job, findings, blocking, step), _sure(job, 0.9), why)
    open_comm = job.share("exposed_comm_ns") or 0.0
    unclear = bound is None and open_comm >= facts.config.network_bound_above_ratio and open_comm > cost / step
    if dearest is not None and cost >= _SIGNIFICANT_RATIO * step and not unclear:
        return Verdict(
            _kind(dearest),
            bound,
            f"{_sentence(dearest, cost, step, job.steps_used)} {_not_network(bound, why)}",
            _sure(job, dearest.confidence),
            why,
        )
    return _by_parts(job, bound, why)


def network_bound(facts: Facts, job: JobSummary | None, findings: Sequence[Finding]) -> tuple[bool | None, str]:
    """Whether blocking communication reaches the configured share of the step, and why (not)."""
    config = facts.config
    if job is None:
        ended = next((item for item in findings if item.code in _ENDED_ALONE), None)
        if ended is not None:
            return False, f"{inside(ended.title)}, and no step was limited by anything"
        return None, "no step was split, so nothing says what communication costs"
    span = job.span_ns or 0
    blocking, bound = job.blocking_ns, job.blocking_max_ns
    if not span:
        return None, "no time window"
    if blocking is not None:
        ratio = blocking / span
        if ratio >= config.network_bound_above_ratio:
            starved = _starved_host(facts, findings)
            if starved:
                return (
                    False,
                    f"transfers block {format_ratio(ratio)} of the step, but only because {starved} starves its communication threads",
                )
            return True, f"transfers that nothing hides block {format_ratio(ratio)} of the step"
        if ratio < config.network_bound_below_ratio:
            return False, f"transfers block only {format_ratio(ratio)} of the step"
        return None, f"borderline: transfers block {format_ratio(ratio)} of the step"
    if bound is not None and bound / span < config.network_bound_below_ratio:
        return (
            False,
            f"all communication that nothing hides is at most {format_ratio(bound / span)} of the step on the critical rank",
        )
    if _single_process(facts):
        return False, "a single process has no network in its step"
    return (
        None,
        "waiting and transfer cannot be told apart: collectives of some ranks are missing or could not be matched",
    )


def _single_process(facts: Facts) -> bool:
    return facts.world_size == 1


def _starved_host(facts: Facts, findings: Sequence[Finding]) -> str | None:
    """A host whose slowness also slows a transport that runs on its processors."""
    backend = facts.tables.query("SELECT backend FROM run").item()
    if backend not in _CPU_TRANSPORTS:
        return None
    slowest = facts.tables.query(
        "SELECT max(slowdown_ratio) FROM rank_work WHERE cause = 'host_slow' AND verdict = 'persistent'"
    ).item()
    if slowest is None or slowest < _STARVED_RATIO:
        return None
    culprit = next(
        (
            finding
            for finding in findings
            if finding.cause in ("host_slow", "throttling") and (finding.hosts or finding.ranks)
        ),
        None,
    )
    return None if culprit is None else ", ".join(culprit.hosts) or f"rank {culprit.ranks[0]}"


def _without_steps(facts: Facts, findings: Sequence[Finding], bound: bool | None, why: str) -> Verdict:  # noqa: FBT001 - a value of the report
    logged = _logged_step(facts)
    loud = [finding for finding in findings if finding.severity != "info"]
    if loud:
        first = loud[0]
        kind = "network" if first.cause in _NETWORK_CAUSES else _LOCAL_CAUSES.get(first.cause, "inconclusive")
        return Verdict(
            kind if first.cause in _NETWORK_CAUSES else "inconclusive",
            bound,
            f"{logged}. {first.title}. {first.message}"
            if logged
            else f"No step time was measured{':' if first.cause == 'data_quality' else ', but'} {inside(first.title)}. {first.message}",
            0.5,
            why,
        )
    return Verdict(
        "inconclusive",
        bound,
        f"Inconclusive: {inside(logged)}, and nothing that was read says where that time goes."
        if logged
        else "Inconclusive: no step time was measured, and nothing that was read looks wrong.",
        0.3,
        why,
    )


def _logged_step(facts: Facts) -> str:
    """What the training log says of the steps, where it is all there is; else empty."""
    log = reference_log(facts.tables)
    lengths = log.get_column("step_time_ns").drop_nulls() if len(log) else None
    if lengths is None or lengths.is_empty():
        return ""
    usual = float(lengths.median() or 0)  # type: ignore[arg-type]
    return (
        f"Without a trace only the training log tells of the steps, {format_ns(usual)} each (median of {len(lengths)})"
    )


def _by_parts(job: JobSummary, bound: bool | None, why: str) -> Verdict:  # noqa: FBT001 - a value of the report
    shares = {
        part: job.share(part) or 0.0
        for part in ("idle_input_ns", "idle_host_ns", "exposed_wait_ns", "compute_ns", "exposed_comm_ns")
    }
    host = shares["idle_host_ns"] + (job.share("idle_sync_ns") or 0.0)
    if job.breakdown.get("compute_ns") is None:
        return Verdict(
            "inconclusive",
            bound,
            "Inconclusive: the traces lost their device records, so device time is unknown.",
            0.3,
            why,
        )
    if shares["idle_input_ns"] >= _SIGNIFICANT_RATIO and shares["idle_input_ns"] >= host:
        return Verdict(
            "input",
            bound,
            f"The device waits for input {format_ratio(shares['idle_input_ns'])} of the step. {_not_network(bound, why)}",
            _sure(job, 0.9),
            why,
        )
    if host >= 0.15 and host >= shares["exposed_comm_ns"]:
        return Verdict(
            "host",
            bound,
            f"Host-bound: the device waits for launches {format_ratio(host)} of the step. {_not_network(bound, why)}",
            _sure(job, 0.85),
            why,
        )
    if shares["exposed_comm_ns"] >= 0.15 and bound is None:
        text = f"Inconclusive: {format_ratio(shares['exposed_comm_ns'])} of the step is communication that nothing hides, but {why}."
        return Verdict("inconclusive", None, text, 0.4, why)
    text = f"Compute sets the pace: {format_ratio(shares['compute_ns'])} of the step. {_not_network(bound, why)}"
    return Verdict("compute", bound, text, _sure(job, 0.9 if shares["compute_ns"] >= 0.7 else 0.7), why)


def _kind(finding: Finding) -> str:
    kind = _LOCAL_CAUSES[finding.cause]
    if kind == "straggler" and not (finding.ranks or finding.hosts):
        return "host"
    return kind


def _sentence(finding: Finding, cost: int, step: int, steps: int) -> str:
    """What it costs: of a step, or on average where it strikes a few steps."""
    if finding.persistence != "transient" and cost <= step:
        return f"{finding.title}{_where(finding)}: {format_ns(cost)} of a {format_ns(step)} step ({format_ratio(cost / step)})."
    share = f" ({format_ratio(finding.impact.step_ratio)})" if finding.impact.step_ratio is not None else ""
    struck = len(finding.steps) if finding.steps != "all" else 0
    where = f", in {struck} of {steps} steps" if 0 < struck < steps else ""
    return f"{finding.title}{_where(finding)}: {format_ns(cost)} a step on average{share}{where}."


def _network_text(facts: Facts, job: JobSummary, findings: Sequence[Finding], blocking: int, step: int) -> str:
    detail = next(
        (
            finding for finding in findings
            if finding.cause in _NETWORK_CAUSES and finding.severity != "info" and finding.code != "NET-CONTENTION"
        ),
        None,
    )  # fmt: skip
    text = f"Network-bound: transfers that nothing hides block {format_ns(blocking)} of a {format_ns(step)} step ({format_ratio(blocking / (job.span_ns or step))})"
    gains = _wire_gains(facts)
    if detail is None:
        return f"{text}.{gains}"
    return f"{text}: {inside(detail.title)}{_where(detail)}.{gains}"


def _where(finding: Finding) -> str:
    """The hosts where the title does not name them and they are few."""
    few = 0 < len(finding.hosts) <= _HOSTS_NAMED and finding.hosts[0] not in finding.title
    return f" ({', '.join(finding.hosts)})" if few else ""


def _wire_gains(facts: Facts) -> str:
    """What a better network would buy, where the replay can say."""
    speedup = dict(facts.tables.query("SELECT scenario, speedup FROM what_if WHERE speedup >= 1").iter_rows())
    said = [
        f"{what} would save {format_ratio(1 - 1 / speedup[name])}"
        for name, what in (("bandwidth_x2", "twice the bandwidth"), ("latency_zero", "no latency"))
        if name in speedup
    ]
    return f" {opening(' of the step, '.join(said))} of it." if said else ""


def _not_network(bound: bool | None, why: str) -> str:  # noqa: FBT001 - a value of the report
    if bound is True:
        return f"The network is a second limit: {why}."
    if bound is False:
        return f"The network is not the bottleneck: {why}."
    return f"Whether the network limits it is open: {why}."


def _sure(job: JobSummary, most: float) -> float:
    """Less sure with fewer steps."""
    return round(most * (1.0 if job.steps_used >= 3 else 0.85 if job.steps_used else 0.7), 2)
