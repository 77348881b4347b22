"""The numbers on the pages are those of the JSON report."""

from __future__ import annotations

import json
from statistics import median

import catalog
import collectives_view
import data
import heat_view
import polars as pl
import pytest
import shape
import what_if_view
from app_session import texts
from charts_comm import TRANSFER
from theme import PART_LABELS

from diagnose.config import Config
from diagnose.report import view
from diagnose.report.assemble import assemble
from diagnose.report.document import decode, encode
from diagnose.store.reader import Store
from diagnose.units import format_count, format_ns

RUNS = ("healthy", "straggler", "slow_nic", "cpu_only", "one_rank", "whole_job")


@pytest.fixture(params=RUNS)
def run_and_report(request, stores, monkeypatch):
    """A run as the app sees it, and its report as the command prints it."""
    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(stores))
    path = stores / f"{request.param}.duckdb"
    with Store(path) as store:
        report = decode(encode(assemble(store, Config())))
    return catalog.open_run(catalog.discover(stores), request.param), report


def test_overview_shows_the_reports_verdict_and_times(open_app, run_and_report):
    run, report = run_and_report
    said = texts(open_app(run=run.id))
    for sentence in view.verdict_parts(report):
        assert sentence in said
    assert f"**{format_ns(report.step_time.median_ns)}**" in said
    assert f"**{format_count(len(report.findings))}**" in said
    for finding in [item.finding for item in view.fold(report.findings)[:5]]:
        assert finding.title in said
        assert view.cost(finding.impact) in said


def test_downloaded_report_is_the_commands_report(run_and_report):
    run, report = run_and_report
    assert data.report(run, "json") == encode(report)
    assert json.loads(data.report(run, "json"))["schema"] == "diagnose.report/1"
    assert b"<script" not in data.report(run, "html")


def test_steps_are_medians_of_the_reports_steps(run_and_report):
    run, report = run_and_report
    shown = data.rows(run, "parts_by_step", rank=None, most=1000)
    for row in shown.iter_rows(named=True):
        of_step = [item for item in report.step_time.per_step if item.step == row["first_step"]]
        normal = [item for item in of_step if item.label == "normal"]
        used = normal if 2 * len(normal) > len(of_step) else of_step
        assert row["counted"] == (2 * len(normal) > len(of_step))
        for part in ("step_ns", "compute_ns", "exposed_comm_ns", "idle_ns"):
            known = [value for item in used if (value := getattr(item, part)) is not None]
            assert row[part] == (pytest.approx(median(known)) if known else None), (row["first_step"], part)


def test_ranks_are_the_reports_ranks(run_and_report):
    run, report = run_and_report
    shown = {row["rank"]: row for row in data.rows(run, "parts_by_rank", step=None).iter_rows(named=True)}
    assert len(shown) == len(report.step_time.per_rank)
    for row in report.step_time.per_rank:
        mine = shown[-1 if row.rank is None else row.rank]
        for part in (
            "step_ns",
            "compute_ns",
            "exposed_comm_ns",
            "exposed_wait_ns",
            "exposed_transfer_ns",
            "overlapped_comm_ns",
            "exposed_memcpy_ns",
            "idle_ns",
        ):
            value = getattr(row, part)
            assert mine[part] == (None if value is None else pytest.approx(value, abs=1)), (row.rank, part)


def test_bars_are_cut_like_the_reports_bars(run_and_report):
    _, report = run_and_report
    rows = report.step_time.per_rank
    frame = pl.DataFrame(
        [{name: getattr(row, name) for name in row.__struct_fields__} for row in rows], infer_schema_length=None
    )
    drawn = shape.long_parts(
        frame.with_columns(pl.col("rank").cast(pl.String).fill_null("only").alias("place")), ("place",)
    )
    for row in rows:
        mine = drawn.filter(pl.col("place") == ("only" if row.rank is None else str(row.rank))).sort("order")
        assert list(zip(mine["part"], mine["ns"], strict=True)) == [
            (PART_LABELS[item.part.key], item.ns) for item in view.slices(row)
        ]
    job = shape.job_parts(report)
    assert dict(zip(job["part"], job["ns"], strict=True)) == {
        PART_LABELS[item.part.key]: item.ns for item in view.slices(report.step_time.breakdown)
    }


def test_lateness_is_the_reports(run_and_report):
    run, report = run_and_report
    shown = heat_view.cells(run, heat_view.LATE, None)
    late = report.charts.lateness if report.charts else None
    known = 0 if late is None else sum(value is not None for line in late.late_ns for value in line)
    assert len(shown) == known
    if late is not None:
        first = shown.filter((pl.col("rank") == late.ranks[0]) & (pl.col("step") == late.steps[0])).item(0, "value_ns")
        assert first == late.late_ns[0][0]


def test_collectives_are_the_reports(run_and_report):
    run, report = run_and_report
    if not report.collectives:
        pytest.skip("this run has no collectives")
    drawn = collectives_view.groups(report).filter(pl.col("part") == TRANSFER)
    known = [row.transfer_ns for row in report.collectives if row.transfer_ns is not None]
    assert drawn.get_column("ns").to_list()[:1] == known[:1]
    total = sum(row.count for row in report.collectives)
    assert data.rows(run, "collective_kinds").get_column("count").sum() == total


def test_scenarios_are_the_reports(run_and_report):
    _, report = run_and_report
    shown = what_if_view.rows(report)
    assert sorted(shown.get_column("step_ns").drop_nulls()) == sorted(
        float(item.step_ns) for item in report.what_if if item.step_ns is not None
    )


def test_a_rank_stands_beside_the_median_of_the_others(run_and_report):
    run, report = run_and_report
    rank = report.run.ranks[-1] if report.run.ranks else -1
    beside = shape.beside_peers(report.step_time.per_rank, data.rows(run, "rank_list"), rank)
    mine = next(row for row in report.step_time.per_rank if row.rank == (rank if rank >= 0 else None))
    assert beside.item(0, "compute_ns") == mine.compute_ns
    if len(beside) > 1:
        roles = dict(data.rows(run, "rank_list").select("rank", "role").iter_rows())
        others = [
            row.compute_ns for row in report.step_time.per_rank if row.rank != rank and roles[row.rank] == roles[rank]
        ]
        assert beside.item(1, "compute_ns") == median(others)
