"""What one rank at a time can show: where the step goes besides compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.findings.job import job_summary
from diagnose.model import Evidence, NotChecked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_SMALL_NS = 10_000
_SCHEDULE = "torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=3, active=8), record_shapes=True)"


def check(facts: Facts) -> Iterator[Finding | NotChecked]:
    """Input, host, copies, small kernels, lost captures, labelled steps."""
    job = job_summary(facts)
    yield from _lost_captures(facts)
    if job is None:
        return
    if not job.steps_used:
        yield NotChecked(
            "How do single steps differ?",
            "no complete step was found in the traces",
            f"mark steps: call profiler.step() under {_SCHEDULE}",
        )
    yield from _idle(facts, job)
    yield from _copies(facts, job)
    yield from _small_kernels(facts, job)


def _idle(facts: Facts, job: JobSummary) -> Iterator[Finding]:
    for code, part in (("STEP-INPUT", "idle_input_ns"), ("STEP-HOST", "idle_host_ns"), ("STEP-SYNC", "idle_sync_ns")):
        rule = facts.rules[code]
        share = job.share(part)
        severity = rule.judge(share=share)
        if severity is None or share is None:
            continue
        lost = job.breakdown[part]
        worst = job.per_rank.filter(pl.col("rank") >= 0).sort(part, descending=True, nulls_last=True).head(1)
        evidence = [Evidence(f"median idle time of this kind per step, {job.window}", lost, "ns", "breakdown")]
        if len(worst):
            evidence.append(Evidence(f"largest on rank {worst['rank'][0]}", worst[part][0], "ns", "breakdown"))
        evidence.extend(_calls_behind(facts, code))
        yield rule.finding(
            severity,
            fields={"share": share, "lost": lost},
            impact=facts.impact(lost),
            evidence=evidence,
            confidence=0.9 if job.steps_used >= 3 else 0.6,
        )


def _calls_behind(facts: Facts, code: str) -> list[Evidence]:
    if code != "STEP-HOST":
        return []
    launched = facts.tables.query(
        "SELECT count(*) AS kernels, median(dur_ns) AS median_ns FROM kernel WHERE class = 'compute' AND step IS NOT NULL"
    )
    kernels, median = launched.row(0)
    return (
        [Evidence(f"{kernels} compute kernels launched, median duration", round(median), "ns", "kernel")]
        if kernels
        else []
    )


def _copies(facts: Facts, job: JobSummary) -> Iterator[Finding]:
    rule = facts.rules["STEP-COPY"]
    share = job.share("exposed_memcpy_ns")
    severity = rule.judge(share=share)
    if severity is None:
        return
    lost = job.breakdown["exposed_memcpy_ns"]
    kinds = facts.tables.query(
        "SELECT name, sum(total_ns) AS total_ns, sum(bytes) AS bytes FROM kernel_stat WHERE class IN ('memcpy', 'memset') GROUP BY name ORDER BY 2 DESC LIMIT 3"
    )
    evidence = [Evidence(f"{name}", int(total), "ns", "kernel_stat") for name, total, _ in kinds.iter_rows()]
    yield rule.finding(
        severity, fields={"share": share, "lost": lost}, impact=facts.impact(lost), evidence=evidence, confidence=0.9
    )


def _small_kernels(facts: Facts, job: JobSummary) -> Iterator[Finding]:
    rule = facts.rules["STEP-SMALL-KERNELS"]
    idle = job.share("idle_host_ns")
    sizes = facts.tables.query(
        f"SELECT count(*) AS kernels, avg((dur_ns < {_SMALL_NS})::INT) AS small FROM kernel WHERE class = 'compute' AND step IS NOT NULL"
    )
    kernels, small = sizes.row(0)
    severity = rule.judge(small=small, idle=idle) if kernels else None
    if severity is None:
        return
    yield rule.finding(
        severity, fields={"small": small, "idle": idle, "kernels": kernels}, evidence=[Evidence("compute kernels seen", kernels, "count", "kernel")],
        impact=facts.impact(job.breakdown["idle_host_ns"]), confidence=0.8,
    )  # fmt: skip


def _lost_captures(facts: Facts) -> Iterator[Finding | NotChecked]:
    lost = facts.tables.query("SELECT rank, lost_capture FROM rank WHERE lost_capture IS NOT NULL ORDER BY rank")
    blind = facts.tables.query("SELECT example FROM issue WHERE code = 'no_launches' ORDER BY path LIMIT 1").get_column(
        "example"
    )
    if len(blind):
        yield NotChecked(
            "Why is the device idle?",
            str(blind[0]),
            "record the host too: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    if lost.is_empty():
        lost = facts.tables.query(
            "SELECT rank, min(why) AS why FROM step WHERE label = 'lost_capture' GROUP BY rank ORDER BY rank"
        ).rename({"why": "lost_capture"})
    if lost.is_empty():
        return
    ranks = [rank for rank in lost.get_column("rank").to_list() if rank >= 0]
    yield facts.rules["DATA-LOST"].finding(
        fields={"count": len(lost), "why": lost["lost_capture"][0]}, ranks=ranks,
        evidence=[Evidence(str(why), source=f"rank {rank}") for rank, why in lost.head(3).iter_rows()],
    )  # fmt: skip
