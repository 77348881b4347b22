"""Sections that analyses add to the report; a new one is a module with one function and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.report.parts.charts import charts
from diagnose.report.parts.network import network
from diagnose.report.parts.node_rows import node_rows
from diagnose.report.parts.transports import transports
from diagnose.report.parts.what_if import what_if

if TYPE_CHECKING:
    from diagnose.analysis.summary import JobSummary
    from diagnose.config import Config
    from diagnose.findings.facts import Tables


def extra_sections(tables: Tables, config: Config, job: JobSummary | None) -> dict[str, Any]:
    """The sections by their key in the report."""
    pictures = charts(tables)
    rows = node_rows(tables)
    if rows:
        pictures = {**(pictures or {}), "nodes": rows}
    return {
        "network": network(tables),
        "charts": pictures,
        "what_if": what_if(tables, config, job),
        "transports": transports(tables),
    }
