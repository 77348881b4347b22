"""The scaling report for people: the same sentences and tables as plain text and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import ScalingResult
    from diagnose.analysis.scaling.predict import Prediction
    from diagnose.model import Finding


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
    if content.warnings and not markdown:
        lines.append("")
    for text in content.warnings:
        lines.append(f"{'- ' if markdown else ''}{bold.format('warning')}: {clean(text)}")
    for title, header, rows in content.tables:
        lines += ["", f"## {clean(title)}" if markdown else title, ""]
        lines += _markdown_table(header, rows) if markdown else _plain_table(header, rows)
    for finding in findings:
        lines += [
            "",
            f"{bold.format(finding.severity)}: {clean(finding.title)} ({finding.code})",
            clean(finding.message),
        ]
        lines += [f"- {clean(action)}" for action in finding.actions]
    lines += ["", "## Method" if markdown else "Method", *(clean(line) for line in content.method)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def number(value: float, digits: int = 6) -> str:
    """A number with so many significant digits, never in powers of ten below 10^15."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}".replace(",", " ") if 10 ** (digits - 1) <= abs(rounded) < 1e15 else f"{value:.{digits}g}"


def tables(result: ScalingResult, findings: Sequence[Finding]) -> Content:
    """Verdict, warnings and tables of a result."""
    curve = result.curve
    title = f"Scaling over {curve.scale}, {curve.unit}: {curve.type} scaling ({curve.type_from})"
    found = [_points(result)]
    if result.predictions:
        found.append(
            (
                "Predictions (90 % interval)",
                [curve.scale, curve.unit, "interval", "confidence", "why"],
                [_prediction(p) for p in result.predictions],
            )
        )
    if result.bend is not None:
        rows = [
            [
                part.name,
                f"{part.at_ns[0][1] / 1e6:.2f}",
                f"{part.at_ns[-1][1] / 1e6:.2f}",
                f"{part.share:.0%}",
                part.shape or "no shape from these points",
            ]
            for part in result.bend.parts
        ]
        ends = result.bend.parts[0].at_ns
        found.append(
            (
                "Parts of the step, GPU-time per unit of work (ms)",
                ["part", f"at {ends[0][0]}", f"at {ends[-1][0]}", "share of loss", "grows"],
                rows,
            )
        )
    if result.classics and result.curved is not None:
        found.append(_beside(result))
    warnings = [warned.text for warned in result.warnings]
    return Content(title, _verdict(result, findings), warnings, found, _method(result))


def _verdict(result: ScalingResult, findings: Sequence[Finding]) -> list[str]:
    lines: list[str] = []
    if result.selection.refused:
        return [f"No curve: {result.selection.refused}."]
    if len(result.measured) > 1:
        first, last = result.measured[0], result.measured[-1]
        lines.append(
            f"{last.gpus} {result.curve.scale} are {last.speedup:.2f} times as fast as {first.gpus}, ideal "
            f"{last.ideal:.4g}: efficiency {last.efficiency:.1%}."
        )
    lines += [
        f"{threshold.text[0].upper()}{threshold.text[1:]}."
        for threshold in (result.efficiency_floor, result.plateau)
        if threshold is not None
    ]
    if result.peak is not None and result.peak.gpus is not None:
        lines.append(f"{result.peak.text[0].upper()}{result.peak.text[1:]}.")
    if result.bend is not None and result.bend.culprit is not None:
        lines.append(f"{result.bend.text[0].upper()}{result.bend.text[1:]}.")
    elif any(finding.code == "scaling_plateau" for finding in findings) and result.bend is None:
        lines.append(
            "Throughput alone does not tell what bends the curve; run stores or columns with the parts of the step do."
        )
    lines += [f"Target, {target.goal}: {target.text}." for target in result.targets]
    if result.model_estimate is not None:
        lines.append(f"{result.model_estimate.text}. It assumes: {'; '.join(result.model_estimate.assumptions)}.")
    return lines


def _points(result: ScalingResult) -> tuple[str, list[str], list[list[str]]]:
    curve = result.curve
    by_size = {row.gpus: row for row in result.measured}
    money = any(row.cost_per_unit is not None for row in result.measured)
    header = [
        curve.scale,
        curve.unit,
        "speed-up",
        "efficiency",
        "marginal",
        "cost ratio",
        *(["cost per million units"] if money else []),
        "on the curve",
    ]
    rows = []
    for item in result.selection.judged:
        row = by_size.get(item.point.gpus) if item.used or result.selection.refused else None
        cells = [str(item.point.gpus), number(item.point.value)]
        if row is None:
            cells += ["", "", "", "", *([""] if money else [])]
        else:
            marginal = "" if row.marginal is None else f"{row.marginal:.0%}"
            cells += [f"{row.speedup:.2f}", f"{row.efficiency:.1%}", marginal, f"{row.cost_ratio:.3f}"]
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
    lines = []
    if result.curved is not None:
        formulas = ", ".join(fit.form.formula for fit, _ in result.curved.parts) or "the last efficiency persists"
        lines.append(
            f"Fit: {result.curved.label}; {formulas}; tau is GPU-time per unit of work, n = N / "
            f"{result.curved.points[0].gpus}."
        )
        noise, source = result.noise
        lines.append(f"Run-to-run noise {noise:.2%} ({source}); residual {result.curved.residual_sd:.2%}.")
    return [*lines, *(f"Note: {note}." for note in result.curve.notes)]


def _plain_table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header) - 1)]
    return [
        "  ".join([*(cell.rjust(width) for cell, width in zip(line[:-1], widths, strict=True)), line[-1]])
        for line in [header, *rows]
    ]


def _markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *([_escaped(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _escaped(text: str) -> str:
    for char in "\\`*_<|":
        text = text.replace(char, f"\\{char}" if char != "<" else "&lt;")
    return text
