"""The Scaling page's data: the report's scaling section as frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import data
import polars as pl
from text import plain

from diagnose.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from catalog import Run

    from diagnose.report.document import Document

_KINDS = ("measured", "measured, not used", "predicted")


def candidates() -> dict[str, int]:
    """Runs with a known size, and that size."""
    found = {}
    for run_id in data.runs().runs:
        try:
            size = data.rows(data.open_run(run_id), "run_card").item(0, "world_size")
        except StoreError:
            continue
        if size:
            found[run_id] = int(size)
    return found


def same_job(run: Run, sizes: dict[str, int]) -> list[str]:
    """A first guess: runs whose name differs from this one only in its digits."""
    own = _letters(run.id)
    return [run_id for run_id in sizes if _letters(run_id) == own]


def stored(document: Document) -> dict[str, Any] | None:
    """The section that the run's own report carries."""
    return document.scaling


def points(section: dict[str, Any]) -> pl.DataFrame:
    """Measured sizes."""
    rows = [
        {"gpus": item["gpus"], "value": float(item["value"]), "kind": _KINDS[0] if item.get("used", True) else _KINDS[1], "why": item.get("why") or ""}
        for item in section.get("points") or ()
    ]  # fmt: skip
    return pl.DataFrame(rows, schema={"gpus": pl.Int64, "value": pl.Float64, "kind": pl.String, "why": pl.String})


def predicted(section: dict[str, Any]) -> pl.DataFrame:
    """Predicted sizes with their interval."""
    rows = []
    for item in section.get("predictions") or ():
        if item.get("value"):
            low, high = item.get("interval") or (item["value"], item["value"])
            rows.append(
                {
                    "gpus": item["gpus"],
                    "value": float(item["value"]),
                    "low": low,
                    "high": high,
                    "kind": _KINDS[2],
                    "confidence": str(item.get("confidence") or ""),
                }
            )
    return pl.DataFrame(
        rows,
        schema={
            "gpus": pl.Int64,
            "value": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
            "kind": pl.String,
            "confidence": pl.String,
        },
    )


def efficiency(section: dict[str, Any]) -> pl.DataFrame:
    """Efficiency at each size."""
    rows = [item for item in section.get("efficiency") or () if item.get("ratio") is not None]
    return pl.DataFrame(
        [{"gpus": row["gpus"], "ratio": row["ratio"]} for row in rows], schema={"gpus": pl.Int64, "ratio": pl.Float64}
    )


def paragraphs(verdict: Sequence[str]) -> list[str]:
    """Sentences of the verdict as Markdown; lines that begin with a dash are one list."""
    found: list[str] = []
    for line in verdict:
        item = line.startswith("- ")
        text = f"- {plain(line[2:])}" if item else plain(line)
        if item and found and found[-1].startswith("- "):
            found[-1] += f"\n{text}"
        else:
            found.append(text)
    return found


def unit(section: dict[str, Any]) -> str:
    """Unit of the values."""
    return str(section.get("unit") or "value")


def _letters(text: str) -> str:
    return "".join(letter for letter in text if not letter.isdigit())
