"""Step time of a job over its runs as inline SVG: points with their verdict as shape, levels as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from diagnose.units import format_ns, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.watch.record import Record

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 220, 80, 20, 14, 34
MOST = 200
_SHAPE = {"regression": "up", "improvement": "down"}


def trend(records: Sequence[Record], title: str) -> Markup:
    """The last runs with a step time; empty with fewer than two."""
    shown = [record for record in records if record.step_ns][-MOST:]
    if len(shown) < 2:
        return Markup("")
    values = [record.step_ns or 0.0 for record in shown]
    low, high = min(values) * 0.97, max(values) * 1.03
    room = (WIDTH - LEFT - RIGHT) / max(1, len(shown) - 1)

    def x(place: int) -> float:
        return LEFT + place * room

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 6}" y="{y(value) + 4:.1f}">{escape(format_ns(value))}</text>')
    parts += _levels(shown, x, y)
    for place, record in enumerate(shown):
        tip = f"{record.name}: {format_ns(record.step_ns)}"
        if record.change_ratio is not None:
            tip += f", {record.change} ({format_ratio(record.change_ratio)})"
        parts.append(_mark(x(place), y(record.step_ns or 0.0), _SHAPE.get(record.change, ""), tip))
    parts.append(
        f'<text class="axis mid" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}">{escape(f"{len(shown)} runs, oldest first")}</text>'
    )
    return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>')  # noqa: S704 - every text above went through escape()


def _levels(shown: Sequence[Record], x: Callable[[int], float], y: Callable[[float], float]) -> list[str]:
    """A line at the mean of each level."""
    starts = [place for place, record in enumerate(shown) if record.level_start or place == 0]
    lines = []
    for start, end in zip(starts, [*starts[1:], len(shown)], strict=True):
        mean = sum(record.step_ns or 0.0 for record in shown[start:end]) / (end - start)
        lines.append(
            f'<line class="reference" x1="{x(start):.1f}" x2="{x(end - 1) + 4:.1f}" y1="{y(mean):.1f}" y2="{y(mean):.1f}"/>'
        )
    return lines


def _mark(x: float, y: float, shape: str, tip: str) -> str:
    title = f"<title>{escape(tip)}</title>"
    if not shape:
        return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    turn = -1 if shape == "up" else 1
    points = f"{x:.1f},{y + 7 * turn:.1f} {x - 6:.1f},{y - 5 * turn:.1f} {x + 6:.1f},{y - 5 * turn:.1f}"
    return f'<polygon class="{"late" if shape == "up" else "dot"}" points="{points}">{title}</polygon>'
