"""`diagnose run` and `diagnose report` as commands: exit codes, streams, files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from kineto_files import header, small_run, write

from diagnose.cli import main as main_module
from diagnose.cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for rank in range(2):
        write(tmp_path / "traces" / f"rank{rank}.json", small_run(), head=header(rank=rank, world=2))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "traces"


def code(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_the_result_is_on_stdout_and_the_rest_on_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("run", folder, "--format", "json") == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["schema"] == "diagnose.report/1"
    assert "traces.duckdb" in captured.err
    assert Path("traces.duckdb").is_file()
    assert code("report", "traces.duckdb", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == document


def test_a_taken_name_ends_before_anything_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("run", folder, "-o", "mine.duckdb") == 0
    assert code("run", folder, "-o", "mine.duckdb") == 2
    assert "--force" in capsys.readouterr().err
    assert code("run", folder, "-o", "mine.duckdb", "--force") == 0


def test_fail_on_is_exit_one(folder: Path) -> None:
    assert code("run", folder, "-o", "a.duckdb", "--fail-on", "warning") == 1
    assert code("run", folder, "-o", "b.duckdb", "--fail-on", "never") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument"),
        (["run", "absent"], "does not exist"),
        (["run", "traces", "--format", "pdf"], "pdf"),
        (["run", "traces", "--rank-from", "["], "regular expression"),
        (["run", "traces", "--config", "absent.yaml"], "absent.yaml"),
        (["run", "traces", "--host-map", "absent.yaml"], "absent.yaml"),
        (["report", "absent.duckdb"], "does not exist"),
        (["report", "traces/rank0.json"], "run store"),
        (["nothing"], "nothing"),
    ],
)
def test_usage_errors_are_two_and_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert folder.is_dir()
    assert code(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_bug_is_seventy_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("diagnose.pipeline.build.build_run", broken)
    assert code("run", folder) == 70
    assert "this is a bug" in capsys.readouterr().err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert code("--help") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in main_module._COMMANDS)
    assert code("--version") == 0


def test_progress_shows_names_with_brackets_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a[").mkdir()
    (folder / "a[" / "wrong]").mkdir()
    (folder / "rank0.json").rename(folder / "a[" / "wrong]" / "[bold]rank0.json")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert code("run", folder, "-o", "p.duckdb") == 0
    assert capsys.readouterr().out
