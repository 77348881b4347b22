"""The tables of a comparison, the same in every format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.compare.attribute import WORDS
from diagnose.analysis.compare.outcome import signed
from diagnose.findings.compare import collective_name
from diagnose.report.sheet import Column, Sheet, sheet
from diagnose.report.view import clean, shorten
from diagnose.units import format_ns, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.compare.result import Item, PartItem
    from diagnose.report.compare_document import CompareDocument

_NUMBERS = (
    Column("before", number=True),
    Column("now", number=True),
    Column("change", number=True),
    Column("of the step", number=True),
)
_CERTAIN = Column("chance", number=True, wide=True)
_VERDICT = Column("")
KIND = {"regression": "SLOWER", "improvement": "FASTER", "equivalent": "NO CHANGE", "inconclusive": "NO CHANGE SHOWN"}


def sheets(report: CompareDocument, limit: int, name_length: int = 60) -> Iterator[Sheet]:
    """Every table with rows; the tables of parts first, what changed first in each."""
    yield _runs(report, limit)
    for view, title, note in (
        ("median", "Parts of the step, median rank", ""),
        ("critical", "Parts of the step, rank that nobody waits for", "This rank sets the pace of each step."),
    ):
        items = [item for item in report.parts if item.view == view and (item.base_ns or item.new_ns)]
        yield sheet(
            title, (Column("part"), *_NUMBERS, _CERTAIN, _VERDICT), [_part(item) for item in items], limit, note
        )
    note = "Own work waits for nobody; each rank against the one of its run below which a quarter of the ranks lie."
    ranks = [(f"{item.rank}{f' ({clean(item.host)})' if item.host else ''}", *_numbers(item)) for item in report.ranks]
    yield sheet(
        "Own work of ranks, beyond the others", (Column("rank"), *_NUMBERS, _CERTAIN, _VERDICT), ranks, limit, note
    )
    hosts = [(shorten(item.host, 40), *_numbers(item)) for item in report.hosts]
    yield sheet(
        "Own work of hosts, beyond the others", (Column("host", name=True), *_NUMBERS, _CERTAIN, _VERDICT), hosts, limit
    )
    kernels = [
        (shorten(item.name, name_length), *_numbers(item, item.state)) for item in report.kernels if _worth(item)
    ]
    yield sheet(_kernel_title(report), (Column("kernel", name=True), *_NUMBERS, _CERTAIN, _VERDICT), kernels, limit)
    collectives = [
        (shorten(collective_name(item), name_length), *_numbers(item, item.state)) for item in report.collectives
    ]
    note = "Before and now: one call without waiting. Change: all calls of a step."
    yield sheet(
        "Collectives, transfer",
        (Column("collective", name=True), *_NUMBERS, _CERTAIN, _VERDICT),
        collectives,
        limit,
        note,
    )
    transports = [
        (
            clean(item.transport),
            format_ratio(item.base_ratio),
            format_ratio(item.new_ratio),
            "changed" if item.changed else "",
        )
        for item in report.transports
    ]
    columns = (Column("transport", name=True), Column("before", number=True), Column("now", number=True), _VERDICT)
    yield sheet("Transports, share of the connections", columns, transports, limit)
    settings = [
        (clean(item.what), shorten(item.base, name_length), shorten(item.new, name_length))
        for item in report.configuration
    ]
    yield sheet(
        "Set up differently", (Column("what"), Column("before", name=True), Column("now", name=True)), settings, limit
    )


def _runs(report: CompareDocument, limit: int) -> Sheet:
    rows = [
        (side, shorten(run.name, 40), format_ns(run.step_ns), f"±{format_ratio(run.error_ratio)}", str(run.steps_used))
        for side, runs in (("base", report.base), ("now", report.new))
        for run in runs
    ]
    columns = (
        Column("side"),
        Column("run", name=True),
        Column("median step", number=True),
        Column("from its steps", number=True),
        Column("steps", number=True),
    )
    return sheet("Runs", columns, rows, limit)


def _kernel_title(report: CompareDocument) -> str:
    rank = next((item.rank for item in report.kernels if item.rank is not None), None)
    return "Kernels, time per step" if rank is None else f"Kernels of rank {rank}, time per step"


def _worth(item: Item) -> bool:
    return item.changed or abs(item.step_ratio or 0) >= 0.002


def _part(item: PartItem) -> tuple[str, ...]:
    return (WORDS[item.part], *_numbers(item))


def _numbers(item: Item, state: str = "both") -> tuple[str, ...]:
    chance = "n/a" if item.p_corrected is None else "< 0.001" if item.p_corrected < 0.001 else f"{item.p_corrected:.2g}"
    word = state if state != "both" else ("" if not item.changed else "more" if (item.change_ns or 0) > 0 else "less")
    return (
        format_ns(item.base_ns),
        format_ns(item.new_ns),
        _signed(item.change_ns),
        _signed_ratio(item.step_ratio),
        chance,
        word,
    )


def _signed(value: float | None) -> str:
    return format_ns(value) if value is None or value <= 0 else f"+{format_ns(value)}"


def _signed_ratio(value: float | None) -> str:
    return format_ratio(value) if value is None else signed(value)
