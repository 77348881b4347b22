"""`diagnose.run` and `diagnose.open` for notebooks: the report as objects, the tables as polars frames."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest
from kineto_files import header, small_run, write

import diagnose
from diagnose.errors import DiagnoseError, SourceError, StoreError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in range(2):
        write(tmp_path / "traces" / f"rank{rank}.json", small_run(), head=header(rank=rank, world=2))
    return tmp_path / "traces"


def test_run_and_open_give_the_same_report(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "kept.duckdb"
    with diagnose.run(folder, store=store, name="mine") as run:
        assert run.store == store
        assert run.report.run.name == "mine"
        assert run.report.run.ranks == (0, 1)
        assert run.verdict.text
        assert isinstance(run.findings, tuple)
        first = run.report
    with diagnose.open(str(store)) as again:
        assert again.report == first
        assert again.frame("step").height == 4
        ranks = again.query("SELECT rank FROM breakdown WHERE step = $step ORDER BY rank", {"step": -1})
        assert isinstance(ranks, pl.DataFrame)
        assert ranks["rank"].to_list() == [0, 1]
        with pytest.raises(StoreError, match="no table"):
            again.frame("nothing")


def test_without_a_store_nothing_is_left_behind(folder: Path) -> None:
    run = diagnose.run([folder / "rank0.json"], jobs=1, keep="stats")
    place = run.store.parent
    assert run.store.is_file()
    assert run.frame("kernel").is_empty()
    assert not run.frame("kernel_stat").is_empty()
    run.close()
    del run
    gc.collect()
    assert not place.exists()


def test_errors_are_told_as_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="does not exist"):
        diagnose.run(tmp_path / "absent")
    with pytest.raises(SourceError, match="no files"):
        diagnose.run(tmp_path / "empty")
    with pytest.raises(StoreError, match="does not exist"):
        diagnose.open(tmp_path / "absent.duckdb")
    with pytest.raises(UsageError, match="group"):
        diagnose.run(folder, rank_from="rank")
    store = tmp_path / "taken.duckdb"
    diagnose.run(folder, store=store).close()
    with pytest.raises(DiagnoseError, match="--force"):
        diagnose.run(folder, store=store)
    diagnose.run(folder, store=store, force=True).close()


HEAVY = ("polars", "duckdb", "numpy", "sklearn", "scipy", "pyarrow", "rich", "jinja2", "yaml", "msgspec", "fsspec")
PROBE = "import sys; {code}; print([name for name in {heavy!r} if name in sys.modules])"


@pytest.mark.parametrize(
    "code",
    [
        "import diagnose",
        "import diagnose; diagnose.__version__",
        "from diagnose.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint()",
    ],
)
def test_importing_and_asking_for_help_load_nothing_heavy(code: str) -> None:
    probe = PROBE.format(code="exec(" + repr(code) + ")", heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1].replace("'", '"')) == []


def test_unknown_names_are_no_part_of_the_package() -> None:
    assert not hasattr(diagnose, "nothing")
