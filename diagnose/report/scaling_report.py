"""The scaling report as JSON (`diagnose.scaling/1`, names of the contract) and as one self-contained HTML file."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from diagnose.findings.scaling import scaling_findings
from diagnose.report.scaling_svg import scaling_svg
from diagnose.report.scaling_text import left_columns, scaling_text, tables
from diagnose.units import opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import ScalingResult
    from diagnose.analysis.scaling.answers import Threshold
    from diagnose.findings.rules import RuleBook
    from diagnose.model import Finding

SCHEMA = "diagnose.scaling/1"
Format = Literal["text", "json", "md", "html"]

STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem;border-bottom:1px solid #8886;
text-align:right}
.left{text-align:left}.wide{overflow-x:auto}small{font-weight:400;opacity:.7}figure{margin:1rem 0}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:1.6rem}
.warn{border-left:4px solid #b3261e;padding-left:.7rem}@media print{body{margin:0}}
"""


def render(result: ScalingResult, form: Format, *, extra: Sequence[Finding] = (), rules: RuleBook | None = None) -> str:
    """The report in one of its formats; ``extra`` are findings from beside the curve (a regression against a base)."""
    findings = [*scaling_findings(result, rules), *extra]
    if form == "json":
        text = msgspec.json.format(msgspec.json.encode(document(result, findings)), indent=1).decode()
        return text + "\n"
    if form == "html":
        return _html(result, findings)
    return scaling_text(result, findings, markdown=form == "md")


def document(result: ScalingResult, findings: Sequence[Finding]) -> dict[str, Any]:
    """``{"schema": "diagnose.scaling/1", "scaling": {...}}``."""
    return {"schema": SCHEMA, "scaling": section(result, findings)}


def section(result: ScalingResult, findings: Sequence[Finding] = ()) -> dict[str, Any]:
    """The contract's ``scaling`` object, with keys of our own after its own."""
    curve = result.curve
    return {
        "type": curve.type,
        "points": [
            {"gpus": item.point.gpus, "value": item.point.value, "used": item.used, "why": item.why}
            for item in result.selection.judged
        ],
        "fit": _fit(result),
        "efficiency": [{"gpus": row.gpus, "ratio": row.efficiency} for row in result.measured],
        "predictions": [
            {
                "gpus": p.gpus,
                "value": p.value,
                "interval": list(p.interval) if p.interval else None,
                "confidence": p.confidence,
                "why": p.why,
            }
            for p in result.predictions
        ],
        "plateau": None
        if result.plateau is None
        else {
            "reached": result.plateau.gpus is not None,
            "gpus": result.plateau.gpus,
            "text": result.plateau.text,
            "marginal_50": _threshold(result.plateau),
            "efficiency_80": _threshold(result.efficiency_floor),
            "peak": _threshold(result.peak),
            "cause": result.bend.culprit if result.bend else None,
            "cause_text": result.bend.text if result.bend else None,
        },
        "warnings": [warned.text for warned in result.warnings],
        "warning_codes": [warned.code for warned in result.warnings],
        "refused": result.selection.refused,
        "unit": curve.unit,
        "kind": curve.kind,
        "scale": curve.scale,
        "type_from": curve.type_from,
        "notes": list(curve.notes),
        "measured": [dict(row._asdict()) for row in result.measured],
        "classics": [
            {
                "name": c.name,
                "formula": c.formula,
                "coefficients": c.coefficients,
                "peak_gpus": c.peak_gpus,
                "pitfall": c.pitfall,
            }
            for c in result.classics
        ],
        "parts": [
            {
                "name": part.name,
                "growth_ns": round(part.growth_ns),
                "share": part.share,
                "shape": part.shape,
                "alternatives": list(part.alternatives),
                "at_ns": [[gpus, round(value)] for gpus, value in part.at_ns],
            }
            for part in (result.bend.parts if result.bend else ())
        ],
        "targets": [dict(target._asdict()) for target in result.targets],
        "model_estimate": None if result.model_estimate is None else dict(result.model_estimate._asdict()),
        "findings": [{**msgspec.to_builtins(finding), "fingerprint": finding.fingerprint} for finding in findings],
    }


def _fit(result: ScalingResult) -> dict[str, Any] | None:
    if result.curved is None:
        return None
    return {
        "form": result.curved.label,
        "points_used": len(result.curved.points),
        "parts": [
            {
                "form": fit.form.name,
                "formula": fit.form.formula,
                "weight": weight,
                "base_gpus": fit.base_gpus,
                "coefficients": dict(zip(fit.form.terms, fit.coefficients, strict=True)),
                "residual_sd": fit.residual_sd,
            }
            for fit, weight in result.curved.parts
        ],
        "alternatives": [
            {
                "form": fit.form.name,
                "formula": fit.form.formula,
                "coefficients": dict(zip(fit.form.terms, fit.coefficients, strict=True)),
                "residual_sd": fit.residual_sd,
            }
            for fit in result.curved.two_term
        ],
        "residual_sd": result.curved.residual_sd,
        "noise": result.noise.ratio,
        "noise_from": result.noise.source,
    }


def _threshold(threshold: Threshold | None) -> dict[str, Any] | None:
    return None if threshold is None else dict(threshold._asdict())


def _html(result: ScalingResult, findings: Sequence[Finding]) -> str:
    content = tables(result, findings)
    body = [f"<h1>{escape(content.title)}</h1>", *_paragraphs(content.verdict)]
    body += [f'<p class="warn">{_prose(opening(text))}.</p>' for text in content.warnings]
    if len({point.gpus for point in result.curve.points}) > 1:
        body.append(f"<figure>{scaling_svg(result)}</figure>")
    for finding in findings:
        heading = f"{escape(finding.severity)}: {escape(finding.title)} <small>{escape(finding.code)}</small>"
        body.append(f"<h2>{heading}</h2><p>{_prose(finding.message)}</p>")
        body.append("<ul>" + "".join(f"<li>{_prose(action)}</li>" for action in finding.actions) + "</ul>")
    body += [_table(title, header, rows) for title, header, rows in content.tables]
    body.append("<h2>Method</h2>" + "".join(f"<p>{escape(line)}</p>" for line in content.method))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1">'
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
        f"<title>{escape(content.title)}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _prose(text: str) -> str:
    """Escaped, with what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _paragraphs(lines: Sequence[str]) -> list[str]:
    """Sentences as paragraphs, lines that begin with a dash as a list."""
    parts = []
    for dashed, group in groupby(lines, key=lambda line: line.startswith("- ")):
        if dashed:
            parts.append("<ul>" + "".join(f"<li>{escape(line[2:])}</li>" for line in group) + "</ul>")
        else:
            parts += [f"<p>{escape(line)}</p>" for line in group]
    return parts


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    sides = [' class="left"' if left else "" for left in left_columns(header)]

    def line(cells: Sequence[str], tag: str) -> str:
        inner = "".join(f"<{tag}{side}>{_prose(cell)}</{tag}>" for cell, side in zip(cells, sides, strict=True))
        return f"<tr>{inner}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return (
        f'<h2>{escape(title)}</h2><div class="wide"><table><thead>{line(header, "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
