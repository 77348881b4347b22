"""The job's step as one bar with its times in words: plain HTML, because the first page should not wait for a chart library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from theme import PART_COLOURS

from diagnose.report.view import slices
from diagnose.units import format_ns, format_ratio

if TYPE_CHECKING:
    from diagnose.report.measures import AnyParts

LETTER_FROM = 0.03
"""Share of the bar from which a part is wide enough for its letter."""
_BAR = "display:flex;height:2.1rem;border-radius:4px;overflow:hidden;font-weight:700;font-size:0.85rem"
_LEGEND = "display:flex;flex-wrap:wrap;gap:0.35rem 1.4rem;margin-top:0.6rem;font-size:0.93rem"
_KEY = "display:inline-block;width:1.35em;margin-right:0.4em;border-radius:3px;text-align:center;font-weight:700"


def split_bar(parts: AnyParts) -> str:
    """The parts of a step in fixed order, with letter, words, time and share; empty when nothing is known."""
    found = slices(parts)
    whole = sum(item.ns for item in found)
    if whole <= 0:
        return ""
    segments, legend, said = [], [], []
    for item in found:
        share = item.ns / whole
        colour = f"background:{PART_COLOURS[item.part.key]};color:{'#fff' if item.part.key == 'compute' else '#111'}"
        words = f"{item.part.label} {format_ns(item.ns)} ({format_ratio(share)})"
        letter = escape(item.part.letter)
        segments.append(
            f'<div title="{escape(words)}" style="width:{share * 100:.3f}%;{colour};display:flex;align-items:center;justify-content:center">'
            f"{letter if share >= LETTER_FROM else ''}</div>"
        )
        legend.append(
            f'<span><span style="{_KEY};{colour}">{letter}</span>{escape(item.part.label)} <b>{escape(format_ns(item.ns))}</b> {escape(format_ratio(share))}</span>'
        )
        said.append(words)
    return (
        f'<div role="img" aria-label="{escape("Parts of the median step: " + ", ".join(said))}" style="{_BAR}">{"".join(segments)}</div>'
        f'<div style="{_LEGEND}">{"".join(legend)}</div>'
    )
