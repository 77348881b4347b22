from __future__ import annotations

import io
import re

import pytest
import report_documents as documents
from report_content import raw
from report_findings import findings
from rich.cells import cell_len
from rich.console import Console

from diagnose.report.document import Document, from_raw
from diagnose.report.render import render
from diagnose.report.text import print_report


def test_the_verdict_comes_first_with_its_confidence(rich: Document) -> None:
    first, second, *_ = render(rich, "text").splitlines()
    assert first == "Rank 3 on node-0 is slow and the others wait for it: 10 % of every step."
    assert second == "(confidence 92 %)"


def test_an_inconclusive_verdict_claims_no_confidence() -> None:
    text = render(documents.empty_document(), "text")
    assert text.startswith("The data cannot say why the run was slow: there is no trace.\nBottleneck: inconclusive.")
    assert "Step time: unknown" in text
    assert "torch.profiler.profile" in text


@pytest.mark.parametrize("width", range(60, 101, 5))
def test_no_number_is_parted_from_its_unit(any_document: Document, width: int) -> None:
    lines = render(any_document, "text", width=width).splitlines()
    assert [line for line in lines if re.match(r" *(%|[mun]s|[kMGT]B(/s)?)([ ),.;]|$)", line)] == []


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_asked(any_document: Document, width: int) -> None:
    lines = render(any_document, "text", width=width).splitlines()
    if width >= 60:  # narrower than its numbers a table cannot be
        assert max(cell_len(line) for line in lines) <= min(width, 100)
    assert all(line == line.rstrip() for line in lines)


def test_escape_codes_only_with_color(any_document: Document) -> None:
    assert "\x1b" not in render(any_document, "text")
    assert "\x1b[" in render(any_document, "text", color=True)


def test_names_cannot_bring_escape_codes(hostile: Document) -> None:
    colored = render(hostile, "text", color=True)
    assert "\x1b[31mred" not in colored
    assert "\u202e" not in colored


def test_a_console_without_color_gets_no_color(rich: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    print_report(rich, console)
    assert "\x1b[31m" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_structure_is_ascii_for_any_log_file(rich: Document) -> None:
    assert render(rich, "text").isascii()


def test_the_bar_is_full_and_in_proportion(rich: Document) -> None:
    bar = next(line for line in render(rich, "text").splitlines() if line.startswith("  [C"))
    cells = bar.strip(" []")
    assert len(bar) == 78
    assert len(cells) == 74
    assert cells.count("C") == 37
    assert "".join(dict.fromkeys(cells)) == "CWTMIHSBo"


def test_communication_that_was_not_split_is_one_part() -> None:
    text = render(documents.single_document(), "text")
    assert "X communication" in text
    assert "waiting for peers" not in text


def test_findings_keep_their_order_and_fold_what_they_explain(rich: Document) -> None:
    text = render(rich, "text")
    order = [
        text.index(part) for part in ("CRITICAL  Straggling rank", "WARNING   Input stalls", "Also noted", "- Warm-up")
    ]
    assert order == sorted(order)
    assert "Explains: Long waits [COMM002]" in text
    assert "WARNING   Long waits" not in text
    assert "Costs 41.2 ms per step (10 % of it), 19.2 GPU-hours a day; rank 3 on node-0" in text
    assert "- Share of collectives it entered last: 97 % [collective.last_rank]" in text
    assert "Do: Raise num_workers" in text


def test_long_lists_are_cut_and_say_so() -> None:
    content = raw()
    finding = findings()[2]
    content["findings"] = [finding] * 30
    content["not_checked"] *= 20
    text = render(from_raw(content), "text")
    assert "... and 22 more (see --format json)" in text
    assert "... and 14 more (see --format json)" in text


def test_lost_ranks_are_said_aloud() -> None:
    content = raw()
    content["run"] |= {"world_size": 16, "missing_ranks": [8, 9, 10, 15]}
    text = render(from_raw(content), "text")
    assert "8 of 16 ranks" in text
    assert "No data from 4 ranks: 8-10, 15." in text


def test_lost_device_records_are_unknown_not_idle() -> None:
    content = raw()
    lost = {key: None for key in content["step_time"]["breakdown"] if key.startswith("idle")}
    content["step_time"]["breakdown"] |= lost
    text = render(from_raw(content), "text")
    assert "Idle time is unknown" in text
    assert "idle:" not in text


def test_tables_and_data_quality_are_there(rich: Document) -> None:
    text = render(rich, "text")
    for words in (
        "straggler as fast as its peers  371 ms    1.11x  19.2 GPU-hours",
        "3  node-0  4.12 ms             250 ms           97 %",
        "inter-node  all_gather          8  21.0 us  42.0 GB/s  wire speed",
        "network IB, P2P 96, NET/IB 32, GPUDirect RDMA: all",
        "10 files, 432 MB: 8 ok, 1 partial, 1 skipped",
        "- partial: traces/rank5.old.json (truncated at byte 988)",
        "- warning: negative_duration, count 3",
    ):
        assert words in text
