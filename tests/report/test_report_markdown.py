from __future__ import annotations

import re

import pytest
import report_documents as documents
from report_content import raw

from diagnose.report.document import Document, from_raw
from diagnose.report.markdown import LIMIT_BYTES, code, escape
from diagnose.report.render import render


def test_the_verdict_is_the_heading_and_tables_are_tables(rich: Document) -> None:
    text = render(rich, "md")
    assert text.startswith(
        "## Rank 3 on node-0 is slow and the others wait for it: 10 % of every step. (confidence 92 %)\n"
    )
    assert "| compute | 206 ms | 50 % |" in text
    assert "#### CRITICAL: Straggling rank (RANK001)" in text
    assert "- [ ] Raise num\\_workers, or keep the decoded samples." in text
    assert "Explains: Long waits (COMM002)." in text


@pytest.mark.parametrize("name", documents.HOSTILE)
def test_no_name_is_markup(name: str) -> None:
    bare = re.sub(r"\\.", "", escape(name)).replace("@<!-- -->", "")
    assert not set("|`*_<>[]#") & set(bare)
    assert "\n" not in escape(name)


def test_code_spans_hold_their_backticks() -> None:
    assert code("a`b") == "`` a`b ``"
    assert code("plain") == "`plain`"
    assert code("") == ""


def test_every_table_row_has_its_columns(any_document: Document) -> None:
    for block in render(any_document, "md").split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(widths) <= 1, block


def test_it_fits_a_comment(large: Document) -> None:
    content = raw()
    content["not_checked"] = content["not_checked"] * 2000
    text = render(from_raw(content), "md")
    assert len(text.encode()) <= LIMIT_BYTES
    assert text.rstrip().endswith("(`--format json`)._")
    assert len(render(large, "md").encode()) <= LIMIT_BYTES


def test_bytes_are_deterministic() -> None:
    assert render(documents.rich_document(), "md") == render(documents.rich_document(), "md")
