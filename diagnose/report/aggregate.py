"""Fit charts to a page: at most so many marks, each reduction said in the caption."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from diagnose.report import view
from diagnose.report.view import Slice, count_of, shorten
from diagnose.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diagnose.report.document import Document
    from diagnose.report.measures import AnyParts, RankParts, StepParts

BARS = 24
COLUMNS = 40
HEAT_ROWS, HEAT_COLUMNS = 32, 40
POINTS = 150


class Bar(NamedTuple):
    """One stacked bar; ``off`` marks what no median uses, ``note`` says why."""

    label: str
    slices: tuple[Slice, ...]
    off: bool = False
    note: str = ""


class Heat(NamedTuple):
    """Values of a rank by step grid, the highest kept where cells were joined."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


def rank_bars(document: Document) -> tuple[tuple[Bar, ...], str]:
    """One bar a rank; many ranks: one a host; many hosts: the ranks with most, median and least own work."""
    rows = document.step_time.per_rank
    if len(rows) <= BARS:
        return tuple(Bar(_rank(row), view.slices(row)) for row in rows), "Each rank, median over the steps used."
    by_host: dict[str, list[RankParts]] = {}
    for row in rows:
        by_host.setdefault(row.host or "", []).append(row)
    if "" not in by_host and 1 < len(by_host) <= BARS:
        bars = tuple(
            Bar(f"{shorten(host, 14)} ({len(group)})", merged(group)) for host, group in sorted(by_host.items())
        )
        return bars, f"{format_count(len(rows))} ranks grouped by host: median over the host's ranks (their number)."
    ordered = sorted(rows, key=lambda row: (-own_work(row), row.rank if row.rank is not None else -1))
    third = BARS // 3
    middle = (len(ordered) - third) // 2
    picked = [*ordered[:third], *ordered[middle : middle + third], *ordered[-third:]]
    caption = (
        f"{len(picked)} of {format_count(len(rows))} ranks: {third} with the most work of their own "
        f"(time not spent waiting for peers), {third} around the median, {third} with the least."
    )
    return tuple(Bar(_rank(row), view.slices(row)) for row in picked), caption


def step_bars(document: Document) -> tuple[tuple[Bar, ...], str]:
    """One bar a step, median over ranks; many steps: one a run of steps."""
    by_step: dict[int, list[StepParts]] = {}
    for row in document.step_time.per_step:
        by_step.setdefault(row.step, []).append(row)
    steps = sorted(by_step)
    if not steps:
        return (), ""
    size = -(-len(steps) // COLUMNS)
    bars = [_step_bar(steps[start : start + size], by_step) for start in range(0, len(steps), size)]
    ranks = max(len(rows) for rows in by_step.values())
    caption = f"Each step, median over {count_of(ranks, 'rank')}." if ranks > 1 else "Each step."
    if size > 1:
        caption = f"{format_count(len(steps))} steps, {size} to a bar: medians."
    return tuple(bars), caption + (" Faded bars are not counted." if any(bar.off for bar in bars) else "")


def heat(document: Document) -> tuple[Heat, str] | None:
    """The latest ranks by step, in rank order; joined steps keep their highest value."""
    lateness = document.charts.lateness if document.charts else None
    if lateness is None or not lateness.ranks or not lateness.steps:
        return None
    rows = list(zip(lateness.ranks, lateness.late_ns, strict=False))
    caption = "How much later than the first peer a rank entered its collectives."
    if len(rows) > HEAT_ROWS:
        caption += f" The {HEAT_ROWS} ranks of {format_count(len(rows))} that were late most."
        rows = sorted(rows, key=lambda row: (-sum(value or 0 for value in row[1]), row[0]))[:HEAT_ROWS]
        rows.sort(key=lambda row: row[0])
    size = -(-len(lateness.steps) // HEAT_COLUMNS)
    if size > 1:
        caption += f" {size} steps to a cell: the highest."
    starts = range(0, len(lateness.steps), size)
    values = tuple(tuple(_highest(late[start : start + size]) for start in starts) for _, late in rows)
    columns = tuple(str(lateness.steps[start]) for start in starts)
    return Heat(tuple(f"rank {rank}" for rank, _ in rows), columns, values), caption


def thin(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """At most `POINTS` points, evenly over the sorted sizes; both must be above zero for a logarithm."""
    good = sorted((float(x), float(y)) for x, y in points if x and y and x > 0 and y > 0)
    if len(good) <= POINTS:
        return tuple(good)
    return tuple(good[round(index * (len(good) - 1) / (POINTS - 1))] for index in range(POINTS))


def merged(rows: Iterable[AnyParts]) -> tuple[Slice, ...]:
    """The median of every part; a part that some rows lack counts as zero there."""
    all_slices = [{item.part.key: item.ns for item in view.slices(row)} for row in rows]
    parts = (Slice(part, median(found.get(part.key, 0) for found in all_slices)) for part in view.PARTS)
    return tuple(item for item in parts if item.ns > 0)


def own_work(row: RankParts) -> float:
    """Time the rank was busy or idle by itself: everything but waiting for peers."""
    waiting = row.exposed_wait_ns if row.exposed_wait_ns is not None else (row.exposed_comm_ns or 0)
    return sum(item.ns for item in view.slices(row)) - waiting


def _step_bar(steps: Sequence[int], by_step: dict[int, list[StepParts]]) -> Bar:
    rows = [row for step in steps for row in by_step[step]]
    label = str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    labels = sorted({row.label for row in rows})
    normal = [row for row in rows if row.label == "normal"]
    # A step is off when most of its ranks say so; what is joined shows only the counted steps.
    off = len(normal) * 2 <= len(rows)
    return Bar(label, merged(rows if off else normal), off=off, note=", ".join(labels) if off else "")


def _rank(row: RankParts) -> str:
    return "the only rank" if row.rank is None else f"rank {row.rank}"


def _highest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None
