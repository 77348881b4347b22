"""Questions about several runs, asked of the same code as `diagnose compare` and `diagnose scaling`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import data
import streamlit as st

from diagnose.analysis.compare.compare import compare_runs, refusals
from diagnose.analysis.compare.facts import read_run
from diagnose.analysis.scaling.analyse import analyse
from diagnose.analysis.scaling.one_run import estimate
from diagnose.analysis.scaling.stores import read_stores
from diagnose.analysis.scaling.table import build_curve
from diagnose.errors import DiagnoseError
from diagnose.findings.scaling import scaling_findings
from diagnose.report.compare_document import document as compare_document
from diagnose.report.compare_render import render
from diagnose.report.scaling_report import section
from diagnose.report.scaling_text import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from catalog import Run

    from diagnose.analysis.compare.facts import RunFacts
    from diagnose.report.compare_document import CompareDocument

Key = tuple[str, str, tuple[int, int, int]]


class Compared(NamedTuple):
    """A comparison, or why these runs cannot be compared."""

    report: CompareDocument | None
    reasons: tuple[str, ...]


class Scaled(NamedTuple):
    """The scaling section of the report, its verdict in sentences, or why there is none."""

    section: dict[str, Any] | None
    verdict: tuple[str, ...]
    why: str = ""


def compare(base: Run, new: Run) -> Compared:
    """One run against another, as `diagnose compare --base BASE NEW` does."""
    return _compare(_key(base), _key(new))


def compare_html(base: Run, new: Run) -> bytes:
    """The comparison as a file."""
    report = compare(base, new).report
    return b"" if report is None else render(report, "html").encode()


def scale(runs: Sequence[Run]) -> Scaled:
    """The scaling curve of these runs, as `diagnose scaling STORE...` does."""
    return _scale(tuple(_key(run) for run in runs))


def _key(run: Run) -> Key:
    return run.id, str(run.path), run.fingerprint


@st.cache_resource(max_entries=32, show_spinner=False)
def facts_of(name: str, path: str, fingerprint: tuple[int, int, int]) -> RunFacts:
    """What a comparison needs to know of one run."""
    return read_run(data.reader(path, fingerprint), name)


@st.cache_resource(max_entries=16, show_spinner=False)
def _compare(base: Key, new: Key) -> Compared:
    facts = [facts_of(*run) for run in (base, new)]
    reasons = refusals(facts[:1], facts[1:])
    if reasons:
        return Compared(None, tuple(reasons))
    findings = [data.findings_of(path, mark) for _, path, mark in (base, new)]
    return Compared(
        compare_document(compare_runs(facts[:1], facts[1:]), data.rules(), before=findings[:1], after=findings[1:]), ()
    )


@st.cache_resource(max_entries=8, show_spinner=False)
def _scale(runs: tuple[Key, ...]) -> Scaled:
    try:
        read = read_stores([Path(path) for _, path, _ in runs])
        one = next(iter(read.runs)) if len({row.gpus for row in read.rows}) == 1 else None
        # Step times without throughput carry no work: weak scaling is assumed, as the notes say.
        stated = "weak" if read.kind == "step_time" else "unknown"
        curve = build_curve(
            read.rows, unit=read.unit, kind=read.kind, seconds=read.seconds, notes=read.notes, stated_type=stated
        )  # type: ignore[arg-type]
        result = analyse(curve, model_estimate=None if one is None else estimate(one))
    except DiagnoseError as error:
        return Scaled(None, (), str(error))
    findings = scaling_findings(result)
    return Scaled(section(result, findings), tuple(tables(result, findings).verdict))
