"""The what-if section: step time, GPU-hours a day and money of each scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.analysis.summary import JobSummary
    from diagnose.config import Config
    from diagnose.findings.facts import Tables

_HOURS_PER_DAY = 24


def what_if(tables: Tables, config: Config, job: JobSummary | None) -> list[dict[str, Any]]:
    """Scenarios, best first. ``gpu_hours_per_day`` is what the fix frees if the job runs all day."""
    world = tables.query("SELECT world_size FROM run").item()
    rows = []
    for row in tables.query("SELECT * FROM what_if ORDER BY speedup DESC NULLS LAST, scenario").iter_rows(named=True):
        saved = None
        if job is not None and job.step_ns and row["step_ns"] is not None and world:
            saved = round((1 - row["step_ns"] / job.step_ns) * world * _HOURS_PER_DAY, 2)
        price = config.price_per_gpu_hour
        cost = None if saved is None or price is None else round(saved * price, 2)
        rows.append(
            {
                **row,
                "gpu_hours_per_day": saved,
                "cost_per_day": cost,
                "currency": None if cost is None else config.currency,
            }
        )
    return rows
