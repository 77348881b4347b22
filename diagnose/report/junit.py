"""JUnit XML for CI: one testcase a rule, failures where it found something, skipped where data were missing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from diagnose.report import view
from diagnose.report.view import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diagnose.findings.rules import Rule
    from diagnose.report.document import Document, FindingEntry

_ILLEGAL = dict.fromkeys((0xFFFE, 0xFFFF), "?")


def junit(document: Document, rules: Iterable[Rule]) -> str:
    """The report as JUnit XML.

    An info finding does not fail its rule: it stands in the testcase's output. Some readers keep only the first
    failure of a testcase, so the output also lists all of them.
    """
    by_code: dict[str, list[FindingEntry]] = {}
    for finding in document.findings:
        by_code.setdefault(finding.code, []).append(finding)
    titles = {rule.code: rule.title for rule in rules}
    titles |= {code: found[0].title for code, found in by_code.items() if code not in titles}

    root = ET.Element("testsuites", name="diagnose")
    suite = ET.SubElement(root, "testsuite", name="rules")
    failures = 0
    properties = ET.SubElement(suite, "properties")
    for name, value in _facts(document):
        ET.SubElement(properties, "property", name=name, value=_xml(value))
    for code, title in sorted(titles.items()):
        failures += rule_case(suite, code, title, by_code.get(code, []))
    totals(suite, tests=len(titles), failures=failures, skipped=0)

    unchecked = ET.SubElement(root, "testsuite", name="not checked")
    for item in document.not_checked:
        case = ET.SubElement(
            unchecked, "testcase", classname="diagnose.not_checked", name=_xml(item.question), time="0"
        )
        ET.SubElement(case, "skipped", message=_xml(f"{item.why} To collect: {item.collect}"))
    totals(unchecked, tests=len(document.not_checked), failures=0, skipped=len(document.not_checked))
    totals(root, tests=len(titles) + len(document.not_checked), failures=failures, skipped=len(document.not_checked))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def rule_case(
    suite: ET.Element, code: str, title: str, findings: Sequence[FindingEntry], *, may_fail: bool = True
) -> int:
    """The testcase of a rule; 1 when it failed. Without ``may_fail`` its findings stand in the output alone."""
    case = ET.SubElement(suite, "testcase", classname="diagnose.rules", name=_xml(f"{code} {title}"), time="0")
    failed = [finding for finding in findings if may_fail and finding.severity != "info"]
    for finding in failed:
        element = ET.SubElement(case, "failure", type=finding.severity, message=_xml(finding.message))
        element.text = _xml(_details(finding), lines=True)
    if len(findings) > 1 or len(failed) < len(findings):
        output = ET.SubElement(case, "system-out")
        output.text = _xml("\n\n".join(_details(finding) for finding in findings), lines=True)
    return bool(failed)


def _details(finding: FindingEntry) -> str:
    lines = [f"{finding.severity}: {clean(finding.title)} [{finding.code}]", clean(finding.message)]
    lines += [f"about: {about}"] if (about := view.subject(finding)) else []
    lines += [f"costs: {price}"] if (price := view.cost(finding.impact)) else []
    lines += [f"- {view.evidence_text(item)}" for item in finding.evidence]
    lines += [f"do: {clean(action)}" for action in finding.actions]
    return "\n".join([*lines, f"fingerprint: {finding.fingerprint}"])


def _facts(document: Document) -> tuple[tuple[str, str], ...]:
    verdict = document.verdict
    return (
        ("verdict", view.verdict_line(document)),
        ("bottleneck", verdict.bottleneck),
        ("network_bound", view.NETWORK_BOUND[verdict.network_bound]),
        ("run", document.run.name),
        ("version", document.tool.version),
    )


def totals(element: ET.Element, *, tests: int, failures: int, skipped: int) -> None:
    """The counts of a suite."""
    for name, number in (("tests", tests), ("failures", failures), ("errors", 0), ("skipped", skipped)):
        element.set(name, str(number))
    element.set("time", "0")


def _xml(text: str, *, lines: bool = False) -> str:
    """Only characters that XML 1.0 allows; ElementTree escapes the rest."""
    joined = "\n".join(clean(line) for line in text.split("\n")) if lines else clean(text)
    return joined.translate(_ILLEGAL)
