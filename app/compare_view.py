"""The Compare page's data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import data
import polars as pl
import shape

from diagnose.errors import StoreError
from diagnose.report.compare_tables import KIND

if TYPE_CHECKING:
    from catalog import Run

    from diagnose.report.document import Document, FindingEntry
    from diagnose.report.sheet import Sheet

__all__ = ["GONE", "KIND", "MOST", "both", "cells", "changes", "likely_base", "others"]
MOST = 20
_NUMBER = re.compile(r"\d+")
NEW, SAME, GONE = "New in this run", "In both", "Gone since the base"


def others(run: Run) -> list[str]:
    """All runs but this one."""
    return [run_id for run_id in data.runs().runs if run_id != run.id]


def likely_base(run: Run, ids: list[str]) -> str:
    """The run a person most likely means: the same name but for digits, else the same number of ranks, else the first."""
    size = data.rows(run, "run_card").item(0, "world_size")
    near = [run_id for run_id in ids if _NUMBER.sub("", run_id) == _NUMBER.sub("", run.id)]
    return near[-1] if near else next((run_id for run_id in ids if _size(run_id) == size), ids[0])


def _size(run_id: str) -> int | None:
    try:
        size: int | None = data.rows(data.open_run(run_id), "run_card").item(0, "world_size")
    except StoreError:
        return None
    return size


def both(before: Document, now: Document, base_name: str, name: str) -> pl.DataFrame:
    """Parts of both median steps, the base above."""
    first = shape.job_parts(before).with_columns(pl.lit(f"base: {base_name}").alias("place"))
    second = shape.job_parts(now).with_columns(pl.lit(f"this run: {name}").alias("place"))
    return pl.concat([first, second])


def changes(before: Document, now: Document) -> dict[str, list[FindingEntry]]:
    """Findings by what became of them; info is left out."""
    old = {item.fingerprint: item for item in before.findings if item.severity != "info"}
    new = {item.fingerprint: item for item in now.findings if item.severity != "info"}
    return {
        NEW: [item for key, item in new.items() if key not in old],
        SAME: [item for key, item in new.items() if key in old],
        GONE: [item for key, item in old.items() if key not in new],
    }


def cells(sheet: Sheet) -> pl.DataFrame:
    """A table of the comparison as text cells; two columns without a title get one."""
    names = [column.title or "what" for column in sheet.columns]
    return pl.DataFrame({name: [row[place] for row in sheet.rows] for place, name in enumerate(names)})
