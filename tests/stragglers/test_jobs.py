"""Jobs with known faults, and a real one with published answers: what is found, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from diagnose.cli.main import cli

REAL = Path(__file__).parents[3] / "shared" / "data" / "stragglers" / "ST"


def answer(folder: Path, store: Path) -> dict:
    result = CliRunner().invoke(
        cli, ["run", str(folder), "-o", str(store), "--force", "--format", "json", "--jobs", "1"]
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def codes(report: dict) -> list[str]:
    return [finding["code"] for finding in report["findings"] if finding["severity"] != "info"]


def value(store: Path, sql: str) -> float:
    with duckdb.connect(str(store), read_only=True) as connection:
        return connection.execute(sql).fetchall()[0][0]


@pytest.mark.parametrize(
    ("job", "code", "ranks", "explained"),
    [
        ("heavy_stage", "PIPE-STAGE", [6, 7], 0.05),
        ("slow_worker", "RANK-GPU", [5], 0.05),
        ("uneven", "RANK-IMBALANCE", [], 0.05),
        ("uneven_even_stages", "RANK-IMBALANCE", [], 0.05),
    ],
)
def test_the_fault_comes_first(job, code, ranks, explained, job_folder, tmp_path):
    store = tmp_path / "run.duckdb"
    report = answer(job_folder(job), store)
    first = max(report["findings"], key=lambda finding: finding["impact"]["ns_per_step"] or 0)
    assert first["code"] == code
    assert first["ranks"] == ranks
    assert not report["verdict"]["network_bound"]
    assert not {"NET-BANDWIDTH", "NET-TAIL", "RANK-MEMORY", "RANK-HOST"} & set(codes(report))
    assert abs(value(store, "SELECT value FROM job_stat WHERE name = 'replay_explained_ratio'") - 1) <= explained


def test_an_even_job_blames_no_rank_and_no_data(job_folder, tmp_path):
    found = codes(answer(job_folder("even"), tmp_path / "run.duckdb"))
    assert set(found) <= {"PIPE-BUBBLE"}


def test_a_slow_worker_is_no_uneven_data(job_folder, tmp_path):
    found = codes(answer(job_folder("slow_worker"), tmp_path / "run.duckdb"))
    assert not {"RANK-IMBALANCE", "PIPE-STAGE", "PIPE-BUBBLE"} & set(found)


def test_steps_are_labelled_normal_and_as_long_as_their_windows(job_folder, tmp_path):
    store = tmp_path / "run.duckdb"
    answer(job_folder("heavy_stage"), store)
    assert value(store, "SELECT count(*) FROM step WHERE label <> 'normal'") == 0
    assert value(store, "SELECT max(step_ns) / 1e9 FROM step") < 2.2
    assert value(store, "SELECT count(*) FROM comm_call WHERE step IS NULL") == 0
    assert value(store, "SELECT count(*) FROM collective WHERE seen <> members") == 0


def test_waiting_inside_a_norm_over_all_ranks_is_no_work(job_folder, tmp_path):
    store = tmp_path / "run.duckdb"
    answer(job_folder("heavy_stage"), store)
    work = "SELECT median(work_ns) FROM rank_work WHERE role"
    assert value(store, f"{work} = 3") / value(store, f"{work} < 3") == pytest.approx(1.58, abs=0.05)
    parts = "SELECT max(abs(span_ns - compute_ns - exposed_comm_ns - exposed_memcpy_ns - idle_ns)) FROM breakdown WHERE step >= 0"
    assert value(store, parts) <= 1


@pytest.mark.skipif(not REAL.exists(), reason="the shared data is not here")
def test_the_real_job_has_its_published_answers(tmp_path):
    store = tmp_path / "run.duckdb"
    report = answer(REAL, store)
    first = max(report["findings"], key=lambda finding: finding["impact"]["ns_per_step"] or 0)
    assert (first["code"], first["ranks"]) == ("PIPE-STAGE", [6, 7])
    assert report["verdict"]["network_bound"] is False
    assert set(codes(report)) == {"PIPE-STAGE"}
    assert value(store, "SELECT value FROM job_stat WHERE name = 'replay_explained_ratio'") == pytest.approx(
        1.0, abs=0.01
    )
    assert value(store, "SELECT speedup FROM what_if WHERE scenario = 'no_skew'") == pytest.approx(1.179, rel=0.05)
    medians = "SELECT max(work) / median(work) FROM (SELECT role, median(work_ns) AS work FROM rank_work GROUP BY role)"
    assert value(store, medians) == pytest.approx(1.6, abs=0.05)
