"""The What-if page's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.report.view import SCENARIOS, clean

if TYPE_CHECKING:
    from diagnose.report.document import Document


def rows(document: Document) -> pl.DataFrame:
    """Scenarios in words, fastest first."""
    found = [
        {
            "scenario": SCENARIOS.get(item.scenario, clean(item.scenario).replace("_", " ")), "step_ns": item.step_ns, "speedup": item.speedup,
            "gpu_hours_per_day": item.gpu_hours_per_day, "cost_per_day": item.cost_per_day, "explained_ratio": item.explained_ratio,
        }
        for item in document.what_if
    ]  # fmt: skip
    kinds = {
        "scenario": pl.String,
        "step_ns": pl.Float64,
        "speedup": pl.Float64,
        "gpu_hours_per_day": pl.Float64,
        "cost_per_day": pl.Float64,
        "explained_ratio": pl.Float64,
    }
    frame = pl.DataFrame(found, schema=kinds).sort("step_ns", nulls_last=True, maintain_order=True)
    return frame.drop("cost_per_day") if frame.get_column("cost_per_day").is_null().all() else frame


def known(frame: pl.DataFrame) -> pl.DataFrame:
    """Scenarios with a step time."""
    return frame.filter(pl.col("step_ns").is_not_null() & pl.col("speedup").is_not_null())


def money(document: Document) -> str:
    """Label of the column of money."""
    currency = next((item.currency for item in document.what_if if item.currency), "")
    return f"saved ({currency or 'money'} a day)"
