"""Data that gives ranks uneven work, another rank in each step: long sequences next to short ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.findings.job import job_summary
from diagnose.findings.uneven import measure, variation
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.findings.uneven import Uneven
    from diagnose.model import Finding


def check(facts: Facts) -> Iterator[Finding]:
    """Uneven work that no rank keeps."""
    job = job_summary(facts)
    uneven = measure(facts.tables)
    if job is None or uneven is None:
        return
    rule = facts.rules["RANK-IMBALANCE"]
    lost = _cost(facts, job, uneven)
    share = lost / (job.span_ns or 1)
    others = {"share": share, "rotation": 1 - uneven.top_share, "moving": 1 - uneven.between}
    if rule.judge(**others) is None:  # before what costs a pass over all kernels
        return
    spread = variation(facts.tables)
    severity = rule.judge(**others, variation=spread)
    if severity is None:
        return
    yield rule.finding(
        severity, fields={"excess": uneven.excess_ns, "share": share, "variation": spread}, persistence="rotating",
        impact=facts.impact(lost), confidence=0.85,
        evidence=[
            Evidence("the same launch, from step to step: spread over duration", round(spread, 4), "ratio", "kernel"),
            Evidence("part of the variation of ranks' work that stays with the ranks", round(uneven.between, 4), "ratio", "breakdown"),
            Evidence("steps in which the most frequent busiest rank is busiest", round(uneven.top_share, 4), "ratio", "breakdown"),
            Evidence("compute of the busiest rank over the median of its role", round(uneven.excess_ns), "ns", "breakdown"),
        ],
    )  # fmt: skip


def _cost(facts: Facts, job: JobSummary, uneven: Uneven) -> float:
    """What even work would save: by replay where it explains the run, less what even stages save; else the excess.

    Never more than the ranks wait on average: the replay evens out transfers as well, and those are no rank's work.
    """
    rows = facts.tables.query(
        "SELECT scenario, speedup FROM what_if WHERE scenario IN ('no_skew', 'stage_rebalanced') AND speedup > 0"
    )
    speedup: dict[str, float] = dict(rows.iter_rows())
    if "no_skew" not in speedup or not facts.step_ns:
        return uneven.excess_ns
    even, staged = (
        facts.step_ns * (1 - 1 / max(speedup.get(name, 1.0), 1.0)) for name in ("no_skew", "stage_rebalanced")
    )
    waited = job.parts.get_column("exposed_wait_ns").mean()
    return min(max(even - staged, 0.0), float(waited) if isinstance(waited, int | float) else float("inf"))
