"""The job's summary for checks and reports, from the stored tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.summary import JobSummary, summarise

if TYPE_CHECKING:
    from diagnose.findings.facts import Facts, Tables


def job_summary(facts: Facts) -> JobSummary | None:
    """The summary, None for a run without any split (logs or metrics alone, lost captures)."""
    return facts.job or summary_of(facts.tables)


def summary_of(tables: Tables) -> JobSummary | None:
    """As job_summary, from the tables alone."""
    breakdown = tables.frame("breakdown")
    if breakdown.is_empty():
        return None
    source = tables.query("SELECT step_source FROM run").item()
    return summarise(tables.frame("step"), breakdown, tables.frame("rank"), str(source))
