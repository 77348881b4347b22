"""A store to the report document: the only place that knows both the tables and the report's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from diagnose import __version__
from diagnose.analysis.summary import PARTS, WHOLE_TRACE
from diagnose.findings.evaluate import evaluate
from diagnose.report.document import Document, from_raw
from diagnose.report.parts.collectives import collective_rows
from diagnose.report.parts.registry import extra_sections

if TYPE_CHECKING:
    from diagnose.analysis.summary import JobSummary
    from diagnose.config import Config
    from diagnose.findings.evaluate import Evaluation
    from diagnose.findings.facts import Tables
    from diagnose.findings.rules import RuleBook
    from diagnose.findings.verdict import Verdict


def assemble(
    tables: Tables, config: Config, rules: RuleBook | None = None, *, evaluated: Evaluation | None = None
) -> Document:
    """The whole report of one run. Same store, rules and configuration: same document.

    ``evaluated`` is what `evaluate` gave for the same three, where the caller has it already.
    """
    result = evaluated or evaluate(tables, config, rules)
    raw: dict[str, Any] = {
        "tool": {"name": "diagnose", "version": __version__},
        "run": _run(tables, result.job),
        "verdict": _verdict(result.verdict),
        "step_time": _step_time(tables, result.job),
        "collectives": collective_rows(tables),
        "clocks": _clocks(tables),
        "findings": result.findings,
        "not_checked": result.not_checked,
        "data_quality": _data_quality(tables),
    }
    raw.update(extra_sections(tables, config, result.job))
    return from_raw(raw)


def _run(tables: Tables, job: JobSummary | None) -> dict[str, Any]:
    run = tables.frame("run").row(0, named=True)
    ranks = tables.query("SELECT rank FROM rank WHERE rank >= 0 ORDER BY rank").get_column("rank").to_list()
    steps = tables.query(
        "SELECT step, min(start_ns) AS start, bool_or(label = 'normal') AS used, max(why) AS why FROM step GROUP BY step ORDER BY start, step"
    )
    world = run["world_size"]
    hosts = tables.query("SELECT host, ranks FROM host ORDER BY host")
    missing = sorted(set(range(world)) - set(ranks)) if world and ranks else []
    wall = None if run["start_ns"] is None or run["end_ns"] is None else run["end_ns"] - run["start_ns"]
    return {
        "name": run["name"], "world_size": world, "ranks": ranks, "missing_ranks": missing,
        "hosts": [{"host": host, "ranks": members} for host, members in hosts.iter_rows()],
        "backend": run["backend"], "device_names": run["device_names"] or [],
        "parallelism": None if run["parallelism"] is None else msgspec.json.decode(run["parallelism"]), "wall_time_ns": wall,
        "steps": steps.filter(pl.col("used")).get_column("step").to_list() if job else [],
        "excluded_steps": [{"step": step, "why": why or "not a normal step"} for step, _, used, why in steps.iter_rows() if not used],
    }  # fmt: skip


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "bottleneck": verdict.bottleneck,
        "network_bound": verdict.network_bound,
        "text": verdict.text,
        "confidence": verdict.confidence,
    }


def _step_time(tables: Tables, job: JobSummary | None) -> dict[str, Any]:
    if job is None:
        labelled = tables.query("SELECT rank, step, step_ns, window_ns, label FROM step ORDER BY rank, start_ns")
        unknown: dict[str, Any] = dict.fromkeys(PARTS)
        return {
            "window": "", "steps_used": 0, "median_ns": None,
            "per_step": [{**row, **unknown, "rank": _rank(row["rank"])} for row in labelled.iter_rows(named=True)],
        }  # fmt: skip
    whole = tables.query(f"SELECT * FROM breakdown WHERE step = {WHOLE_TRACE} ORDER BY rank")
    per_step = tables.query(
        f"SELECT s.rank, s.step, s.step_ns, s.window_ns, s.label, {', '.join(f'b.{part}' for part in PARTS)} "
        "FROM step AS s LEFT JOIN breakdown AS b USING (rank, step) ORDER BY s.rank, s.start_ns"
    )
    return {
        "window": job.window,
        "steps_used": job.steps_used,
        "median_ns": job.step_ns if job.steps_used else None,
        "breakdown": {**job.breakdown, "blocking_comm_ns": job.blocking_ns},
        "trace": {
            _trace_key(row["rank"]): {"span_ns": row["span_ns"], **{part: row[part] for part in PARTS}}
            for row in whole.iter_rows(named=True)
        },
        "per_rank": [
            {**row, "rank": _rank(row["rank"])}
            for row in job.per_rank.select("rank", "host", "step_ns", *PARTS).iter_rows(named=True)
        ],
        "per_step": [{**row, "rank": _rank(row["rank"])} for row in per_step.iter_rows(named=True)],
    }


def _rank(rank: int) -> int | None:
    """Negative ranks stand for traces that name none."""
    return rank if rank >= 0 else None


def _trace_key(rank: int) -> str:
    return str(rank) if rank >= 0 else "?" if rank == -1 else f"?{-rank}"


def _clocks(tables: Tables) -> list[dict[str, Any]]:
    rows = tables.query("SELECT host, offset_ns, drift_ppm, residual_ns FROM clock ORDER BY host")
    return list(rows.iter_rows(named=True))


def _data_quality(tables: Tables) -> dict[str, Any]:
    sources = tables.query("SELECT path, kind, bytes, rank, host, rows, status, problem FROM source ORDER BY path")
    issues = tables.query(
        "SELECT code, CASE min(CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END) WHEN 0 THEN 'error' WHEN 1 THEN 'warning' ELSE 'info' END "
        "AS severity, sum(count)::BIGINT AS count, arg_min(example, path) AS example FROM issue GROUP BY code ORDER BY code"
    )
    return {"sources": list(sources.iter_rows(named=True)), "issues": list(issues.iter_rows(named=True))}
