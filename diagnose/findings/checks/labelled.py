"""Steps left out of the statistics, and what saving at a regular distance costs the whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.cross.stops import regular_stops
from diagnose.analysis.training_log import reference_log
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_CODES = {"warm_up": "STEP-WARM-UP", "checkpoint": "STEP-CHECKPOINT"}


def check(facts: Facts) -> Iterator[Finding]:
    """Labelled steps as information; regular stops of the log with their price."""
    stops = regular_stops(reference_log(facts.tables))
    if stops is not None:
        lost = stops.lost_ns / max(stops.logged_steps, 1)
        rule = facts.rules["STEP-CHECKPOINT"]
        severity = rule.judge(share=lost / facts.step_ns) if facts.step_ns else "info"
        if severity is not None:
            yield rule.finding(
                severity, fields={"count": len(stops.steps), "excess": stops.lost_ns / len(stops.steps), "where": f"every {stops.every} steps of the training log"},
                steps=stops.steps, persistence="transient", impact=facts.impact(lost, rare=True), confidence=0.7,
                evidence=[Evidence(f"slow steps in {stops.logged_steps} logged ones: {', '.join(map(str, stops.steps[:6]))}", stops.lost_ns, "ns", "training_log")],
            )  # fmt: skip
    labelled = facts.tables.query(
        "SELECT label, step, max(step_ns) AS took FROM step WHERE label IN ('warm_up', 'checkpoint') GROUP BY label, step ORDER BY label, step"
    )
    for (label,), rows in labelled.group_by("label", maintain_order=True):
        code = _CODES[str(label)]
        if code == "STEP-CHECKPOINT" and stops is not None:
            continue
        steps, took = rows.get_column("step").to_list(), float(rows.get_column("took").sum())
        excess = max(took / len(rows) - (facts.step_ns or 0), 0.0)
        yield facts.rules[code].finding(
            "info", fields={"count": len(rows), "excess": excess, "where": "the profiled window, on all ranks"}, steps=steps, persistence="transient",
            confidence=0.7, evidence=[Evidence(f"{len(rows)} steps left out of the statistics", round(took), "ns", "step")],
        )  # fmt: skip
