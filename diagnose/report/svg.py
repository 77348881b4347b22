"""Charts as inline SVG: no script, colours by CSS class, letters and shapes besides colour, every name escaped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from diagnose.report import view
from diagnose.units import format_bytes, format_ns, format_rate, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.report.aggregate import Bar, Heat
    from diagnose.report.view import Slice

WIDTH = 900
LABEL = 130
"""Room for names at the left."""
LETTER = 13
"""A segment must be this wide to hold its letter."""
LEVELS = 5


class _Canvas:
    """Elements of one chart; coordinates are rounded so that files stay small."""

    def __init__(self, height: float, title: str, width: float = WIDTH) -> None:
        self._size = (width, height)
        self._title = title
        self._parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, css: str, tip: str = "") -> None:
        tail = f"><title>{escape(tip)}</title></rect>" if tip else "/>"
        box = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
        self._parts.append(f'<rect class="{escape(css)}" {box}{tail}')

    def text(self, x: float, y: float, text: str, css: str = "", turn: bool = False) -> None:  # noqa: FBT001, FBT002 - drawing primitive
        spin = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turn else ""
        self._parts.append(f'<text class="{escape(css)}" x="{_n(x)}" y="{_n(y)}"{spin}>{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
        self._parts.append(f'<line class="{escape(css)}" {ends}/>')

    def circle(self, x: float, y: float, css: str) -> None:
        self._parts.append(f'<circle class="{escape(css)}" cx="{_n(x)}" cy="{_n(y)}" r="3"/>')

    def path(self, points: Sequence[tuple[float, float]], css: str) -> None:
        listed = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline class="{escape(css)}" points="{listed}"/>')

    def done(self) -> Markup:
        width, height = self._size
        head = f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{escape(self._title)}">'
        return Markup(head + "".join(self._parts) + "</svg>")  # noqa: S704 - every text above went through escape()


def stacked_bars(bars: Sequence[Bar], title: str) -> Markup:
    """Horizontal stacked bars with a time axis."""
    if not bars:
        return Markup("")
    row, top = 22, 4
    bottom = top + row * len(bars)
    canvas = _Canvas(bottom + 40, title)
    longest = max(sum(item.ns for item in bar.slices) for bar in bars) or 1
    scale = (WIDTH - LABEL - 30) / longest
    for tick in _linear_ticks(longest):
        x = LABEL + tick * scale
        canvas.line(x, top, x, bottom, "grid")
        canvas.text(x, bottom + 14, format_ns(tick) if tick else "0", "tick mid")
    canvas.text(LABEL + (WIDTH - LABEL - 30) / 2, bottom + 32, "time per step", "axis mid")
    for number, bar in enumerate(bars):
        y = top + number * row
        canvas.text(LABEL - 6, y + 14, view.shorten(bar.label, 20), "label end")
        x = float(LABEL)
        for item in bar.slices:
            width = item.ns * scale
            canvas.rect(x, y + 2, width, row - 5, f"p-{item.part.key}", f"{bar.label}: {_tip(item)}")
            if width >= LETTER:
                canvas.text(x + width / 2, y + 14, item.part.letter, f"letter l-{item.part.key} mid")
            x += width
    return canvas.done()


def step_strip(bars: Sequence[Bar], title: str) -> Markup:
    """Upright stacked bars along the steps, what is not counted faded."""
    if not bars:
        return Markup("")
    top, height, left, room = 20, 180, 70, WIDTH - 70 - 20
    bottom = top + height
    canvas = _Canvas(bottom + 44, title)
    totals = [sum(item.ns for item in bar.slices) for bar in bars]
    counted = max((total for total, bar in zip(totals, bars, strict=True) if not bar.off), default=0)
    highest = min(max(totals), counted * 1.6) if counted else max(totals)  # one warm-up step must not flatten the rest
    scale, width = height / (highest or 1), min(40.0, room / len(bars))
    for tick in _linear_ticks(highest):
        canvas.line(left, bottom - tick * scale, WIDTH - 20, bottom - tick * scale, "grid")
        canvas.text(left - 6, bottom - tick * scale + 4, format_ns(tick) if tick else "0", "tick end")
    every = -(-len(bars) // 14)
    for number, bar in enumerate(bars):
        x = left + number * width
        _column(canvas, bar, x, width, (top, bottom), scale)
        if totals[number] * scale > height + 0.5:
            canvas.text(x + width / 2, top - 5, f"\u2191 {format_ns(totals[number])}", "tick mid")
        if number % every == 0:
            canvas.text(x + width / 2, bottom + 14, bar.label, "tick mid")
    canvas.text(left + room / 2, bottom + 36, "step", "axis mid")
    canvas.text(14, top + height / 2, "time", "axis mid", turn=True)
    return canvas.done()


def heat_strip(heat: Heat, title: str) -> Markup:
    """Lateness of ranks over steps: colour and height of each cell grow with the value; equal neighbours are joined."""
    row, top, left = 16, 4, 90
    bottom = top + row * len(heat.rows)
    canvas = _Canvas(bottom + 44, title)
    room = WIDTH - left - 20
    width = min(40.0, room / len(heat.columns))
    highest = max((value for line in heat.values for value in line if value), default=0.0)
    for number, (label, values) in enumerate(zip(heat.rows, heat.values, strict=True)):
        y = top + number * row
        canvas.text(left - 6, y + 12, view.shorten(label, 14), "label end")
        canvas.rect(left, y + 1, width * len(heat.columns), row - 2, "cell")
        levels = [_level(value, highest) for value in values]
        start = 0
        while start < len(levels):
            end = start
            while end + 1 < len(levels) and levels[end + 1] == levels[start]:
                end += 1
            _heat_cell(canvas, heat, number, (start, end), levels[start], (left + start * width, y, width, row))
            start = end + 1
    every = -(-len(heat.columns) // 14)
    for number in range(0, len(heat.columns), every):
        canvas.text(left + (number + 0.5) * width, bottom + 14, heat.columns[number], "tick mid")
    caption = f"step (a full cell is {format_ns(highest)} late)" if highest else "step (nobody is late)"
    canvas.text(left + width * len(heat.columns) / 2, bottom + 36, caption, "axis mid")
    return canvas.done()


def scatter(
    points: Sequence[tuple[float, float]],
    fit: Sequence[tuple[float, float]],
    reference: float | None,
    title: str,
) -> Markup:
    """Bus bandwidth against message size, both logarithmic, with the fitted line and the reference speed."""
    known = [*points, *fit]
    if not known:
        return Markup("")
    top, height, left, room = 14, 230, 84, 340
    bottom, total = top + height, left + room + 20
    canvas = _Canvas(bottom + 44, title, total)
    ys = [y for _, y in known] + ([reference] if reference and reference > 0 else [])
    x_ticks, x_at = _log_axis([x for x, _ in known], left, left + room)
    y_ticks, y_at = _log_axis(ys, bottom, top)
    for tick in x_ticks:
        canvas.line(x_at(tick), top, x_at(tick), bottom, "grid")
        canvas.text(x_at(tick), bottom + 14, format_bytes(tick), "tick mid")
    for tick in y_ticks:
        canvas.line(left, y_at(tick), left + room, y_at(tick), "grid")
        canvas.text(left - 6, y_at(tick) + 4, format_rate(tick), "tick end")
    if reference and reference > 0:
        canvas.line(left, y_at(reference), left + room, y_at(reference), "reference")
        canvas.text(left + 4, y_at(reference) - 4, f"reference {format_rate(reference)}", "tick")
    for x, y in points:
        canvas.circle(x_at(x), y_at(y), "dot")
    if len(fit) > 1:
        canvas.path([(x_at(x), y_at(y)) for x, y in fit], "fit")
    canvas.text(left + room / 2, bottom + 36, "message size (bytes, logarithmic)", "axis mid")
    canvas.text(12, top + height / 2, "bus bandwidth (bytes/s, logarithmic)", "axis mid", turn=True)
    return canvas.done()


def sparkline(values: Sequence[float | None], title: str) -> Markup:
    """A line of values without axes, for a table cell; its title carries range and unit."""
    known = [(number, value) for number, value in enumerate(values) if value is not None and math.isfinite(value)]
    if len(known) < 2:
        return Markup("")
    canvas = _Canvas(20, title, 120)
    low, high = min(value for _, value in known), max(value for _, value in known)
    span = (high - low) or 1
    last = known[-1][0] or 1
    canvas.path([(2 + number / last * 116, 18 - (value - low) / span * 16) for number, value in known], "spark")
    return canvas.done()


def share_bar(slices: Sequence[Slice], title: str) -> Markup:
    """One wide stacked bar of shares."""
    total = sum(item.ns for item in slices)
    if total <= 0:
        return Markup("")
    canvas = _Canvas(36, title)
    x = 0.0
    for item in slices:
        width = item.ns / total * WIDTH
        canvas.rect(x, 0, width, 36, f"p-{item.part.key}", _tip(item))
        if width >= LETTER:
            share = f" {format_ratio(item.ns / total)}" if width >= 70 else ""
            canvas.text(x + width / 2, 23, item.part.letter + share, f"letter l-{item.part.key} mid")
        x += width
    return canvas.done()


def _column(canvas: _Canvas, bar: Bar, x: float, width: float, ends: tuple[float, float], scale: float) -> None:
    """One upright bar, cut at the top of the chart."""
    top, y = ends
    note = f" ({bar.note}, not counted)" if bar.note else ""
    for item in bar.slices:
        height = min(item.ns * scale, y - top)
        if height <= 0:
            return
        y -= height
        css = f"p-{item.part.key}{' off' if bar.off else ''}"
        canvas.rect(x + 1, y, max(1.0, width - 2), height, css, f"step {bar.label}{note}: {_tip(item)}")
        if not bar.off and height >= LETTER and width >= LETTER:
            canvas.text(x + width / 2, y + height / 2 + 4, item.part.letter, f"letter l-{item.part.key} mid")


def _heat_cell(
    canvas: _Canvas,
    heat: Heat,
    number: int,
    span: tuple[int, int],
    level: int | None,
    box: tuple[float, float, float, float],
) -> None:
    x, y, width, row = box
    start, end = span
    width *= end - start + 1
    if level is None:
        canvas.rect(x, y + 1, width, row - 2, "unknown", "unknown")
    elif level:
        height = (row - 2) * level / LEVELS
        late = max(value or 0 for value in heat.values[number][start : end + 1])
        steps = heat.columns[start] if start == end else f"{heat.columns[start]} to {heat.columns[end]}"
        tip = f"{heat.rows[number]}, step {steps}: up to {format_ns(late)} late"
        canvas.rect(x, y + row - 1 - height, width, height, f"late h{level}", tip)


def _level(value: float | None, highest: float) -> int | None:
    """Nought to `LEVELS`; below a tenth of the highest nothing is drawn, so that a quiet chart is quiet."""
    if value is None:
        return None
    return 0 if highest <= 0 or value < highest / 10 else math.ceil(value / highest * LEVELS)


def _tip(item: Slice) -> str:
    return f"{item.part.label} {format_ns(item.ns)}"


def _linear_ticks(highest: float) -> list[float]:
    """About five round numbers from zero."""
    step = 10 ** math.floor(math.log10(highest / 4)) if highest > 0 else 1
    step *= next((factor for factor in (1, 2, 5) if highest / (step * factor) <= 6), 10)
    return [step * number for number in range(int(highest / step) + 1)]


def _log_axis(values: Sequence[float], start: float, end: float) -> tuple[list[float], Callable[[float], float]]:
    """Round ticks and the position of a value; the axis spans at least a factor of ten."""
    low, high = math.log10(min(values)), math.log10(max(values))
    pad = max(0.05 * (high - low), (1 - (high - low)) / 2, 0.02)
    low, high = low - pad, high + pad
    factors = (1,) if high - low > 2.5 else (1, 3) if high - low > 1.5 else (1, 2, 5)
    decades = range(math.floor(low), math.ceil(high) + 1)
    ticks = [factor * 10.0**decade for decade in decades for factor in factors]
    ticks = [tick for tick in ticks if low <= math.log10(tick) <= high]
    return ticks[
        :: -(-len(ticks) // 7) or 1
    ], lambda value: start + (math.log10(value) - low) / (high - low) * (end - start)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
