"""The report on a terminal or in a log file: plain ASCII structure, at most 100 columns, readable without colour."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from diagnose.report import tables, view
from diagnose.report.view import clean
from diagnose.units import format_count, format_ns, format_ratio, glue_units

if TYPE_CHECKING:
    from rich.console import Console

    from diagnose.report.document import Document, FindingEntry
    from diagnose.report.sheet import Sheet
    from diagnose.report.view import Folded, Slice

WIDEST = 100
"""Longer lines are hard to read, however wide the terminal."""
FINDINGS, NOTES, EVIDENCE, ACTIONS, NOT_CHECKED, ROWS = 8, 5, 4, 3, 6, 5
MORE = "(see --format json)"

_TO_COLLECT = "To collect: "
_GLUE = "\ue000"
"""Stands for the blank before a unit while lines are broken; reports hold no private characters."""

_UUID = re.compile(r"\b(GPU|MIG)-([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
"""Lines of these hide what they say; the first eight digits find the device in `nvidia-smi -L`, JSON has all of them."""

_SEVERITY_STYLE = {"critical": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_PART_STYLE = {
    "compute": "blue",
    "exposed_wait": "yellow",
    "exposed_transfer": "red",
    "exposed_comm": "red",
    "exposed_memcpy": "magenta",
    "idle_input": "green",
    "idle_host": "cyan",
    "idle_sync": "bright_black",
    "idle_bubble": "bright_yellow",
    "idle_other": "bright_black",
}


def print_report(document: Document, console: Console) -> None:
    """Print the whole report on the console; nothing moves, nothing waits."""
    page = _Page(console)
    _head(page, document)
    _step_time(page, document)
    _findings(page, view.fold(document.findings))
    for sheet in (
        tables.what_if(document, ROWS + 3),
        tables.who_waits(document, ROWS),
        tables.tiers(document, ROWS + 3),
        tables.suspects(document, ROWS),
    ):
        page.sheet(sheet)
    if transports := tables.transports(document):
        page.heading("Transports")
        page.block(transports, indent=2)
    _not_checked(page, document)
    _data_quality(page, document)


class _Page:
    """Lines on a console: wrapped with an indent, never longer than its width."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(20, min(console.width, WIDEST))

    def block(self, text: str, *, indent: int = 0, mark: str = "", style: str = "") -> None:
        """Wrapped text; ``mark`` stands before its first line."""
        lead = " " * indent + mark
        text = _UUID.sub(r"\1-\2", text)
        lines = Text(glue_units(text, _GLUE)).wrap(self.console, self.width - len(lead))
        for number, line in enumerate(lines):
            whole = Text(line.plain.rstrip().replace(_GLUE, " "), style=style)
            self.line(Text(lead if number == 0 else " " * len(lead)) + whole)

    def line(self, text: Text) -> None:
        """One line as it is."""
        self.console.print(text, soft_wrap=True)

    def blank(self) -> None:
        """An empty line."""
        self.console.print()

    def heading(self, text: str) -> None:
        """A section's first line."""
        self.blank()
        self.line(Text(text, style="bold"))

    def more(self, number: int, indent: int = 2) -> None:
        """What was left out, if anything."""
        if number > 0:
            self.block(f"... and {format_count(number)} more {MORE}", indent=indent, style="dim")

    def sheet(self, sheet: Sheet) -> None:
        """A table without its wide columns, and what was cut from it."""
        narrow = sheet.narrow()
        if not narrow.rows:
            return
        self.heading(narrow.title)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in narrow.columns:
            table.add_column(
                column.title,
                justify="right" if column.number else "left",
                no_wrap=column.number,
                overflow="fold",
            )
        for row in narrow.rows:
            table.add_row(*(Text(cell) for cell in row))
        self.console.print(table, width=self.width)
        self.more(narrow.left)
        if narrow.note:
            self.block(narrow.note, indent=2, style="dim")


def _head(page: _Page, document: Document) -> None:
    verdict = document.verdict
    first, rest = view.verdict_parts(document)
    page.block(first, style="bold")
    if rest:
        page.block(rest)
    bound = view.NETWORK_BOUND[verdict.network_bound]
    page.block(f"Bottleneck: {clean(verdict.bottleneck)}. Network-bound: {bound}.")
    page.block(f"{view.shorten(document.run.name, 40)}: {', '.join(view.run_facts(document))}")
    if lost := view.missing(document):
        page.block(lost, style="yellow")


def _step_time(page: _Page, document: Document) -> None:
    step_time = document.step_time
    parts = view.slices(step_time.breakdown)
    if step_time.median_ns is None and not parts:
        page.heading("Step time: unknown")
        page.block("No step was found in the inputs, so nothing is said about where time goes.", indent=2)
        return
    if step_time.median_ns is None:
        page.heading(f"Whole trace {format_ns(sum(item.ns for item in parts))}, no complete step")
    else:
        page.heading(f"Step time {format_ns(step_time.median_ns)} (median)")
    if parts:
        page.line(_bar(parts, page.width - 4))
        _legend(page, parts)
    breakdown = step_time.breakdown
    if breakdown.overlapped_comm_ns:
        page.block(f"Communication hidden behind compute: {format_ns(breakdown.overlapped_comm_ns)}", indent=2)
    if breakdown.blocking_comm_ns is not None:
        page.block(f"Transfer that holds the step up: {format_ns(breakdown.blocking_comm_ns)}", indent=2)
    if breakdown.idle_ns is None and parts:
        page.block("Idle time is unknown: the capture lost device records.", indent=2)
    if step_time.window:
        page.block(f"Window: {clean(step_time.window)}", indent=2, style="dim")
    for why, steps in view.exclusions(document)[:3]:
        page.block(f"Not counted: {steps} ({why})", indent=2, style="dim")


