"""A comparison as JUnit XML: one testcase for the step time, one for each part, kernel, collective and rank looked at,
and one for each rule of comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from diagnose.analysis.compare.attribute import WORDS
from diagnose.findings.compare import collective_name
from diagnose.report.compare_text import headline
from diagnose.report.junit import rule_case, totals
from diagnose.report.view import clean, shorten
from diagnose.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.analysis.compare.result import Item
    from diagnose.findings.rules import Rule
    from diagnose.report.compare_document import CompareDocument

_ILLEGAL = dict.fromkeys((0xFFFE, 0xFFFF), "?")
NAME = 120


def junit(report: CompareDocument, rules: Iterable[Rule] = ()) -> str:
    """Only a confirmed regression fails: the step's testcase, and those of what grew with it and of what rules say."""
    root = ET.Element("testsuites", name="diagnose compare")
    confirmed = report.outcome.change == "regression"
    suite = ET.SubElement(root, "testsuite", name="compare")
    case = ET.SubElement(suite, "testcase", classname="diagnose.compare", name="step time", time="0")
    message = f"{headline(report)} {report.attribution.text}".strip()
    if confirmed:
        failure = ET.SubElement(case, "failure", type="regression", message=_xml(message))
        failure.text = _xml(report.outcome.detail)
    else:
        ET.SubElement(case, "system-out").text = _xml(message)
    failures = int(confirmed)
    cases = list(_cases(report))
    for kind, name, item in cases:
        case = ET.SubElement(
            suite, "testcase", classname=f"diagnose.compare.{kind}", name=_xml(shorten(name, NAME)), time="0"
        )
        if confirmed and item.changed and (item.change_ns or 0) > 0:
            failures += 1
            text = f"{format_ns(item.base_ns)} before, {format_ns(item.new_ns)} now, {format_ns(item.change_ns)} more per step"
            ET.SubElement(case, "failure", type="regression", message=_xml(text))
    totals(suite, tests=len(cases) + 1, failures=failures, skipped=0)
    tests, failed = _rules(root, report, rules, confirmed=confirmed)
    totals(root, tests=len(cases) + 1 + tests, failures=failures + failed, skipped=0)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _rules(root: ET.Element, report: CompareDocument, rules: Iterable[Rule], *, confirmed: bool) -> tuple[int, int]:
    """A testcase a rule of comparisons, as the report of a run has them; how many there are and failed."""
    titles = {finding.code: finding.title for finding in report.findings}
    titles |= {rule.code: rule.title.partition(":")[0] for rule in rules if rule.code.startswith("COMPARE-")}
    suite = ET.SubElement(root, "testsuite", name="rules")
    failed = 0
    for code, title in sorted(titles.items()):
        findings = [finding for finding in report.findings if finding.code == code]
        failed += rule_case(suite, code, title, findings, may_fail=confirmed)
    totals(suite, tests=len(titles), failures=failed, skipped=0)
    return len(titles), failed


def _cases(report: CompareDocument) -> Iterator[tuple[str, str, Item]]:
    yield from (("part", f"{WORDS[item.part]} ({item.view} rank)", item) for item in report.parts)
    yield from (("rank", f"rank {item.rank}", item) for item in report.ranks)
    yield from (("collective", collective_name(item), item) for item in report.collectives)
    yield from (("kernel", f"{item.name} {item.signature}", item) for item in report.kernels)


def _xml(text: str) -> str:
    return clean(text).translate(_ILLEGAL)
