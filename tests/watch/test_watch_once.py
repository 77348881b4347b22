from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING

import polars as pl
from click.testing import CliRunner

from diagnose.cli.main import cli
from diagnose.report.document import decode
from diagnose.watch.options import Retention
from diagnose.watch.record import Records

if TYPE_CHECKING:
    from pathlib import Path

    from watch_support import Room

Lay = "Callable[..., Path]"


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def test_each_run_is_analysed_once_and_told_against_its_job(room: Room, lay: Lay) -> None:
    for number in range(4):
        lay(f"job_{number}", seed=number, start_s=number * 100)
    lay("job_4", seed=9, slow=1.2, start_s=400)
    before = tree(room.inbox)
    look = room.watcher().look()
    assert [record.name for record in look.published] == [f"job_{number}" for number in range(5)]
    assert tree(room.inbox) == before
    assert room.watcher().look().published == ()
    assert room.leftovers() == []
    first, *_, last = look.published
    assert (first.change, last.change, last.changed_part) == ("first", "regression", "compute")
    assert re.match(r"1\d % slower than the 4 runs since job_0: ", last.since)
    folder = room.out / last.folder
    report = decode((folder / "report.json").read_bytes())
    assert report.verdict.since == last.since
    assert report.verdict.text.startswith(f"{last.since} ")
    assert (folder / "report.md").read_text().partition("\n")[0].count(" slower than the 4 runs since job\\_0") == 1
    assert re.search(r"<h1>1\d % slower than the 4 runs since job_0", (folder / "report.html").read_text())
    assert report.findings[0].code == "COMPARE-STEP"
    assert "COMPARE-PART" in {finding.code for finding in report.findings}
    assert not any(note.code.startswith("COMPARE-") for note in last.findings)
    assert "SLOWER" in (folder / "compare.html").read_text()
    assert json.loads((folder / "compare.json").read_text())["schema"] == "diagnose.compare/1"
    history = pl.read_parquet(room.out / "history.parquet")
    assert history.get_column("change").to_list()[-1] == "regression"
    page = (room.out / "index.html").read_text()
    assert page.count("<svg") == 1
    assert f"{last.folder}/report.html" in page
    assert not re.search(r"<script|<link|src=|https?://", page)


def test_a_regression_is_told_once_and_going_back_too(room: Room, lay: Lay) -> None:
    for number, slow in enumerate((1, 1.2, 1.2, 1, 1)):
        lay(f"job_{number}", seed=number, slow=slow, start_s=number * 100)
    changes = [record.change for record in room.watcher().look().published]
    assert [change for change in changes if change in ("regression", "improvement")] == ["regression", "improvement"]
    assert (changes[1], changes[3]) == ("regression", "improvement")


def test_a_slow_drift_adds_up(room: Room, lay: Lay) -> None:
    for number in range(5):
        lay(f"job_{number}", seed=0, slow=1.02**number, start_s=number * 100)
    changes = [record.change for record in room.watcher().look().published]
    assert "regression" in changes


def test_the_same_input_gives_the_same_reports(room: Room, lay: Lay, tmp_path: Path) -> None:
    lay("job_1", seed=1)
    reports = []
    for name in ("a", "b"):
        (record,) = room.watcher(out=tmp_path / name).look().published
        folder = tmp_path / name / record.folder
        reports.append([(folder / file).read_bytes() for file in ("report.json", "report.html", "report.md")])
    assert reports[0] == reports[1]


def test_new_files_make_a_new_analysis_that_supersedes(room: Room, lay: Lay) -> None:
    lay("job_1", seed=1)
    (old,) = room.watcher().look().published
    lay("job_1", seed=1, steps=5)
    (new,) = room.watcher().look().published
    assert new.supersedes == old.key
    assert "Supersedes" in decode((room.out / new.folder / "report.json").read_bytes()).verdict.text
    assert pl.read_parquet(room.out / "history.parquet").get_column("current").to_list() == [False, True]
    assert "1 run of 1 job" in (room.out / "index.html").read_text()


def test_touching_a_run_does_not_analyse_it_again(room: Room, lay: Lay) -> None:
    run = lay("job_1", seed=1)
    room.watcher().look()
    for path in run.iterdir():
        os.utime(path)
    assert room.watcher().look().published == ()