def _bar(parts: tuple[Slice, ...], width: int) -> Text:
    bar = Text("  [")
    for part, count in zip(parts, view.cells([item.ns for item in parts], width - 2), strict=True):
        bar.append(part.part.letter * count, style=_PART_STYLE[part.part.key])
    return bar + Text("]")


def _legend(page: _Page, parts: tuple[Slice, ...]) -> None:
    total = sum(item.ns for item in parts)
    entries = []
    for item in parts:
        entry = Text("  ")
        entry.append(item.part.letter, style=_PART_STYLE[item.part.key])
        entry.append(f" {item.part.label:<18} {format_ns(item.ns):>7} {format_ratio(item.ns / total):>6}")
        entries.append(entry)
    columns = 2 if page.width >= 80 else 1
    rows = -(-len(entries) // columns)
    for row in range(rows):  # down the first column, then the second
        page.line(Text("").join(entries[row::rows]))


def _findings(page: _Page, folded: tuple[Folded, ...]) -> None:
    if not folded:
        page.heading("Findings: none")
        return
    loud = [item for item in folded if item.finding.severity != "info"]
    if loud:
        page.heading("Findings, by lost time")
    for number, item in enumerate(loud[:FINDINGS]):
        if number:
            page.blank()
        _finding(page, item)
    page.more(len(loud) - FINDINGS)
    quiet = [item.finding for item in folded if item.finding.severity == "info"]
    if quiet:
        page.heading("Also noted" if loud else "Findings: none above info. Noted")
    for finding in quiet[:NOTES]:
        text = view.cut(finding.message, 200)
        page.block(f"{clean(finding.title)} [{clean(finding.code)}]: {text}", indent=2, mark="- ")
    page.more(len(quiet) - NOTES)


def _finding(page: _Page, item: Folded) -> None:
    finding = item.finding
    word = finding.severity.upper()
    head = Text()
    head.append(f"{clean(finding.title)} ", style="bold")
    head.append(f"[{clean(finding.code)}]", style="dim")
    lines = head.wrap(page.console, page.width - 10)
    for number, line in enumerate(lines):
        line.rstrip()
        page.line(Text(f"{word:<10}" if number == 0 else " " * 10, style=_SEVERITY_STYLE[finding.severity]) + line)
    page.block(clean(finding.message), indent=2)
    facts = []
    if price := view.cost(finding.impact):
        facts.append(f"Costs {price}")
    elif finding.severity != "info":
        facts.append("Cost unknown")
    if about := view.subject(finding):
        facts.append(about)
    facts.append(f"confidence {format_ratio(finding.confidence)}")
    page.block("; ".join(facts) + ".", indent=2)
    for fact in finding.evidence[:EVIDENCE]:
        source = f" [{view.shorten(fact.source, 40)}]" if fact.source else ""
        page.block(view.evidence_text(fact) + source, indent=4, mark="- ")
    page.more(len(finding.evidence) - EVIDENCE, indent=4)
    for number, action in enumerate(finding.actions[:ACTIONS]):
        page.block(clean(action), indent=2, mark="Do: " if number == 0 else "    ", style="green")
    page.more(len(finding.actions) - ACTIONS, indent=6)
    if item.explained:
        page.block(f"Explains: {_explained(item.explained)}", indent=2, style="dim")


def _explained(findings: tuple[FindingEntry, ...]) -> str:
    pieces = [f"{clean(finding.title)} [{clean(finding.code)}]" for finding in findings]
    distinct = list(dict.fromkeys(pieces))
    text = ", ".join(f"{piece} x{number}" if (number := pieces.count(piece)) > 1 else piece for piece in distinct[:4])
    return f"{text} ... and {len(distinct) - 4} more" if len(distinct) > 4 else text


def _not_checked(page: _Page, document: Document) -> None:
    if not document.not_checked:
        return
    page.heading("Not checked")
    for item in document.not_checked[:NOT_CHECKED]:
        page.block(f"{clean(item.question)} {clean(item.why)}", indent=2, mark="- ")
        if item.collect:
            page.block(_collect(page, clean(item.collect)), indent=4, mark=_TO_COLLECT, style="dim")
    page.more(len(document.not_checked) - NOT_CHECKED)


def _collect(page: _Page, text: str) -> str:
    """The command, but not one that a line break would spoil for copying."""
    room = page.width - 4 - len(_TO_COLLECT)
    return text if all(len(word) <= room for word in text.split()) else "`diagnose inspect PATH...` prints the commands"


def _data_quality(page: _Page, document: Document) -> None:
    page.heading("Data quality")
    page.block(f"Inputs: {tables.source_counts(document)}", indent=2)
    problems, issues = tables.problems(document, 3), tables.issues(document, 3)
    for path, _kind, status, problem in problems.rows:
        page.block(f"{status}: {path}{f' ({problem})' if problem else ''}", indent=2, mark="- ")
    page.more(problems.left)
    for severity, code, count, example in issues.rows:
        page.block(f"{severity}: {code}, count {count}{f', e.g. {example}' if example else ''}", indent=2, mark="- ")
    page.more(issues.left)
