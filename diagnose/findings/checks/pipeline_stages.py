"""Pipelines: stages with more work than others, and bubbles that are nobody's fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.findings.checks import imbalance
from diagnose.findings.job import job_summary
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding


def check(facts: Facts) -> Iterator[Finding]:
    """A heavy stage, or else the bubble."""
    job = job_summary(facts)
    work = facts.tables.query(
        "SELECT w.rank, w.role, w.work_ns, w.speed_ratio, r.host FROM rank_work AS w JOIN rank AS r USING (rank) "
        "WHERE w.verdict <> 'persistent' ORDER BY w.rank"
    )
    if job is None or work.get_column("role").n_unique() < 2:
        return
    stages = work.group_by("role").agg(
        pl.col("work_ns").median().alias("work"), pl.col("speed_ratio").median().fill_null(0.0).alias("speed"), pl.col("rank"),
        pl.col("host").n_unique().alias("hosts"), pl.col("host").null_count().alias("unplaced"),
    ).sort("role")  # fmt: skip
    # A stage of one rank, or on one host, may be slow by its device: what it would need at the common speed of equal
    # kernels counts. Replicas on different devices that are all as slow have more to do, whatever their kernels are called.
    # The last stage has the head and the loss to compute: where only its device could tell, more work is likelier by far.
    apart = (pl.col("rank").list.len() > 1) & ((pl.col("hosts") > 1) | (pl.col("unplaced") > 0))
    apart |= pl.col("role") == pl.col("role").max()
    slower = pl.when(apart).then(0.0).otherwise(pl.col("speed").clip(lower_bound=0.0))
    stages = stages.with_columns((pl.col("work") / (1 + slower)).alias("fair"))
    mean = float(stages.get_column("fair").mean() or 0.0)  # type: ignore[arg-type]
    worst = stages.sort("fair", descending=True).row(0, named=True)
    lost = _lost(facts, worst["fair"] - mean)
    span = job.span_ns or 1
    rule = facts.rules["PIPE-STAGE"]
    severity = rule.judge(share=lost / span, ratio=worst["fair"] / mean - 1) if mean else None
    if severity is not None:
        ranks = [] if len(stages) == 0 else worst["rank"]
        hosts = facts.tables.query(
            "SELECT DISTINCT host FROM rank WHERE list_contains($ranks, rank) AND host IS NOT NULL", {"ranks": ranks}
        )
        yield rule.finding(
            severity, fields={"stage": worst["role"], "ratio": worst["fair"] / mean - 1, "work": worst["work"], "mean": mean},
            ranks=ranks, hosts=hosts.get_column("host").to_list() if len(ranks) == 1 else [], persistence="persistent",
            impact=facts.impact(lost), confidence=0.9, evidence=[Evidence(f"median local work of stage {role}", round(value), "ns", "rank_work") for role, value in stages.select("role", "work").iter_rows()],
        )  # fmt: skip
    slow = [] if severity is not None else list(_slow_device(facts, stages.filter(~apart), span))
    yield from slow
    yield from _bubble(facts, job, caused=severity is not None or bool(slow) or _other_cause(facts, span))


def _slow_device(facts: Facts, stages: pl.DataFrame, span: int) -> Iterator[Finding]:
    """A stage on one host that runs the kernels of the other stages slower: no peer of its own role can tell."""
    rule = facts.rules["RANK-GPU"]
    for row in (
        stages.filter(pl.col("speed") >= rule.limit("stage"))
        .sort("speed", descending=True)
        .head(1)
        .iter_rows(named=True)
    ):
        lost = row["work"] - row["fair"]
        severity = rule.judge(share=lost / span)
        if severity is not None:
            hosts = facts.tables.query(
                "SELECT DISTINCT host FROM rank WHERE list_contains($ranks, rank) AND host IS NOT NULL",
                {"ranks": row["rank"]},
            )
            who = f"Pipeline stage {row['role']}"
            yield rule.finding(
                severity, fields={"who": who, "speed": row["speed"], "when": ""}, ranks=row["rank"], hosts=hosts.get_column("host").to_list(),
                persistence="persistent", impact=facts.impact(_lost(facts, lost)), confidence=0.6, title=f"{rule.title}: pipeline stage {row['role']}",
                evidence=[Evidence("kernels that other stages run as well: time over theirs, minus 1", round(row["speed"], 4), "ratio", "rank_work")],
            )  # fmt: skip


def _lost(facts: Facts, excess: float) -> float:
    """What even stages would save: by replay where it explains the run, and never more than the excess."""
    rows = facts.tables.query("SELECT speedup FROM what_if WHERE scenario = 'stage_rebalanced' AND speedup >= 1")
    if rows.is_empty() or not facts.step_ns:
        return max(excess, 0.0)
    return min(max(excess, 0.0), facts.step_ns * (1 - 1 / float(rows.item())))


def _other_cause(facts: Facts, span: int) -> bool:
    """Whether a slow rank, or data that is uneven, explains waiting as well as a bubble would."""
    limit = facts.rules["PIPE-STAGE"].limit("share")
    slow = facts.tables.query("SELECT max(cost_ns) AS cost FROM rank_work WHERE verdict = 'persistent'").item()
    return (slow or 0) >= limit * span or any(True for _ in imbalance.check(facts))


def _bubble(facts: Facts, job: JobSummary, *, caused: bool) -> Iterator[Finding]:
    """Waiting of stages whose work is even. With a heavy stage, a slow rank or uneven data it is their consequence."""
    wait = job.share("exposed_wait_ns")
    rule = facts.rules["PIPE-BUBBLE"]
    severity = rule.judge(wait=wait)
    transfer = job.share("exposed_transfer_ns")
    if (
        severity is None
        or wait is None
        or caused
        or transfer is None
        or transfer >= facts.config.network_bound_below_ratio
    ):
        return  # behind a heavy stage or a slow link, waiting is their consequence
    busy = job.share("compute_ns") or 0.0
    yield rule.finding(
        severity, fields={"busy": busy, "wait": wait}, impact=facts.impact(job.breakdown["exposed_wait_ns"]), confidence=0.8,
        evidence=[Evidence("median exposed waiting per step", job.breakdown["exposed_wait_ns"], "ns", "breakdown")],
    )  # fmt: skip
