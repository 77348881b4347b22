"""What overlap costs: the same kernels beside communication and alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.findings.job import job_summary
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_ENOUGH = 0.2
"""Kernels that ran both ways have to be this part of the compute beside communication to speak for the rest."""

_AGREE = 0.75
_SLOWER = 0.02
"""Names and grids do not tell all shapes apart; of a common cause nearly all kernels feel something."""

_SQL = """
SELECT k.rank, k.signature, sum(k.beside_ns)::DOUBLE AS beside, sum(k.beside_count * (k.alone_ns / k.alone_count)) AS alone,
  count(DISTINCT k.step) AS steps
FROM kernel_stat AS k JOIN step AS s USING (rank, step)
WHERE s.label = 'normal' AND k.class = 'compute' AND k.rank >= 0 AND k.alone_count > 0 AND k.beside_count > 0 AND k.alone_ns > 0
GROUP BY k.rank, k.signature ORDER BY k.rank, k.signature
"""


def check(facts: Facts) -> Iterator[Finding]:
    """One finding for the job: kernels of equal name and grid in the same step of the same rank are compared."""
    job = job_summary(facts)
    rows = facts.tables.query(_SQL)
    if job is None or rows.is_empty() or not job.span_ns:
        return
    steps = facts.tables.query("SELECT count(DISTINCT step) FROM step WHERE label = 'normal'").item() or 1
    overlap = float(job.breakdown.get("overlapped_comm_ns") or 0)
    each = rows.group_by("rank").agg(
        (pl.col("beside").sum() / pl.col("alone").sum() - 1).alias("ratio"), (pl.col("beside").sum() / steps).alias("seen")
    )  # fmt: skip
    slower = rows.filter(pl.col("beside") > (1 + _SLOWER) * pl.col("alone")).get_column("alone").sum()
    ratio, seen = (float(each.get_column(name).median() or 0.0) for name in ("ratio", "seen"))  # type: ignore[arg-type]
    if seen < _ENOUGH * overlap or slower < _AGREE * float(rows.get_column("alone").sum()):
        return
    lost = overlap * ratio / (1 + ratio)
    rule = facts.rules["NET-CONTENTION"]
    severity = rule.judge(share=lost / job.span_ns, ratio=ratio)
    if severity is not None:
        yield rule.finding(
            severity, fields={"ratio": ratio, "overlap": overlap, "share": lost / job.span_ns}, impact=facts.impact(lost), confidence=0.8,
            evidence=[Evidence("compute per step that was seen beside communication and alone", round(seen), "ns", "kernel_stat")],
        )  # fmt: skip
