"""The report as one HTML file: inline CSS and SVG, no script, nothing loaded, everything escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from diagnose.report import aggregate, sheet, svg, tables, view
from diagnose.report.document import scaling
from diagnose.units import format_count, format_ns, format_ratio, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2 import Template
    from markupsafe import Markup

    from diagnose.findings.rules import Rule, Threshold
    from diagnose.report.document import Document
    from diagnose.report.sheet import Sheet

ROWS, FINDINGS, EXPLAINED, CHARTS = 100, 60, 20, 6

_MEANING = {
    "compute": "Some compute kernel runs on the device.",
    "exposed_wait": "Only communication runs, and it waits for peers that are not there yet.",
    "exposed_transfer": "Only communication runs, and it moves data.",
    "exposed_comm": "Only communication runs; waiting and moving could not be told apart.",
    "exposed_memcpy": "Only copies run.",
    "idle_input": "Nothing runs on the device; the host waits for the data loader.",
    "idle_host": "Nothing runs on the device; the host launched the next kernel late.",
    "idle_sync": "Nothing runs on the device; the host waited for the device before it went on.",
    "idle_bubble": "Nothing runs on the device; a pipeline stage waits for its neighbours.",
    "idle_other": "Nothing runs on the device, for no reason seen in the trace.",
}


class Chart(NamedTuple):
    """A drawing and what was done to the data in it."""

    svg: Markup
    caption: str
    title: str = ""


def html(document: Document, rules: Iterable[Rule] = (), app_address: str | None = None) -> str:
    """The page. ``rules`` add to each finding how it is judged; ``app_address`` adds a link to it in the app."""
    page = _template().render(**_page(document, rules, app_address))
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
    environment.filters |= {"ns": format_ns, "ratio": format_ratio, "count": format_count, "clean": view.clean}
    environment.globals["count_of"] = view.count_of
    return environment.get_template("report.html.j2")


def _page(document: Document, rules: Iterable[Rule], app_address: str | None) -> dict[str, Any]:
    folded = view.fold(document.findings)
    parts = view.slices(document.step_time.breakdown)
    total = sum(item.ns for item in parts)
    found = scaling(document)
    return {
        "document": document,
        "verdict": view.verdict_parts(document),
        "network_bound": view.NETWORK_BOUND[document.verdict.network_bound],
        "facts": view.run_facts(document),
        "missing": view.missing(document),
        "exclusions": view.exclusions(document),
        "findings": folded[:FINDINGS],
        "findings_left": max(0, len(folded) - FINDINGS),
        "explained_limit": EXPLAINED,
        "judged": {rule.code: _judged(rule) for rule in rules},
        "subject": view.subject,
        "cost": view.cost,
        "evidence_text": view.evidence_text,
        "app_link": lambda finding: view.app_link(document, finding, app_address),
        "parts": [(item.part, format_ns(item.ns), format_ratio(item.ns / total)) for item in parts],
        "share_bar": svg.share_bar(parts, "Parts of the step"),
        "rank_chart": Chart(
            svg.stacked_bars((bars := aggregate.rank_bars(document))[0], "Step time per rank"), bars[1]
        ),
        "step_chart": Chart(
            svg.step_strip((steps := aggregate.step_bars(document))[0], "Step time per step"), steps[1]
        ),
        "heat_chart": _heat(document),
        "busbw_charts": list(_busbw(document)),
        "rank_sheet": _ranks(document),
        "who_waits": tables.who_waits(document, 20),
        "collectives": tables.collectives(document, ROWS),
        "tiers": tables.tiers(document, ROWS),
        "suspects": tables.suspects(document, ROWS),
        "clocks": tables.clocks(document, 50),
        "what_if": tables.what_if(document, ROWS),
        "transports": tables.transports(document),
        "transport_hosts": sheet.objects("Per host", document.transports.per_host, 50),
        "interfaces": sheet.mapping("Interfaces", document.transports.interfaces, 50),
        "scaling": tables.scaling(found) if found else (),
        "scaling_warnings": [view.shorten(text, view.LONGEST) for text in (found.warnings if found else ())][:10],
        "nodes": tables.nodes(document, 50),
        "node_lines": _sparklines(document),
        "problems": tables.problems(document, 30),
        "issues": tables.issues(document, 30),
        "sources": tables.source_counts(document),
        "meanings": [(part, _MEANING[part.key]) for part in view.PARTS],
    }


def _judged(rule: Rule) -> dict[str, Any]:
    """Meaning and thresholds of a rule in words."""
    return {
        "meaning": rule.meaning,
        "thresholds": [(name, _levels(item), item.why) for name, item in rule.thresholds.items()],
        "references": rule.references,
    }


def _levels(threshold: Threshold) -> str:
    levels = (("info", threshold.info), ("warning", threshold.warning), ("critical", threshold.critical))
    word = "at least" if threshold.direction == "above" else "at most"
    return ", ".join(
        f"{name} {word} {format_value(value, threshold.unit)}" for name, value in levels if value is not None
    )


def _heat(document: Document) -> Chart | None:
    found = aggregate.heat(document)
    return None if found is None else Chart(svg.heat_strip(found[0], "Lateness of ranks over steps"), found[1])


def _busbw(document: Document) -> Iterator[Chart]:
    for series in (document.charts.busbw if document.charts else ())[:CHARTS]:
        points, fit = aggregate.thin(series.points), aggregate.thin(series.fit or ())
        name = f"{view.shorten(series.collective, 40)}, {view.shorten(series.tier, 40)}"
        shown = f"{format_count(len(points))} of " if len(points) < len(series.points) else ""
        caption = f"{shown}{view.count_of(len(series.points), 'point')}{', fitted line' if fit else ''}."
        drawing = svg.scatter(points, fit, series.reference_bytes_per_s, f"Bus bandwidth of {name}")
        if drawing:
            yield Chart(drawing, caption, name)


def _ranks(document: Document) -> Sheet:
    ordered = sorted(document.step_time.per_rank, key=lambda row: (-aggregate.own_work(row), row.rank or 0))
    return tables.ranks(ordered, 40)


def _sparklines(document: Document) -> list[tuple[str, str, Markup]]:
    """Lists of numbers in the free-form node rows, drawn: node, key, line."""
    rows = document.charts.nodes if document.charts else None
    lines = []
    for row in [item for item in rows if isinstance(item, dict)][:20] if isinstance(rows, list | tuple) else []:
        name = view.shorten(next((value for value in row.values() if isinstance(value, str)), ""), 40)
        for key, value in row.items():
            if sheet.is_series(key, value):
                low, high = min(value), max(value)
                label = f"{view.clean(key).replace('_', ' ')}, {format_value(low, None)} to {format_value(high, None)}"
                lines.append((name, label, svg.sparkline(value, f"{name} {label}")))
    return lines
