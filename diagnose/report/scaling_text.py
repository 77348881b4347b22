"""The scaling report for people: the same sentences and tables as plain text and as Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling.words import percent, sizes_word, work_word
from diagnose.units import opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import ScalingResult
    from diagnose.analysis.scaling.one_run import Estimate
    from diagnose.analysis.scaling.parts import Bend
    from diagnose.analysis.scaling.predict import Prediction
    from diagnose.model import Finding


WORDS = frozenset(("part", "law", "formula", "confidence"))
"""Columns of words beside the last one of every table."""

VISIBLE_SHARE = 0.05
"""Parts that make less of the loss have no shape worth a word."""


VISIBLE_NS = 5_000
"""Parts below this, 0.01 ms in the table, at every size have no line."""


class Content(NamedTuple):
    """What a report says, before any markup: verdict lines, warnings, tables (title, header, rows), method."""

    title: str
    verdict: list[str]
    warnings: list[str]
    tables: list[tuple[str, list[str], list[list[str]]]]
    method: list[str]


def scaling_text(result: ScalingResult, findings: Sequence[Finding], *, markdown: bool) -> str:
    """The report as text, or as GitHub Markdown with every cell escaped."""
    content = tables(result, findings)
    bold = "**{}**" if markdown else "{}"
    clean = _escaped if markdown else str
    lines = [f"# {clean(content.title)}" if markdown else content.title, ""]
    for line in content.verdict:
        lines += [clean(line), *([""] if markdown else [])]
    if content.warnings and content.verdict and not markdown:
        lines.append("")
    for text in content.warnings:
        lines.append(f"{'- ' if markdown else ''}{bold.format('warning')}: {clean(text)}")
    for finding in findings:
        heading = f"{bold.format(finding.severity)}: {clean(finding.title)} ({finding.code})"
        lines += ["", heading, *([""] if markdown else []), clean(finding.message), *([""] if markdown else [])]
        lines += [f"- {clean(action)}" for action in finding.actions]
    for title, header, rows in content.tables:
        lines += ["", f"## {clean(title)}" if markdown else title, ""]
        lines += _markdown_table(header, rows) if markdown else _plain_table(header, rows)
    lines += ["", "## Method" if markdown else "Method", ""]
    lines += [f"{'- ' if markdown else ''}{clean(line)}" for line in content.method]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def number(value: float, digits: int = 6) -> str:
    """A number with so many significant digits, grouped by thousands from 10 000 on, in powers of ten from 10^15."""
    rounded = float(f"{value:.{digits}g}")
    if not 1e4 <= abs(rounded) < 1e15:
        return f"{value:.{digits}g}"
    places = max(digits - 1 - int(math.log10(abs(rounded))), 0)
    text = f"{rounded:,.{places}f}".replace(",", " ")
    return text.rstrip("0").rstrip(".") if places else text


def tables(result: ScalingResult, findings: Sequence[Finding]) -> Content:
    """Verdict, warnings and tables of a result."""
    curve = result.curve
    title = f"Scaling of {curve.unit} over {sizes_word(curve.scale)}"
    found = [_points(result)]
    if result.predictions:
        found.append(
            (
                "Predictions (90 % interval)",
                [sizes_word(curve.scale), curve.unit, "interval", "confidence", "why"],
                [_prediction(p) for p in result.predictions],
            )
        )
    if result.bend is not None:
        found.append(_parts(result.bend))
    if result.classics and result.curved is not None:
        found.append(_beside(result))
    warnings = [warned.text for warned in result.warnings if not (warned.code == "one_point" and result.model_estimate)]
    return Content(title, _verdict(result, findings), warnings, found, _method(result))


def _verdict(result: ScalingResult, findings: Sequence[Finding]) -> list[str]:
    scale = sizes_word(result.curve.scale)
    if result.selection.refused:
        return [f"No curve: {result.selection.refused}."]
    lines = _estimated(result.model_estimate) if result.model_estimate else []
    if len(result.measured) > 1:
        first, last = result.measured[0], result.measured[-1]
        lines.append(
            f"{last.gpus} {scale} are {last.speedup:.2f} times as fast as {first.gpus}, ideal "
            f"{last.ideal:.4g}: efficiency {percent(last.efficiency, 1)}."
        )
        thresholds = [result.efficiency_floor, result.plateau]
        if result.peak is not None and result.peak.gpus is not None:
            thresholds.append(result.peak)
        lines += [f"{opening(threshold.text)}." for threshold in thresholds if threshold is not None]
    for p in result.predictions[:3]:
        if p.value is not None and p.interval is not None:
            ends = f"{number(p.interval[0], 4)} to {number(p.interval[1], 4)}"
            lines.append(
                f"At {p.gpus}: {number(p.value, 4)} {result.curve.unit} expected{_gain(result, p.gpus)}, 90 % interval "
                f"{ends}, {p.confidence} confidence."
            )
    if result.bend is not None and result.bend.culprit is not None:
        lines.append(f"{opening(result.bend.text)}.")
    elif any(finding.code == "SCALE-PLATEAU" for finding in findings) and result.bend is None:
        lines.append(
            "Throughput alone does not tell what bends the curve; runs, or columns with the parts of the step, do."
        )
    return lines + [f"Target, {target.goal}: {target.text}." for target in result.targets]


def _gain(result: ScalingResult, gpus: int) -> str:
    """How much faster a size is than the largest one measured: what the next purchase buys."""
    if result.curved is None or gpus <= (last := result.curved.points[-1]).gpus:
        return ""
    return f", {result.curved.rate(gpus) / last.rate:.2f} times the speed of {last.gpus}"


def _estimated(found: Estimate) -> list[str]:
    lines = [f"{opening(found.text)}."]
    if found.assumptions:
        lines += ["It assumes:", *(f"- {text}" for text in found.assumptions)]
    return lines


def _parts(bend: Bend) -> tuple[str, list[str], list[list[str]]]:
    rows = [
        [
            part.name.replace("_", " "),
            f"{part.at_ns[0][1] / 1e6:.2f}",
            f"{part.at_ns[-1][1] / 1e6:.2f}",
            percent(part.share),
            (part.shape or "no shape from these points") if part.share >= VISIBLE_SHARE else "",
        ]
        for part in bend.parts
        if any(value >= VISIBLE_NS for _, value in part.at_ns)
    ]
    ends = bend.parts[0].at_ns
    header = ["part", f"at {ends[0][0]}", f"at {ends[-1][0]}", "share of loss", "grows"]
    return "Parts of the step, GPU-time per unit of work (ms)", header, rows


def _points(result: ScalingResult) -> tuple[str, list[str], list[list[str]]]:
    curve = result.curve
    by_size = {row.gpus: row for row in result.measured}
    money = any(row.cost_per_unit is not None for row in result.measured)
    header = [
        sizes_word(curve.scale),
        curve.unit,
        "speed-up",
        "efficiency",
        "marginal",
        "cost ratio",
        *([f"cost per million {work_word(curve.unit)}"] if money else []),
        "on the curve",
    ]
    rows = []
    for item in result.selection.judged:
        row = by_size.get(item.point.gpus) if item.used or result.selection.refused else None
        cells = [str(item.point.gpus), number(item.point.value)]
        if row is None:
            cells += ["", "", "", "", *([""] if money else [])]
        else:
            marginal = "" if row.marginal is None else f"{percent(row.marginal)}"
            cells += [f"{row.speedup:.2f}", f"{percent(row.efficiency, 1)}", marginal, f"{row.cost_ratio:.3f}"]
            cells += [f"{row.cost_per_unit * 1e6:.4g}" if row.cost_per_unit is not None else ""] if money else []
        rows.append([*cells, "yes" if item.used else f"no: {item.why}"])
    return "Measured", header, rows


def _prediction(p: Prediction) -> list[str]:
    if p.value is None or p.interval is None:
        return [str(p.gpus), "no number", "", p.confidence, p.why]
    return [
        str(p.gpus),
        number(p.value, 4),
        f"{number(p.interval[0], 4)} to {number(p.interval[1], 4)}",
        p.confidence,
        p.why,
    ]


def _beside(result: ScalingResult) -> tuple[str, list[str], list[list[str]]]:
    """What the classics say at the first predicted size, with their pitfalls."""
    assert result.curved is not None  # noqa: S101 - the caller checked
    sizes = [p.gpus for p in result.predictions if p.value is not None]
    at = sizes[0] if sizes else result.curved.points[-1].gpus
    ours = result.curved.rate(at)
    rows = [
        [fit.form.name, fit.form.formula, f"{fit.rate(at) / ours:.3f}", "a form of ours"]
        for fit in result.curved.two_term
        if fit.rate(at) > 0
    ]
    for law in result.classics:
        peak = f"; peak near {law.peak_gpus:.0f}" if law.peak_gpus is not None else ""
        rows.append([law.name, law.formula, f"{law.rate(at) / ours:.3f}", law.pitfall + peak])
    return f"Other laws at {at}, rate relative to ours", ["law", "formula", "relative", "note"], rows


def _method(result: ScalingResult) -> list[str]:
    curve = result.curve
    known = "weak or strong" if curve.type == "unknown" else curve.type
    lines = [f"Scaling type: {known}, {curve.type_from}."] if len(curve.points) > 1 else []
    if result.curved is not None and len(result.curved.points) > 1:
        formulas = ", ".join(fit.form.formula for fit, _ in result.curved.parts)
        lines.append(
            f"Fit: {result.curved.label}; {formulas}; tau is GPU-time per unit of work, n = N / "
            f"{result.curved.points[0].gpus}."
        )
        residual = percent(result.curved.residual_sd, 2)
        lines.append(f"Run-to-run noise {percent(result.noise.ratio, 2)} ({result.noise.source}); residual {residual}.")
    return [*lines, *(f"Note: {note}." for note in curve.notes)]


def left_columns(header: Sequence[str]) -> list[bool]:
    """Which columns hold words, and so start at the left."""
    return [name in WORDS or place == len(header) - 1 for place, name in enumerate(header)]


def _plain_table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    left = left_columns(header)
    return [
        "  ".join(
            cell.ljust(width) if words else cell.rjust(width)
            for cell, width, words in zip(line, widths, left, strict=True)
        )
        for line in [header, *rows]
    ]


def _markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *([_escaped(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _escaped(text: str) -> str:
    for char in "\\`*_<|":
        text = text.replace(char, f"\\{char}" if char != "<" else "&lt;")
    return text
