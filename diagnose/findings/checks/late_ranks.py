"""Slow steps that no profile covers: the training log shows them, flight recorders say who issued late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.comm_audit.late_issues import late_ranks
from diagnose.analysis.cross.stops import regular_stops
from diagnose.analysis.training_log import reference_log
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_ISSUES = """
SELECT comm_group, seq, rank, min(created_ns) AS created_ns FROM flight_entry
WHERE NOT is_p2p AND rank IS NOT NULL AND created_ns > 0 GROUP BY ALL ORDER BY ALL
"""
_PROFILED = "SELECT min(host_start_ns) AS first, max(host_end_ns) AS last FROM step HAVING count(*) > 0"
_HOSTS = "SELECT rank, host FROM rank WHERE host IS NOT NULL AND rank >= 0"


def check(facts: Facts) -> Iterator[Finding]:
    """One finding a rank."""
    log = reference_log(facts.tables)
    if log.is_empty():
        return
    stops = regular_stops(log)
    profiled = [(int(first), int(last)) for first, last in facts.tables.query(_PROFILED).iter_rows()]
    hosts = dict(facts.tables.query(_HOSTS).iter_rows())
    usual = float(log.get_column("step_time_ns").median() or 0)  # type: ignore[arg-type]
    priced = facts._replace(step_ns=facts.step_ns or round(usual))
    rule = facts.rules["RANK-LATE"]
    for late in late_ranks(facts.tables.query(_ISSUES), log, profiled, stops.steps if stops else ()):
        lost = late.lost_ns / late.logged_steps
        severity = rule.judge(share=lost / (usual + lost))
        if severity is None:
            continue
        host = hosts.get(late.rank)
        who = f"Rank {late.rank} on {host}" if host else f"Rank {late.rank}"
        evidence = Evidence(
            f"its collectives in {len(late.steps)} of {late.logged_steps} logged steps issued after those of all others, at most by",
            late.longest_ns,
            "ns",
            "flight_entry",
        )
        yield rule.finding(
            severity, fields={"who": who, "longest": late.longest_ns, "count": len(late.steps)}, ranks=[late.rank],
            hosts=[host] if host else [], steps=late.steps, persistence="transient", impact=priced.impact(lost, rare=True),
            confidence=0.7, title=f"{rule.title}: {who[0].lower()}{who[1:]}", evidence=[evidence],
        )  # fmt: skip
