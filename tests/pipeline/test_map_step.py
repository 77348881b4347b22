"""The map step and the engine: a file that cannot be read, a worker that dies or a bug costs that file only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kineto_files import header, kernel, render, small_run, write

from diagnose.errors import StoreError
from diagnose.ingest.base import ReadOptions
from diagnose.ingest.discover import discover
from diagnose.pipeline import engine, map_source
from diagnose.pipeline.engine import LocalEngine
from diagnose.pipeline.result import MapTask, SourceResult

if TYPE_CHECKING:
    from collections.abc import Callable


def tasks(folder: Path) -> list[MapTask]:
    (folder / "shards").mkdir(exist_ok=True)
    return [
        MapTask(source=source, options=ReadOptions(), shards=str(folder / "shards"), number=number)
        for number, source in enumerate(discover([str(folder / "run")]))
    ]


def results(folder: Path, jobs: int = 1) -> dict[str, SourceResult]:
    return {Path(result.path).name: result for result in LocalEngine(jobs).run(tasks(folder))}


def test_neighbours_of_traces_are_recognised_and_skipped(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "rank0.json", small_run())
    (run / "empty.json").touch()
    (run / "observer_0.json").write_text('{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1}]}')
    (run / "timeline.raw.json").write_text("[[1, 2], [3, 4]]")
    (run / "profile.xplane.pb").write_bytes(b"\n\x0c/host:CPU\x12XPlane stuff" * 9)
    (run / "counters.json").write_text('{"rocprofiler-sdk-tool": [{"metadata": {}}]}')
    (run / "report.sqlite").write_bytes(b"SQLite format 3\0" + b"\0" * 99)
    (run / "snapshot.pickle").write_bytes(b"\x80\x04\x95\x01\x00")
    (run / "notes.bin").write_bytes(os.urandom(300).replace(b"\x80", b"x"))
    found = results(tmp_path)
    assert {name: (result.kind, result.status) for name, result in found.items()} == {
        "rank0.json": ("kineto", "ok"),
        "empty.json": ("empty", "failed"),
        "observer_0.json": ("execution-trace", "skipped"),
        "timeline.raw.json": ("memory-timeline", "skipped"),
        "profile.xplane.pb": ("jax-xplane", "skipped"),
        "counters.json": ("rocprof", "skipped"),
        "report.sqlite": ("sqlite", "skipped"),
        "snapshot.pickle": ("pickle", "skipped"),
        "notes.bin": ("unknown", "skipped"),
    }
    assert "execution trace" in (found["observer_0.json"].problem or "")


def test_identity_comes_from_the_content_first(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "rank7.json", small_run(), head=header(rank=2, world=8))
    write(run / "rank5.json", small_run(), head=header(rank=None))
    args = {"Collective name": "allreduce", "Process Group Ranks": "[4, 6]", "Rank": 1, "Group size": 2}
    write(run / "anon.json", [kernel(1, 2, name="ncclDevKernel_X", **args)], head=header(rank=None))
    write(
        run / "host-a1_77.1755000000000000000.pt.trace.json",
        small_run(),
        head=header(rank=None, host_name="gpu9.cluster"),
    )
    found = results(tmp_path)
    assert [(found[name].identity.rank, found[name].identity.rank_from) for name in ("rank7.json", "rank5.json", "anon.json")] == [
        (2, "distributedInfo"), (5, "name"), (6, "content"),
    ]  # fmt: skip
    assert [issue.code for issue in found["rank7.json"].issues] == ["rank_name_differs"]
    assert [issue.code for issue in found["rank5.json"].issues] == ["rank_inferred"]
    other = found["host-a1_77.1755000000000000000.pt.trace.json"].identity
    assert (other.host, other.host_from, other.rank) == ("gpu9.cluster", "host_name", None)


@pytest.mark.parametrize(
    ("info", "rank"),
    [
        ({"rank": "3"}, 3),
        ({"ranks": "[5]"}, 5),
        ({"ranks": "[5, 6]"}, None),
        ({"rank": -1}, None),
        ("x", None),
        ({"rank": True}, None),
    ],
)
def test_ranks_as_writers_spell_them(tmp_path: Path, info: object, rank: int | None) -> None:
    for layout in ("compact", "indent"):
        write(tmp_path / "run" / "trace.json", small_run(), layout, head={"schemaVersion": 1, "distributedInfo": info})
        assert results(tmp_path)["trace.json"].identity.rank == rank


def test_an_unfinished_file_is_read_and_told(tmp_path: Path) -> None:
    data = render(small_run())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank0.json.tmp").write_bytes(data[: len(data) * 2 // 3])
    result = results(tmp_path)["rank0.json.tmp"]
    assert (result.status, result.identity.rank) == ("partial", 0)
    assert {issue.code for issue in result.issues} >= {"unfinished_file", "truncated"}


def test_a_bug_in_a_reader_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        write(tmp_path / "run" / f"rank{rank}.json", small_run(), head=header(rank=rank))
    original = map_source.read_trace

    def broken(source: object) -> object:
        if "rank1" in str(source):
            raise ZeroDivisionError("oh")
        return original(source)  # type: ignore[arg-type]

    monkeypatch.setattr(map_source, "read_trace", broken)
    found = results(tmp_path)
    assert found["rank0.json"].status == "ok"
    assert found["rank1.json"].status == "failed"
    assert "please report it: ZeroDivisionError" in (found["rank1.json"].problem or "")


def test_a_full_temporary_folder_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path / "run" / "rank0.json", small_run())
    (task,) = tasks(tmp_path)
    (tmp_path / "shards").rmdir()
    with pytest.raises(StoreError, match="TMPDIR"):
        map_source.map_source(task)


def _dies_on_rank_1(task: MapTask) -> SourceResult:
    if "rank1.json" in task.source.path:
        os.kill(os.getpid(), signal.SIGKILL)
    return map_source.map_source(task)


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_file_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(5):
        write(tmp_path / "run" / f"rank{rank}.json", small_run(), head=header(rank=rank))
    monkeypatch.setattr(engine, "_SMALL_BYTES", 0)
    monkeypatch.setattr(engine, "map_task", _dies_on_rank_1)
    found = results(tmp_path, jobs=2)
    assert {name for name, result in found.items() if result.status == "ok"} == {
        f"rank{rank}.json" for rank in (0, 2, 3, 4)
    }
    assert "killed, twice" in (found["rank1.json"].problem or "")


def test_several_processes_give_the_same_results_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(4):
        write(tmp_path / "run" / f"rank{rank}.json.gz", small_run(), head=header(rank=rank))
    alone = results(tmp_path)
    monkeypatch.setattr(engine, "_SMALL_BYTES", 0)
    together = results(tmp_path, jobs=2)
    without_time: Callable[[SourceResult], dict[str, object]] = lambda result: {  # noqa: E731
        name: getattr(result, name) for name in SourceResult.__struct_fields__ if name != "read_ns"
    }
    assert {name: without_time(result) for name, result in together.items()} == {
        name: without_time(result) for name, result in alone.items()
    }


SCRIPT = """
import diagnose.pipeline.engine as engine
engine._SMALL_BYTES = 0
print("script runs")
import diagnose
with diagnose.run({paths!r}, jobs=2) as run:
    print(run.report.run.ranks, run.store.exists())
"""


def test_a_plain_script_without_a_guard_can_use_several_processes(tmp_path: Path) -> None:
    paths = [
        str(write(tmp_path / f"rank{rank}.json", small_run(), head=header(rank=rank, world=2))) for rank in range(2)
    ]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(paths=paths))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["script runs", "(0, 1) True"], done.stderr
