"""The report as GitHub-flavoured Markdown for a pull request, an issue or a step summary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.report import tables, view
from diagnose.report.view import clean
from diagnose.units import format_count, format_ns, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.report.document import Document
    from diagnose.report.sheet import Column, Sheet
    from diagnose.report.view import Folded

LIMIT_BYTES = 60_000
"""A comment on GitHub holds 65 536 characters; below it with room for a caller's own words."""
ROWS, FINDINGS = 20, 30

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#&!$])")


def markdown(document: Document, app_address: str | None = None) -> str:
    """The report, cut at a section when it grows beyond `LIMIT_BYTES`."""
    cut = "\n_The rest is in the JSON report (`--format json`)._\n"
    room = LIMIT_BYTES - len(cut)
    kept: list[str] = []
    for block in _blocks(document, app_address):
        size = len(block.encode()) + 1
        if size > room:
            return "\n".join([*kept, cut])
        room -= size
        kept.append(block)
    return "\n".join(kept)


def escape(text: object) -> str:
    """Text in which nothing is markup; an @ notifies nobody."""
    return _SPECIAL.sub(r"\\\1", clean(text)).replace("@", "@<!-- -->")


def code(text: object) -> str:
    """A foreign name as a code span that it cannot leave."""
    name = clean(text)
    if not name:
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", name)), default=0) + 1)
    return f"{fence} {name} {fence}" if "`" in name else f"{fence}{name}{fence}"


def _blocks(document: Document, app_address: str | None) -> Iterator[str]:
    verdict = document.verdict
    first, rest = view.verdict_parts(document)
    yield f"## {escape(first)}\n"
    if rest:
        yield f"{escape(rest)}\n"
    bound = view.NETWORK_BOUND[verdict.network_bound]
    yield f"Bottleneck: **{escape(verdict.bottleneck)}**. Network-bound: **{bound}**.\n"
    yield f"Run {code(view.shorten(document.run.name, 80))}: {escape(', '.join(view.run_facts(document)))}.\n"
    if lost := view.missing(document):
        yield f"**{escape(lost)}**\n"
    yield _step_time(document)
    folded = view.fold(document.findings)
    yield "### Findings, by lost time\n" if folded else "### Findings: none\n"
    for item in folded[:FINDINGS]:
        yield _finding(document, item, app_address)
    if len(folded) > FINDINGS:
        yield f"... and {format_count(len(folded) - FINDINGS)} more in the JSON report.\n"
    for make in (tables.what_if, tables.who_waits, tables.tiers, tables.suspects, tables.collectives):
        yield from _sheet(make(document, ROWS))
    if transports := tables.transports(document):
        yield f"### Transports\n\n{escape(transports)}\n"
    if document.not_checked:
        yield "### Not checked\n"
        for open_ in document.not_checked:
            yield f"- **{escape(open_.question)}** {escape(open_.why)} To collect: {code(open_.collect)}"
        yield ""
    yield f"### Data quality\n\n{escape(tables.source_counts(document))}.\n"
    yield from _sheet(tables.problems(document, ROWS))
    yield from _sheet(tables.issues(document, ROWS))
    yield f"<sub>{escape(document.tool.name)} {escape(document.tool.version)}, {document.schema}</sub>\n"


def _step_time(document: Document) -> str:
    step_time = document.step_time
    parts = view.slices(step_time.breakdown)
    if not parts:
        return "### Step time: unknown\n\nNo step was found in the inputs.\n"
    total = sum(item.ns for item in parts)
    lines = [
        f"### Step time {format_ns(step_time.median_ns)} (median)",
        "",
        "| Part | Time per step | Share |",
        "|---|--:|--:|",
    ]
    lines += [f"| {item.part.label} | {format_ns(item.ns)} | {format_ratio(item.ns / total)} |" for item in parts]
    notes = []
    if step_time.breakdown.overlapped_comm_ns:
        notes.append(f"Hidden communication: {format_ns(step_time.breakdown.overlapped_comm_ns)}.")
    if step_time.breakdown.blocking_comm_ns is not None:
        notes.append(f"Transfer that holds the step up: {format_ns(step_time.breakdown.blocking_comm_ns)}.")
    notes.append(f"Window: {escape(step_time.window)}." if step_time.window else "")
    notes += [f"Not counted: {steps} ({escape(why)})." for why, steps in view.exclusions(document)[:10]]
    return "\n".join([*lines, "", " ".join(note for note in notes if note), ""])


def _finding(document: Document, item: Folded, app_address: str | None) -> str:
    finding = item.finding
    title = f"#### {finding.severity.upper()}: {escape(finding.title)} ({escape(finding.code)})"
    facts = [
        f"Costs {price}" if (price := view.cost(finding.impact)) else "",
        escape(view.subject(finding)),
        f"confidence {format_ratio(finding.confidence)}",
    ]
    lines = [title, "", escape(finding.message), "", f"_{'; '.join(fact for fact in facts if fact)}._", ""]
    for fact in finding.evidence[:ROWS]:
        source = f" ({code(view.shorten(fact.source, 80))})" if fact.source else ""
        lines.append(f"- {escape(view.evidence_text(fact))}{source}")
    lines += [f"- [ ] {escape(action)}" for action in finding.actions]
    if item.explained:
        titles = list(dict.fromkeys(f"{other.title} ({other.code})" for other in item.explained))
        lines += ["", f"Explains: {escape(view.names(titles, 8))}."]
    if address := view.app_link(document, finding, app_address):
        lines += ["", f"[Open in the app](<{address}>)"]
    return "\n".join([*lines, "", f"<sub>fingerprint {escape(finding.fingerprint)}</sub>", ""])


def _sheet(sheet: Sheet) -> Iterator[str]:
    if not sheet.rows:
        return
    lines = [
        f"### {escape(sheet.title)}",
        "",
        "| " + " | ".join(escape(column.title) for column in sheet.columns) + " |",
        "|" + "|".join("--:" if column.number else "---" for column in sheet.columns) + "|",
    ]
    for row in sheet.rows:
        cells = (_cell(cell, column) for column, cell in zip(sheet.columns, row, strict=True))
        lines.append("| " + " | ".join(cells) + " |")
    notes = [f"... and {format_count(sheet.left)} more in the JSON report." if sheet.left else "", escape(sheet.note)]
    yield "\n".join([*lines, "", " ".join(note for note in notes if note), ""])


def _cell(text: str, column: Column) -> str:
    # A table is split at its pipes before code spans are read.
    return code(text).replace("|", "\\|") if column.name else escape(text)
