"""A comparison as plain text and as Markdown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from diagnose.report import view
from diagnose.report.compare_tables import KIND, sheets
from diagnose.report.markdown import code, escape
from diagnose.report.view import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.report.compare_document import CompareDocument
    from diagnose.report.document import FindingEntry
    from diagnose.report.sheet import Sheet

WIDTH, ROWS = 100, 8
MARKDOWN_ROWS = 20


def headline(report: CompareDocument) -> str:
    """The verdict in one line."""
    return f"{KIND[report.outcome.change]}: {report.outcome.text}"


def text(report: CompareDocument) -> str:
    """At most 100 columns, readable without colour."""
    lines = [*_wrap(headline(report)), *_wrap(clean(report.attribution.text)), *_wrap(clean(report.outcome.detail))]
    for finding in report.findings:
        if finding.code != "COMPARE-STEP" and finding.severity != "info":
            lines += _wrap(f"{finding.severity.upper()} {clean(finding.message)} [{finding.code}]", "  ")
    for word, findings in _changes(report):
        lines += ["", f"Findings of the runs, {word}"]
        lines += [line for finding in findings[:ROWS] for line in _wrap(_entry(finding), "  ")]
    for table in sheets(report, ROWS, 44):
        lines += _table(table.narrow())
    for gap in report.not_compared:
        lines += _wrap(f"Not compared: {clean(gap)}")
    return "\n".join(line.rstrip() for line in lines if line is not None) + "\n"


def markdown(report: CompareDocument) -> str:
    """GitHub-flavoured, for a pull request or a step summary."""
    lines = [f"## {escape(headline(report))}", ""]
    lines += [f"{escape(part)}\n" for part in (report.attribution.text, report.outcome.detail) if part]
    for finding in report.findings:
        if finding.code != "COMPARE-STEP":
            lines.append(f"- **{finding.severity.upper()}** {escape(finding.message)} ({escape(finding.code)})")
    for word, findings in _changes(report):
        lines += [
            "",
            f"### Findings of the runs, {word}",
            "",
            *(f"- {escape(_entry(finding))}" for finding in findings[:MARKDOWN_ROWS]),
        ]
    for table in sheets(report, MARKDOWN_ROWS):
        if table.rows:
            lines += ["", f"### {escape(table.title)}", "", *_markdown_table(table)]
    lines += ["", *(f"Not compared: {escape(gap)}\n" for gap in report.not_compared)]
    lines.append(f"<sub>{escape(report.tool.name)} {escape(report.tool.version)}, {report.schema}</sub>")
    return "\n".join(lines) + "\n"


def _changes(report: CompareDocument) -> Iterator[tuple[str, tuple[FindingEntry, ...]]]:
    for word in ("new", "worse", "resolved"):
        if findings := getattr(report.run_findings, word):
            yield word, findings


def _entry(finding: FindingEntry) -> str:
    about = view.subject(finding)
    return f"{finding.severity.upper()} {clean(finding.title)}{f' ({about})' if about else ''}: {clean(finding.message)} [{finding.code}]"


def _wrap(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(line, WIDTH, initial_indent=indent, subsequent_indent=indent) if line else []


def _table(table: Sheet) -> list[str]:
    if not table.rows:
        return []
    heads = tuple(column.title for column in table.columns)
    widths = [max(len(row[index]) for row in (heads, *table.rows)) for index in range(len(heads))]

    def line(row: tuple[str, ...]) -> str:
        cells = (
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        )
        return f"  {'  '.join(cells)}"

    more = [f"  ... and {table.left} more (see --format json)"] if table.left else []
    return ["", table.title, line(heads), *(line(row) for row in table.rows), *more]


def _markdown_table(table: Sheet) -> list[str]:
    lines = ["| " + " | ".join(escape(column.title) for column in table.columns) + " |"]
    lines.append("|" + "|".join("--:" if column.number else "---" for column in table.columns) + "|")
    for row in table.rows:
        cells = (
            code(cell).replace("|", "\\|") if column.name else escape(cell)
            for column, cell in zip(table.columns, row, strict=True)
        )
        lines.append("| " + " | ".join(cells) + " |")
    notes = " ".join(
        note
        for note in (f"... and {table.left} more in the JSON report." if table.left else "", escape(table.note))
        if note
    )
    return [*lines, *(["", notes] if notes else [])]
