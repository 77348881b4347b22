"""A comparison as one HTML file: no script, nothing loaded, everything escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from diagnose.report import svg, view
from diagnose.report.aggregate import Bar
from diagnose.report.compare_tables import KIND, sheets
from diagnose.report.compare_text import headline
from diagnose.units import format_count

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

    from diagnose.report.compare_document import CompareDocument

ROWS = 60


def html(report: CompareDocument) -> str:
    """The page."""
    page = _template().render(
        report=report, headline=headline(report), kind=KIND[report.outcome.change], tables=[table for table in sheets(report, ROWS, 90) if table.rows],
        charts=[(title, chart) for view_name, title in _VIEWS if (chart := _bars(report, view_name))],
        keys=[part for part in view.PARTS if any(item.part == part.key for item in report.parts)], subject=view.subject,
        evidence_text=view.evidence_text,
        changes=[(word, getattr(report.run_findings, word)) for word in ("new", "worse", "resolved") if getattr(report.run_findings, word)],
    )  # fmt: skip
    return page if page.endswith("\n") else page + "\n"


@cache
def _template() -> Template:
    """Compiled once a process: that takes longer than to fill it in."""
    environment = Environment(
        loader=PackageLoader("diagnose.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"clean": view.clean, "count": format_count}
    return environment.get_template("compare.html.j2")


_VIEWS = (("median", "Median rank"), ("critical", "Rank that nobody waits for"))


def _bars(report: CompareDocument, view_name: str) -> Markup | None:
    """Before above now, the parts side by side."""
    items = {item.part: item for item in report.parts if item.view == view_name}
    if not items:
        return None
    sides = (("before", "base_ns"), ("now", "new_ns"))
    bars = [
        Bar(
            label,
            tuple(view.Slice(part, getattr(items[part.key], field) or 0.0) for part in view.PARTS if part.key in items),
        )
        for label, field in sides
    ]
    bars = [Bar(bar.label, tuple(item for item in bar.slices if item.ns > 0)) for bar in bars]
    return svg.stacked_bars(bars, "Parts of the step before and now")
