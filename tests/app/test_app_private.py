"""The dashboard on a shared host: what it listens on, what a browser can make it do, what a foreign store can do."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import catalog
import data
import duckdb
import pytest
from app_stores import APP
from click.testing import CliRunner

from diagnose.cli import app as command
from diagnose.errors import StoreError, UsageError


@pytest.fixture
def started(monkeypatch):
    """What would have been executed."""
    calls = []
    monkeypatch.setattr(command.os, "execve", lambda *arguments: calls.append(arguments))
    return calls


def flags(arguments):
    pairs = list(zip(arguments[2::2], arguments[3::2], strict=True))
    return dict(pairs), [value for name, value in pairs if name == "--server.allowedHosts"]


def test_the_command_listens_on_this_machine_only(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command.app, [str(tmp_path), "--port", "9001"], standalone_mode=False)
    assert result.exception is None
    ((program, arguments, environment),) = started
    settings, hosts = flags(arguments)
    assert program == arguments[0] == sys.executable
    assert Path(arguments[1]) == APP / "launch.py"
    assert settings["--server.address"] == "127.0.0.1"
    assert settings["--server.port"] == "9001"
    assert settings["--browser.gatherUsageStats"] == "false"
    assert settings["--server.enableAgentApi"] == "false"
    assert hosts == ["localhost", "127.0.0.1"]
    assert environment["DIAGNOSE_APP_ROOT"] == str(tmp_path)


def test_other_machines_only_when_it_is_meant(started, tmp_path):
    refused = CliRunner().invoke(command.app, [str(tmp_path), "--host", "0.0.0.0"], standalone_mode=False)  # noqa: S104 - it is refused
    assert isinstance(refused.exception, UsageError)
    assert "--allow-network" in str(refused.exception)
    assert not started
    CliRunner().invoke(command.app, [str(tmp_path), "--host", "10.1.2.3", "--allow-network"], standalone_mode=False)
    _, hosts = flags(started[0][1])
    assert "10.1.2.3" in hosts


def test_a_path_that_does_not_exist_is_told(started, tmp_path):
    result = CliRunner().invoke(command.app, [str(tmp_path / "none")], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert not started


def test_the_shipped_configuration_is_private():
    settings = tomllib.loads((APP / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert settings["server"]["address"] == "127.0.0.1"
    assert settings["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
    assert settings["server"]["enableAgentApi"] is False
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["client"]["showErrorDetails"] == "type"


def test_no_page_takes_files_paths_or_queries():
    code = "\n".join(path.read_text(encoding="utf-8") for path in APP.rglob("*.py"))
    assert not re.search(
        r"file_uploader|text_area|camera_input|audio_input|chat_input|unsafe_allow_html|unsafe_allow_javascript|data_editor",
        code,
    )
    assert not re.search(r"https?://(?!localhost)", code.replace("http://{", ""))


def test_a_run_is_opened_for_reading_and_reaches_nothing_else(stores, monkeypatch, tmp_path):
    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(stores))
    store = data.store(catalog.open_run(catalog.discover(stores), "healthy"))
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (f"SELECT * FROM '{secret}'", f"SELECT * FROM read_text('{secret}')", f"ATTACH '{tmp_path}/x.duckdb'", f"COPY (SELECT 1) TO '{tmp_path}/y.csv'", "DELETE FROM run.main.run",
                "SET enable_external_access = true"):  # fmt: skip
        with pytest.raises(StoreError):
            store.query(sql)


def test_a_foreign_store_with_a_view_reads_no_file(tmp_path, monkeypatch, open_app):
    from synthetic_store import write_empty

    secret = tmp_path / "secret.txt"
    secret.write_text("the secret words")
    root = tmp_path / "runs"
    root.mkdir()
    path = write_empty(root / "r.duckdb", name="r")
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE issue").fetchall()
        connection.execute(
            f"CREATE VIEW issue AS SELECT content AS path, content AS code, 'error' AS severity, 1::BIGINT AS count, content AS example, 0::BIGINT AS byte_offset FROM read_text('{secret}')"
        ).fetchall()
    session = open_app("quality", root=root, run="r")
    shown = str(session.main)
    assert "the secret words" not in shown
    assert session.error


def test_nothing_in_the_package_imports_the_app():
    package = APP.parent / "diagnose"
    for path in package.rglob("*.py"):
        if "_app" not in path.parts:
            assert not re.search(
                r"^\s*(from|import) (app|_app|streamlit|altair)\b", path.read_text(encoding="utf-8"), re.MULTILINE
            ), path


def test_stores_are_never_written(stores, open_app):
    before = {path.name: catalog.fingerprint(path) for path in stores.glob("*.duckdb")}
    open_app("runs")
    assert {path.name: catalog.fingerprint(path) for path in stores.glob("*.duckdb")} == before
