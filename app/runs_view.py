"""The Runs page's data: a cheap row of every store, its verdict once somebody asked or time allows."""

from __future__ import annotations

import re
import time
from typing import Any

import data
import polars as pl
import state
from frame import picked_row

from diagnose.errors import StoreError
from diagnose.units import format_ns

_NUMBER = re.compile(r"\d+")
BUDGET_S = 0.6
"""Time that one drawing of the list may spend on verdicts that nobody computed yet."""
_SCHEMA = {
    "run": pl.String, "started": pl.Datetime("us", "UTC"), "ranks": pl.Int64, "hosts": pl.Int64, "step": pl.String, "verdict": pl.String,
    "network-bound": pl.String, "critical": pl.Int64, "warnings": pl.Int64, "devices": pl.String, "name": pl.String, "problem": pl.String, "step_ns": pl.Float64, "job": pl.String,
}  # fmt: skip


def rows(*, all_verdicts: bool) -> tuple[pl.DataFrame, int]:
    """All runs, newest first, and how many verdicts are still missing."""
    found = [_card(run_id) for run_id in data.runs().runs]
    found.sort(key=lambda row: (-(row.get("started") or 0), row["run"]))
    deadline = time.monotonic() + BUDGET_S
    missing = 0
    for row in found:
        if "problem" in row:
            continue
        if all_verdicts or time.monotonic() < deadline:
            row |= _verdict(row["run"])
        else:
            row["verdict"] = "not judged yet"
            missing += 1
    return pl.DataFrame(found, schema=_SCHEMA), missing


def row_clicked(name: str, ids: list[str]) -> None:
    """A click on a run opens its overview."""
    place = picked_row(name)
    if place is not None and place < len(ids):
        state.go(state.HOME, ids[place])


def _card(run_id: str) -> dict[str, Any]:
    try:
        row = data.rows(data.open_run(run_id), "run_card").row(0, named=True)
    except StoreError as error:
        return {"run": run_id, "problem": str(error).replace(f"{data.runs().root}/", "")}
    started = None if row["start_ns"] is None else row["start_ns"] // 1000
    return {
        "run": run_id, "job": _NUMBER.sub("", run_id), "name": row["name"], "started": started, "ranks": row["world_size"], "hosts": row["hosts"],
        "step": "not known" if row["step_ns"] is None else format_ns(row["step_ns"]), "devices": row["devices"] or row["backend"] or "", "step_ns": row["step_ns"],
    }  # fmt: skip


def _verdict(run_id: str) -> dict[str, Any]:
    try:
        document = data.document(data.open_run(run_id))
    except StoreError as error:
        return {"problem": str(error).replace(f"{data.runs().root}/", "")}
    bound = {True: "yes", False: "no", None: "cannot say"}[document.verdict.network_bound]
    return {
        "verdict": document.verdict.bottleneck, "network-bound": bound, "critical": sum(item.severity == "critical" for item in document.findings),
        "warnings": sum(item.severity == "warning" for item in document.findings),
    }  # fmt: skip
