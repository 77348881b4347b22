from __future__ import annotations

import msgspec
import pytest
import report_documents as documents
from hypothesis import given
from hypothesis import strategies as st

from diagnose.report import view
from diagnose.report.document import Document, FindingEntry


def entry(code: str, *explains: str) -> FindingEntry:
    return FindingEntry(code=code, title=code, severity="warning", cause="hang", explains=explains)


def folded(*findings: FindingEntry) -> list[tuple[str, list[str]]]:
    return [(item.finding.code, [other.code for other in item.explained]) for item in view.fold(findings)]


def test_explained_findings_move_under_their_reason() -> None:
    assert folded(entry("B"), entry("A", "B"), entry("C")) == [("A", ["B"]), ("C", [])]


def test_a_chain_ends_at_its_first_reason() -> None:
    assert folded(entry("A", "B"), entry("B", "C"), entry("C")) == [("A", ["B", "C"])]


def test_a_cause_on_one_host_explains_nothing_on_another() -> None:
    cause = msgspec.structs.replace(entry("A", "B"), hosts=("n1",))
    here, there = (msgspec.structs.replace(entry("B"), hosts=(host,)) for host in ("n1", "n2"))
    assert folded(cause, here, there) == [("A", ["B"]), ("B", [])]


def test_findings_that_explain_each_other_do_not_vanish() -> None:
    assert folded(entry("A", "B"), entry("B", "A")) == [("A", ["B"])]
    assert folded(entry("A", "A")) == [("A", [])]


@given(st.lists(st.tuples(st.sampled_from("ABCDE"), st.sets(st.sampled_from("ABCDE"))), max_size=12))
def test_folding_loses_nothing(found: list[tuple[str, set[str]]]) -> None:
    findings = [entry(code, *sorted(explains)) for code, explains in found]
    shown = [item.finding for item in view.fold(findings)] + [x for item in view.fold(findings) for x in item.explained]
    assert sorted(id(item) for item in shown) == sorted(id(item) for item in findings)


@given(st.lists(st.integers(0, 10**12), max_size=12), st.integers(1, 200))
def test_a_bar_is_always_full(values: list[int], width: int) -> None:
    assert sum(view.cells(values, width)) == (width if sum(values) else 0)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1, 2, 7], "0-2, 7"),
        ([5, 4, 4], "4-5"),
        (range(0, 40, 2), "0, 2, 4, 6, 8, 10, 12, 14 ... and 12 more"),
    ],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert view.ranges(numbers) == text


def test_long_names_lose_their_middle() -> None:
    assert view.shorten("a" * 50 + "z" * 50, 21) == "aaaaaaaaa...zzzzzzzzz"
    assert view.shorten("short", 21) == "short"


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("gpu-r01n01 nic:mlx5_0/1, gpu-r01n01 nic:mlx5_1/1", 40, "gpu-r01n01 nic:mlx5_0/1 ..."),
        ("load 2.6 on 8 CPUs; all hosts show it", 30, "load 2.6 on 8 CPUs ..."),
        ("as it is", 30, "as it is"),
    ],
)
def test_sentences_end_between_items(text: str, limit: int, shown: str) -> None:
    assert view.cut(text, limit) == shown


@given(st.text())
def test_clean_text_is_one_line_without_control(text: str) -> None:
    assert len(view.clean(text).splitlines()) <= 1
    assert "\x1b" not in view.clean(text)


def test_slices_add_up_to_the_window(rich: Document) -> None:
    for row in rich.step_time.per_rank:
        assert sum(item.ns for item in view.slices(row)) == row.step_ns


def test_idle_that_is_not_divided_is_one_part() -> None:
    parts = msgspec.convert({"compute_ns": 5, "idle_ns": 3}, type(documents.rich_document().step_time.breakdown))
    assert [(item.part.key, item.ns) for item in view.slices(parts)] == [("compute", 5), ("idle_other", 3)]


@pytest.mark.parametrize("address", [None, "", "javascript:alert(1)", "file:///etc"])
def test_only_web_addresses_become_links(rich: Document, address: str | None) -> None:
    assert view.app_link(rich, rich.findings[0], address) == ""


def test_a_link_carries_run_and_finding(hostile: Document) -> None:
    link = view.app_link(hostile, hostile.findings[0], "https://app.example/x")
    assert link.startswith("https://app.example/x?run=%3Cscript%3E")
    assert link.endswith(f"&finding={hostile.findings[0].fingerprint}")
