"""The chart of a scaling curve as one SVG: points, fit, band, ideal, points left out; efficiency below. No script."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling import predict
from diagnose.analysis.scaling.table import from_rate
from diagnose.analysis.scaling.words import percent, sizes_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from diagnose.analysis.scaling.analyse import ScalingResult

WIDTH, LEFT, RIGHT = 720, 92, 20
UPPER_TOP, UPPER_BOTTOM = 46, 326
LOWER_TOP, LOWER_BOTTOM = 378, 498
HEIGHT = 580
GRID_STEPS = 64
RING = 5
"""Radius of a predicted point; its interval stands above and below the ring, not through it."""

STYLE = """
svg.scaling{font:13px system-ui,sans-serif;color:#1b1f24;background:transparent;
--fit:#0b62c4;--off:#b3261e;--soft:#8a929c}
@media (prefers-color-scheme:dark){svg.scaling{color:#e6e8eb;--fit:#6db3ff;--off:#ff8a80;--soft:#7d8691}}
.scaling text{fill:currentColor}.scaling .axis{stroke:currentColor;stroke-width:1}
.scaling .grid{stroke:var(--soft);stroke-width:.5;opacity:.5}
.scaling .fit{fill:none;stroke:var(--fit);stroke-width:2}.scaling .band{fill:var(--fit);opacity:.16}
.scaling .ideal{fill:none;stroke:currentColor;stroke-dasharray:6 4;opacity:.7}.scaling .point{fill:var(--fit)}
.scaling .off{fill:none;stroke:var(--off);stroke-width:2}.scaling .guess{fill:none;stroke:var(--fit);stroke-width:2}
.scaling .title{font-weight:600;font-size:15px}.scaling .tick{font-size:11px}
"""


class Axis(NamedTuple):
    """A logarithmic or linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    def at(self, value: float) -> float:
        """Pixel of a value."""
        low, high, here = (
            (math.log(v) for v in (self.low, self.high, value)) if self.logarithmic else (self.low, self.high, value)
        )
        return self.start + (here - low) / (high - low) * (self.end - self.start)


def scaling_svg(result: ScalingResult) -> str:
    """The chart; sizes and values on logarithmic axes, efficiency relative to the smallest size used."""
    sizes = [point.gpus for point in result.curve.points] + [p.gpus for p in result.predictions if p.value is not None]
    low, high = min(sizes), max(sizes)
    x = Axis(low / 1.15, high * 1.15, LEFT, WIDTH - RIGHT, logarithmic=True)
    title = f"Scaling of {result.curve.unit} over {sizes_word(result.curve.scale)}"
    kind = "" if result.curve.type == "unknown" else f" ({result.curve.type} scaling)"
    body = [*_upper(result, x, low, high), *_lower(result, x, high), *_legend(result)]
    return (
        f'<svg class="scaling" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" '
        'role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title><desc>{escape(_description(result))}</desc><style>{STYLE}</style>'
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}{kind}</text>' + "".join(body) + "</svg>\n"
    )


def _description(result: ScalingResult) -> str:
    points = ", ".join(
        f"{item.point.gpus}: {item.point.value:.6g}{'' if item.used else ' (left out)'}"
        for item in result.selection.judged
    )
    return f"Measured {result.curve.unit}: {points}."


def _upper(result: ScalingResult, x: Axis, low: int, high: int) -> list[str]:
    curve = result.curve
    values = [point.value for point in curve.points]
    values += [end for p in result.predictions if p.interval for end in p.interval]
    ideal = _ideal(result)
    if ideal is not None:
        values += [ideal(low), ideal(high)]
    bottom, top = min(values), max(values)
    room = max((top / bottom) ** 0.06, 1.03)
    y = Axis(bottom / room, top * room, UPPER_BOTTOM, UPPER_TOP, logarithmic=True)
    parts = _frame(x, y, UPPER_TOP, UPPER_BOTTOM, _size_ticks(result), _log_ticks(y.low, y.high), curve.unit, "")
    if result.curved is not None and len(result.curved.points) > 1:
        start = result.curved.points[0].gpus
        grid = [start * (max(high, start * 1.01) / start) ** (i / GRID_STEPS) for i in range(GRID_STEPS + 1)]
        found = [(size, spread) for size in grid if (spread := predict.band(curve, result.curved, size)) is not None]
        if found:
            outline = [(x.at(s), y.at(_inside(y, v[2]))) for s, v in found] + [
                (x.at(s), y.at(_inside(y, v[1]))) for s, v in reversed(found)
            ]
            parts.append(f'<polygon class="band" points="{_pairs(outline)}"/>')
            parts.append(
                f'<polyline class="fit" points="{_pairs((x.at(s), y.at(_inside(y, v[0]))) for s, v in found)}"/>'
            )
    if ideal is not None:
        parts.append(f'<polyline class="ideal" points="{_pairs((x.at(s), y.at(ideal(s))) for s in (low, high))}"/>')
    for p in result.predictions:
        if p.value is not None and p.interval is not None:
            px, py, ends = x.at(p.gpus), y.at(p.value), [y.at(end) for end in p.interval]
            parts += [
                f'<line class="guess" x1="{px:.1f}" x2="{px:.1f}" y1="{start:.1f}" y2="{end:.1f}"/>'
                for start, end in ((max(ends), py + RING), (py - RING, min(ends)))
                if start > end
            ]
            label = f"{p.gpus}: {p.value:.6g}, 90 % interval {p.interval[0]:.6g} to {p.interval[1]:.6g}"
            parts.append(
                f'<circle class="guess" cx="{px:.1f}" cy="{py:.1f}" r="{RING}"><title>predicted '
                f"{escape(label)}</title></circle>"
            )
    for item in result.selection.judged:
        px, py, label = x.at(item.point.gpus), y.at(item.point.value), f"{item.point.gpus}: {item.point.value:.6g}"
        if item.used:
            parts.append(
                f'<circle class="point" cx="{px:.1f}" cy="{py:.1f}" r="4.5"><title>{escape(label)}</title></circle>'
            )
        else:
            parts.append(_cross(px, py, f"{label}, left out: {item.why or ''}"))
    return parts


def _lower(result: ScalingResult, x: Axis, high: int) -> list[str]:
    shown = [row.efficiency for row in result.measured]
    y = Axis(
        0.0, max(1.1, *(value * 1.05 for value in shown)) if shown else 1.1, LOWER_BOTTOM, LOWER_TOP, logarithmic=False
    )
    ticks = [(value, f"{percent(value)}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts = _frame(
        x, y, LOWER_TOP, LOWER_BOTTOM, _size_ticks(result), ticks, "efficiency", sizes_word(result.curve.scale)
    )
    if result.curved is not None and len(result.curved.points) > 1:
        start = result.curved.points[0].gpus
        grid = [start * (high / start) ** (i / GRID_STEPS) for i in range(GRID_STEPS + 1)]
        line = [(x.at(size), y.at(value)) for size in grid if 0 < (value := result.curved.efficiency(size)) <= y.high]
        parts.append(f'<polyline class="fit" points="{_pairs(line)}"/>')
    parts.append(f'<line class="ideal" x1="{x.start}" x2="{x.end}" y1="{y.at(0.8):.1f}" y2="{y.at(0.8):.1f}"/>')
    parts.append(f'<text class="tick" x="{x.start + 4}" y="{y.at(0.8) + 13:.1f}">80 %</text>')
    parts += [
        f'<circle class="point" cx="{x.at(row.gpus):.1f}" cy="{y.at(row.efficiency):.1f}" '
        f'r="4"><title>{row.gpus}: {percent(row.efficiency, 1)}</title></circle>'
        for row in result.measured
    ]
    return parts


def _legend(result: ScalingResult) -> list[str]:
    y = HEIGHT - 18
    entries = [('<circle class="point" cx="{x}" cy="{y}" r="4.5"/>', "measured")]
    if any(not item.used for item in result.selection.judged):
        entries.append(("cross", "left out"))
    if result.curved is not None and len(result.curved.points) > 1:
        entries.append(('<line class="fit" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/>', "fit"))
        entries.append(('<rect class="band" x="{a}" y="{top}" width="18" height="10"/>', "90 % interval"))
        entries.append(('<circle class="guess" cx="{x}" cy="{y}" r="5"/>', "predicted"))
    entries.append(('<line class="ideal" x1="{a}" x2="{b}" y1="{y}" y2="{y}"/>', "ideal"))
    parts, left = [], LEFT
    for mark, text in entries:
        places = {"x": left + 9, "y": y - 4, "a": left, "b": left + 18, "top": y - 9}
        parts.append(_cross(left + 9, y - 4, "") if mark == "cross" else mark.format(**places))
        parts.append(f'<text x="{left + 24}" y="{y}">{text}</text>')
        left += 44 + 7 * len(text)
    return parts


def _frame(
    x: Axis,
    y: Axis,
    top: int,
    bottom: int,
    x_ticks: Sequence[int],
    y_ticks: Sequence[tuple[float, str]],
    y_title: str,
    x_title: str,
) -> list[str]:
    parts = []
    for value, label in y_ticks:
        py = y.at(value)
        parts.append(f'<line class="grid" x1="{x.start}" x2="{x.end}" y1="{py:.1f}" y2="{py:.1f}"/>')
        parts.append(f'<text class="tick" x="{x.start - 6}" y="{py + 4:.1f}" text-anchor="end">{label}</text>')
    for size in x_ticks:
        px = x.at(size)
        parts.append(f'<line class="grid" x1="{px:.1f}" x2="{px:.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{px:.1f}" y="{bottom + 16}" text-anchor="middle">{size}</text>')
    parts.append(f'<path class="axis" fill="none" d="M{x.start} {top}V{bottom}H{x.end}"/>')
    middle = (top + bottom) / 2
    parts.append(
        f'<text transform="translate(16 {middle:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(_shortened(y_title))}</text>'
    )
    if x_title:
        parts.append(
            f'<text x="{(x.start + x.end) / 2:.0f}" y="{bottom + 36}" text-anchor="middle">{escape(x_title)}</text>'
        )
    return parts


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _ideal(result: ScalingResult) -> Callable[[float], float] | None:
    """Value at a size if every GPU kept the speed of the smallest size used."""
    if result.curved is None:
        return None
    first, kind, scaling = result.curved.points[0], result.curve.kind, result.curve.type
    return lambda size: from_rate(first.rate * size / first.gpus, size, kind, scaling)


def _inside(y: Axis, value: float) -> float:
    return min(max(value, y.low), y.high)


def _size_ticks(result: ScalingResult) -> list[int]:
    """Measured and predicted sizes, thinned so that labels do not touch."""
    sizes = sorted({p.gpus for p in result.curve.points} | {p.gpus for p in result.predictions if p.value is not None})
    spacing = max((sizes[-1] / sizes[0]) ** 0.07, 1.02)
    kept: list[int] = []
    for size in sizes:
        if not kept or size / kept[-1] >= spacing:
            kept.append(size)
    return kept


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """1, 2, 5 per decade; where these are fewer than two, five even steps."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [digit * 10.0**power for power in decades for digit in (1, 2, 5) if low <= digit * 10.0**power <= high]
    if len(values) < 2:
        values = [low * (high / low) ** (i / 4) for i in range(5)]
    if len(values) > 10:
        values = [value for value in values if math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9)]
    return [(value, _short(value)) for value in values]


def _short(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def _cross(px: float, py: float, label: str) -> str:
    title = f"<title>{escape(label)}</title>" if label else ""
    return f'<path class="off" d="M{px - 4:.1f} {py - 4:.1f}l8 8m0-8l-8 8">{title}</path>'


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
