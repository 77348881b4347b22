"""Run stores, tables and reports behind URLs: every command that reads a store reads it from there, and leaves no copy."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest
from click.testing import CliRunner
from cluster_support import HEALTHY, Cluster, rows

import diagnose
from diagnose.cli import app as app_command
from diagnose.cli.main import cli
from diagnose.errors import DiagnoseError, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["memory", "s3", "sftp"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place behind a URL; whatever is copied from it here must be gone at the end."""
    if request.param == "s3":
        request.getfixturevalue("s3_run")
        url = "s3://runs/stores/" + tmp_path.name
    elif request.param == "sftp":
        url = f"{request.getfixturevalue('sftp')}{tmp_path}/far"
    else:
        url = f"memory://{tmp_path.name}"
    here = tmp_path / "here"
    here.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(here))
        yield url
    assert list(here.iterdir()) == []


def put(local: Path, url: str) -> str:
    filesystem, path = fsspec.core.url_to_fs(url)
    filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    filesystem.put_file(str(local), path)
    return url


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_reports_of_a_store_behind_a_url(far: str, local_store: Path) -> None:
    url = put(local_store, f"{far}/run.duckdb")
    near = json.loads(invoke("report", str(local_store), "--format", "json"))
    assert json.loads(invoke("report", url, "--format", "json")) == near
    assert "Wrote" not in invoke("report", url, "--format", "html", "--output", f"{far}/out/run.html")
    with fsspec.open(f"{far}/out/run.html", "rt") as file:
        assert "<html" in file.read()[:200]


def test_runs_behind_urls_are_compared(far: str, local_store: Path) -> None:
    url = put(local_store, f"{far}/run.duckdb")
    told = invoke("compare", url, "--base", str(local_store), "--format", "json")
    assert json.loads(told)["outcome"]["change"] != "regression"
    assert url in told
    done = CliRunner().invoke(cli, ["compare", url, "--base", url])
    assert isinstance(done.exception, UsageError)
    assert f"{url} is given twice" in str(done.exception)


def test_scaling_reads_tables_and_stores_behind_urls(far: str, local_store: Path, tmp_path: Path) -> None:
    table = tmp_path / "curve.csv"
    table.write_text("gpus,tokens_per_s\n8,800\n16,1500\n32,2700\n64,4400\n")
    near = invoke("scaling", str(table), "--format", "json")
    assert json.loads(invoke("scaling", put(table, f"{far}/tables/curve.csv"), "--format", "json")) == json.loads(near)
    put(local_store, f"{far}/runs/one.duckdb")
    assert invoke("scaling", f"{far}/runs", "--format", "json", "--output", f"{far}/out.json") == ""
    with fsspec.open(f"{far}/out.json", "rt") as file:
        assert json.load(file)["scaling"]["measured"] is not None
    done = CliRunner().invoke(cli, ["scaling", str(table), "--output", f"{far}/out.json"])
    assert "exists already" in str(done.exception)


def test_the_dashboard_shows_copies(far: str, local_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(local_store, f"{far}/runs/a/one.duckdb")
    put(local_store, f"{far}/runs/two.duckdb")
    seen: list[list[str]] = []

    def serve(command: list[str], env: dict[str, str]) -> int:
        root = Path(env[app_command.ROOT_VARIABLE])
        seen.append(sorted(str(path.relative_to(root)) for path in root.rglob("*.duckdb")))
        assert rows(root / "two.duckdb") == rows(local_store)
        raise KeyboardInterrupt

    monkeypatch.setattr(app_command.subprocess, "call", serve)
    monkeypatch.setattr(app_command.signal, "signal", lambda *_: None)
    invoke("app", f"{far}/runs")
    assert seen == [["a/one.duckdb", "two.duckdb"]]


@pytest.mark.slow
def test_python_keeps_and_opens_stores_behind_urls(far: str, local_rows: dict[str, list[str]]) -> None:
    url = f"{far}/kept/run.duckdb"
    with diagnose.run(HEALTHY, store=url, name="run") as run:
        assert run.address == url
        assert rows(run.store) == local_rows
        verdict = run.verdict
    with pytest.raises(StoreError, match="exists already"):
        diagnose.run(HEALTHY, store=url)
    opened = diagnose.open(url)
    assert opened.verdict == verdict
    assert repr(opened) == f"Run({url!r})"
    opened.close()


@pytest.mark.parametrize("command", [["report"], ["compare", "--base"], ["scaling"], ["app"]])
def test_what_is_wrong_with_a_store_behind_a_url_names_the_url(command: list[str], tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    done = CliRunner().invoke(cli, [*command, f"{url}/none.duckdb", *(["x.duckdb"] if "--base" in command else [])])
    assert isinstance(done.exception, DiagnoseError)
    assert f"{url}/none.duckdb does not exist" in str(done.exception)
    if command == ["report"]:
        (tmp_path / "text").write_text("no store at all")
        done = CliRunner().invoke(cli, ["report", put(tmp_path / "text", f"{url}/text.duckdb")])
        assert str(done.exception).startswith(f"{url}/text.duckdb is not a run store")
        done = CliRunner().invoke(cli, ["report", "sftp://me:secret@host/run.duckdb"])
        assert "holds a password" in str(done.exception)
        assert "secret" not in str(done.exception)


@pytest.mark.slow
def test_python_reads_on_a_cluster(cluster: Cluster, local_rows: dict[str, list[str]], tmp_path: Path) -> None:
    with diagnose.run(HEALTHY, store=tmp_path / "run.duckdb", name="run", scheduler=cluster.address) as run:
        assert rows(run.store) == local_rows
    with pytest.raises(UsageError, match="give one of them"):
        diagnose.run(HEALTHY, scheduler=cluster.address, cluster="slurm")
