"""All checks over one store: findings in the order of what they cost, and the questions that stay open."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from diagnose.findings.accelerator import accelerator
from diagnose.findings.checks import BUILTIN
from diagnose.findings.facts import Facts
from diagnose.findings.job import summary_of
from diagnose.findings.relate import related
from diagnose.findings.rules import RuleBook
from diagnose.findings.verdict import Verdict, judge
from diagnose.model import SEVERITIES, Finding, NotChecked

if TYPE_CHECKING:
    from diagnose.analysis.summary import JobSummary
    from diagnose.config import Config
    from diagnose.findings.facts import Tables


class Evaluation(NamedTuple):
    """What the rules make of a store."""

    findings: list[Finding]
    not_checked: list[NotChecked]
    verdict: Verdict
    job: JobSummary | None


def evaluate(tables: Tables, config: Config, rules: RuleBook | None = None) -> Evaluation:
    """Run every check; findings ordered: what stopped the job, then lost time, then severity, then code."""
    job = summary_of(tables)
    world = tables.query("SELECT world_size FROM run").item()
    book = (rules or RuleBook(config.thresholds)).worded(accelerator(tables))
    facts = Facts(tables, book, config, world, job.step_ns if job else None, job)
    findings: list[Finding] = []
    open_questions: dict[str, NotChecked] = {}
    for name in BUILTIN:
        for item in import_module(f"diagnose.findings.checks.{name}").check(facts):
            if isinstance(item, Finding):
                findings.append(item)
            else:
                open_questions.setdefault(item.question, item)
    findings = _ordered(related(findings, tables))
    return Evaluation(findings, list(open_questions.values()), judge(facts, job, findings), job)


def _ordered(findings: list[Finding]) -> list[Finding]:
    """Info last, what stopped the job first; else what costs most, a finding without a price by its severity."""
    seen: set[str] = set()
    unique = []
    for finding in findings:
        if finding.fingerprint not in seen:
            seen.add(finding.fingerprint)
            unique.append(finding)
    return sorted(
        unique,
        key=lambda item: (
            item.severity == "info",
            item.severity != "critical" or item.cause != "hang",
            -(item.impact.ns_per_step or 0),
            _explained(item, unique),
            SEVERITIES.index(item.severity),
            item.code,
            item.ranks,
            item.hosts,
        ),
    )


def _explained(finding: Finding, findings: list[Finding]) -> bool:
    """Whether another finding stands for it: of equal price the cause comes before its symptom."""
    return any(
        finding.code in other.explains
        and (not finding.hosts or not other.hosts or set(finding.hosts) & set(other.hosts))
        for other in findings
        if other.code != finding.code
    )