def test_a_run_that_fails_is_set_aside_and_the_others_go_on(room: Room, lay: Lay) -> None:
    (room.inbox / "bad_1").mkdir()
    (room.inbox / "bad_1" / "rank0.json").write_text("nothing to see")
    lay("good_1", seed=1)
    looks = [room.watcher().look() for _ in range(4)]
    assert [look.failed for look in looks] == [("bad_1",), ("bad_1",), ("bad_1",), ()]
    assert looks[3].set_aside == ("bad_1",)
    assert room.published() == ["good_1"]
    (aside,) = room.out.glob("failed/*.json")
    assert "nothing readable" in json.loads(aside.read_text())["errors"][-1]
    page = (room.out / "index.html").read_text()
    assert "1 set aside" in page
    assert aside.name in page
    aside.unlink()
    assert room.watcher().look().failed == ("bad_1",)


def test_a_run_that_keeps_killing_the_process_is_set_aside(room: Room, lay: Lay) -> None:
    from diagnose.watch import attempts
    from diagnose.watch.inbox import find_runs

    lay("job_1", seed=1)
    watcher = room.watcher()
    watcher.places.make()
    (run,) = find_runs(room.inbox)
    from diagnose.watch.identity import run_key

    key = run_key(run, watcher._rules).key
    for _ in range(attempts.DEATHS):
        attempts.begin(watcher.places, run, key)
    assert watcher.look().set_aside == ("job_1",)
    assert "ended the process" in next(room.out.glob("failed/*.json")).read_text()


def test_retention_removes_folders_and_keeps_history(room: Room, lay: Lay) -> None:
    for number in range(4):
        lay(f"job_{number}", seed=number, start_s=number * 100)
    room.watcher(retention=Retention(keep_runs=2)).look()
    assert room.published() == ["job_2", "job_3"]
    history = pl.read_parquet(room.out / "history.parquet")
    assert history.get_column("kept").to_list() == [False, False, True, True]
    assert room.watcher(retention=Retention(keep_runs=2)).look().published == ()
    lay("job_4", seed=4, slow=1.2, start_s=400)
    (record,) = room.watcher().look().published
    assert (record.change, len(record.compared_with)) == ("regression", 4)
    room.watcher(retention=Retention(keep_days=1e-9)).look()
    assert room.published() == []
    assert room.leftovers() == []
    assert len(Records(room.watcher().places).all()) == 5


def test_other_work_starts_a_new_level(room: Room, lay: Lay) -> None:
    lay("job_1", seed=1)
    lay("job_2", seed=2, ranks=3, start_s=100)
    *_, last = room.watcher().look().published
    assert last.change == "not comparable"
    assert "world size 2 against 3" in last.since


def test_a_dry_run_writes_nothing(room: Room, lay: Lay) -> None:
    lay("job_1", seed=1)
    arguments = [
        "watch",
        str(room.inbox),
        "--out",
        str(room.out),
        "--once",
        "--settle",
        "0",
        "--dry-run",
        "--jobs",
        "1",
    ]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "would publish job/job_1: First run of this job." in result.stdout
    assert not room.out.exists()


def test_once_exits_two_when_a_run_failed(room: Room) -> None:
    (room.inbox / "bad").mkdir()
    (room.inbox / "bad" / "x.json").write_text("?")
    result = CliRunner().invoke(
        cli, ["watch", str(room.inbox), "--out", str(room.out), "--once", "--settle", "0", "--jobs", "1"]
    )
    assert result.exit_code == 2
    assert "bad: failed, will be tried again: nothing readable" in result.stderr


def test_an_output_folder_inside_the_inbox_is_no_run(room: Room, lay: Lay) -> None:
    lay("job_1", seed=1)
    out = room.inbox / "reports"
    assert len(room.watcher(out=out).look().published) == 1
    assert room.watcher(out=out).look().published == ()


def test_names_from_outside_cannot_leave_the_page_or_the_folder(room: Room, lay: Lay) -> None:
    lay("<b>x</b>&'\" $(id)_1", seed=1)
    (record,) = room.watcher().look().published
    assert re.fullmatch(r"runs/[A-Za-z0-9._-]+", record.folder)
    assert "<b>x</b>" not in (room.out / "index.html").read_text()


def test_a_signal_ends_it_cleanly(room: Room, lay: Lay) -> None:
    import signal
    import subprocess
    import sys

    for number in range(4):
        lay(f"job_{number}", seed=number, start_s=number * 100)
    arguments = [
        sys.executable,
        "-m",
        "diagnose",
        "watch",
        room.inbox,
        "--out",
        room.out,
        "--settle",
        "0",
        "--poll",
        "0.1",
        "--jobs",
        "1",
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not list(room.out.glob("runs/*/record.json")) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert room.leftovers() == []
    done = room.published()
    assert 1 <= len(done) < 4
    room.watcher().look()
    assert room.published() == [f"job_{number}" for number in range(4)]
