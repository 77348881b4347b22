from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from tiny_runs import write_run

from diagnose.config import Config
from diagnose.errors import UsageError
from diagnose.findings.rules import RuleBook
from diagnose.watch.identity import rules_hash, run_key
from diagnose.watch.inbox import find_runs, why_ready

if TYPE_CHECKING:
    from pathlib import Path


def age(folder: Path, seconds: float) -> None:
    moment = time.time() - seconds
    for path in folder.rglob("*"):
        os.utime(path, (moment, moment))


def ready(folder: Path, **options: object) -> str | None:
    (run,) = find_runs(folder, ready_file=options.get("ready_file"))
    return why_ready(
        run, ready_file=options.get("ready_file"), settle_s=options.get("settle_s", 60.0), now_ns=time.time_ns()
    )


def test_a_run_is_settled_when_nothing_changed_for_long_enough(tmp_path: Path) -> None:
    (write_run(tmp_path / "run") / "rank0.json").unlink()
    assert ready(tmp_path) is None
    age(tmp_path, 61)
    assert ready(tmp_path) == "settled"
    (tmp_path / "run" / ".rank0.json.part").write_text("still arriving")
    assert ready(tmp_path) is None


def test_all_ranks_are_enough_after_a_short_quiet(tmp_path: Path) -> None:
    write_run(tmp_path / "run", ranks=3)
    assert ready(tmp_path) is None
    age(tmp_path, 11)
    assert ready(tmp_path) == "all ranks"
    (tmp_path / "run" / "rank1.json").unlink()
    assert ready(tmp_path) is None


def test_a_ready_file_speaks_at_once_and_is_no_input(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run" / "DONE").touch()
    assert ready(tmp_path, ready_file="DONE") == "ready file"
    assert [file.path for file in find_runs(tmp_path, ready_file="DONE")[0].files] == ["rank0.json", "rank1.json"]


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("llama-7b_2026-11-30_12-00-33", "llama-7b"), ("run41", "run"), ("job-123456", "job"), ("gpt.8f3a9c21d0", "gpt"), ("123456", "inbox"),
        ("moe", "moe"), ("a_b-3_7", "a_b"), ("gpt2-0042", "gpt2"), ("llama3-8b.17", "llama3-8b"),
    ],
)  # fmt: skip
def test_a_job_is_the_name_without_number_date_and_id(tmp_path: Path, name: str, job: str) -> None:
    write_run(tmp_path / "inbox" / name)
    assert [run.job for run in find_runs(tmp_path / "inbox")] == [job]


def test_deeper_runs_belong_to_the_folders_above_them(tmp_path: Path) -> None:
    write_run(tmp_path / "team" / "llama" / "17")
    assert [(run.job, run.name) for run in find_runs(tmp_path, depth=3)] == [("team/llama", "17")]
    assert [run.job for run in find_runs(tmp_path, depth=3, job_from="^team/([a-z]{3})")] == ["lla"]


def test_the_inbox_itself_may_be_the_run(tmp_path: Path) -> None:
    write_run(tmp_path / "train_7")
    assert [(run.job, run.name) for run in find_runs(tmp_path / "train_7", depth=0)] == [("train", "train_7")]


def test_hidden_and_unfinished_names_are_no_runs(tmp_path: Path) -> None:
    for name in (".hidden", "copying.tmp", "empty"):
        (tmp_path / name).mkdir()
    write_run(tmp_path / ".hidden" / "x")
    assert find_runs(tmp_path) == []


def test_a_missing_inbox_and_a_bad_pattern_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a folder"):
        find_runs(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no pattern"):
        find_runs(tmp_path, job_from="(")


def test_the_key_follows_content_and_rules_and_ignores_times(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    rules = rules_hash(Config(), RuleBook())
    (run,) = find_runs(tmp_path)
    key = run_key(run, rules)
    age(tmp_path, 1000)
    assert run_key(find_runs(tmp_path)[0], rules) == key
    other = run_key(run, rules_hash(Config(network_bound_above_ratio=0.2), RuleBook()))
    assert (other.sources, other.key != key.key) == (key.sources, True)
    (tmp_path / "run" / "rank1.json").write_text("{}")
    assert run_key(find_runs(tmp_path)[0], rules).sources != key.sources
