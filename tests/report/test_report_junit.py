from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from report_findings import RULES

from diagnose.report.render import render

if TYPE_CHECKING:
    from diagnose.report.document import Document


def parsed(document: Document) -> ET.Element:
    return ET.fromstring(render(document, "junit", rules=RULES).encode())  # noqa: S314 - our own output


def test_every_rule_is_a_testcase_and_silence_passes(rich: Document) -> None:
    cases = parsed(rich).findall("testsuite[@name='rules']/testcase")
    assert [case.get("name", "").split()[0] for case in cases] == sorted(rule.code for rule in RULES)
    failed = {case.get("name", "").split()[0] for case in cases if case.find("failure") is not None}
    assert failed == {"RANK001", "COMM002", "INPUT001"}


def test_failures_carry_fingerprint_and_action(rich: Document) -> None:
    failure = parsed(rich).find(".//failure[@type='critical']")
    assert failure is not None
    assert f"fingerprint: {rich.findings[0].fingerprint}" in (failure.text or "")
    assert "do: Read the clock" in (failure.text or "")


def test_info_does_not_fail_but_is_shown(rich: Document) -> None:
    case = parsed(rich).find(".//testcase[@name='WARM001 Warm-up excluded']")
    assert case is not None
    assert case.find("failure") is None
    assert "Steps 0-2" in (case.findtext("system-out") or "")


def test_what_was_not_checked_is_skipped(rich: Document) -> None:
    skipped = parsed(rich).find("testsuite[@name='not checked']/testcase/skipped")
    assert skipped is not None
    assert "To collect:" in (skipped.get("message") or "")


def test_counts_agree_and_any_document_parses(any_document: Document) -> None:
    root = parsed(any_document)
    for suite in root.findall("testsuite"):
        cases = suite.findall("testcase")
        assert int(suite.get("tests", "")) == len(cases)
        assert int(suite.get("failures", "")) == sum(case.find("failure") is not None for case in cases)
        assert int(suite.get("skipped", "")) == sum(case.find("skipped") is not None for case in cases)
    assert int(root.get("tests", "")) == len(root.findall(".//testcase"))
