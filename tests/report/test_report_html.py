from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import report_documents as documents
from report_content import raw
from report_findings import RULES

from diagnose.report.document import Document, from_raw
from diagnose.report.html import html
from diagnose.report.render import render

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Collects tags, ids and text, and fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if "id" in attrs]


def drawings(text: str) -> list[ET.Element]:
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]  # noqa: S314 - our own output


def test_pages_are_well_formed_and_anchors_exist(any_document: Document) -> None:
    text = html(any_document, RULES)
    page = Page(text)
    drawings(text)
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert all(link[1:] in ids for link in links if link and link.startswith("#"))


def test_nothing_runs_and_nothing_is_loaded(any_document: Document) -> None:
    text = html(any_document, RULES, "https://app.example")
    assert "<script" not in text.lower()
    page = Page(text)
    assert {tag for tag, _ in page.tags}.isdisjoint(
        {"script", "link", "img", "iframe", "object", "embed", "image", "use"}
    )
    for tag, attrs in page.tags:
        assert "src" not in attrs
        assert not any(name.startswith("on") for name in attrs)
        assert tag == "a" or "href" not in attrs
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in re.sub(r'<a [^>]*href="https://app.example[^>]*>', "", text).replace("http-equiv", "")


def test_hostile_names_stay_text(hostile: Document) -> None:
    text = html(hostile, RULES)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "\x1b" not in text
    shown = "".join(Page(text).text)
    assert '<script>alert(1)</script>"></svg>' in shown


def test_the_verdict_is_the_heading(rich: Document) -> None:
    text = html(rich)
    heading = text[text.index("<h1>") : text.index("</h1>")]
    assert "Rank 3 on node-0 is slow" in heading
    assert "confidence 92 %" in heading
    assert text.index("<h1>") < text.index('id="findings"') < text.index('id="step-time"') < text.index('id="method"')


def test_every_section_is_there(rich: Document) -> None:
    ids = Page(html(rich, RULES)).ids()
    wanted = "verdict findings step-time ranks steps collectives network clocks what-if transports nodes not-checked"
    assert {*wanted.split(), "data-quality", "method"} <= set(ids)
    assert {f"finding-{finding.fingerprint}" for finding in rich.findings} <= set(ids)


def test_severity_is_a_word_and_a_mark_not_only_a_colour(rich: Document) -> None:
    text = html(rich)
    for words in ("▲ CRITICAL", "◆ WARNING", "○ INFO"):
        assert words in text


def test_axes_carry_units_and_charts_carry_names(rich: Document) -> None:
    charts = drawings(html(rich))
    assert len(charts) >= 5
    assert all(chart.get("aria-label") for chart in charts)
    texts = [[element.text or "" for element in chart.iter("text")] for chart in charts]
    assert any("100 ms" in words and "time per step" in words for words in texts)
    assert any("10.0 GB/s" in words and "message size (bytes, logarithmic)" in words for words in texts)
    assert any("reference 49.0 GB/s" in words for words in texts)
    assert any(word.startswith("step (a full cell is") for words in texts for word in words)


def test_links_into_the_app_only_with_an_address(rich: Document) -> None:
    assert "open in the app" not in html(rich)
    text = html(rich, app_address="http://127.0.0.1:8501")
    assert f"http://127.0.0.1:8501?run=llama-7b-fsdp&amp;finding={rich.findings[0].fingerprint}" in text


def test_findings_say_how_they_are_judged(rich: Document) -> None:
    text = html(rich, RULES)
    assert "One rank does the same work slower than its peers." in text
    assert "warning at least 5.0 %, critical at least 10 %" in text


def test_dark_light_and_print_are_styled(rich: Document) -> None:
    text = html(rich)
    assert "prefers-color-scheme:dark" in text
    assert "@media print" in text


def test_bytes_are_deterministic() -> None:
    first, second = (render(documents.rich_document(), "html", rules=RULES) for _ in range(2))
    assert first == second


def test_thousands_of_ranks_fit_a_small_page_quickly(large: Document) -> None:
    start = time.perf_counter()
    text = html(large, RULES)
    assert time.perf_counter() - start < 5
    assert len(text.encode()) < 1_000_000
    assert "24 of 4 096 ranks: 8 with the most work of their own" in text
    assert "The 32 ranks of 4 096 that were late most" in text
    assert "... and 4 056 more in the JSON report." in text
    Page(text)
    for chart in drawings(text):
        assert len(list(chart.iter("rect"))) < 400


def test_ranks_of_few_hosts_are_grouped_by_host() -> None:
    text = html(from_raw(raw(64, steps=2, per_host=8)))
    assert "64 ranks grouped by host: median over the host" in text
    assert "node-7 (8)" in text


def test_many_steps_share_bars_and_one_long_step_is_cut() -> None:
    text = html(from_raw(raw(2, steps=100, per_host=2)))
    assert "100 steps, 3 to a bar: medians." in text
    assert "\u2191 1.2" in html(documents.rich_document())
