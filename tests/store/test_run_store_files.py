"""A run store appears whole or not at all, and every way it can go wrong is told in one sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import polars as pl
import pytest

from diagnose.errors import StoreError
from diagnose.store.reader import Store
from diagnose.store.schema import SCHEMA_VERSION, TABLES
from diagnose.store.writer import StoreWriter

KILLED = """
import sys, time
import polars as pl
from pathlib import Path
from diagnose.store.writer import StoreWriter
with StoreWriter(Path(sys.argv[1]), force=True) as writer:
    while True:
        writer.insert("kernel", pl.DataFrame({"rank": list(range(100_000)), "start_ns": list(range(100_000))}))
        print("writing", flush=True)
"""


def write_run(path: Path, name: str = "r", *, force: bool = False, version: int = SCHEMA_VERSION) -> Path:
    with StoreWriter(path, force=force) as writer:
        writer.insert(
            "run",
            pl.DataFrame({"name": [name], "schema_version": [version]}, schema_overrides={"schema_version": pl.Int32}),
        )
        return writer.publish()


def names_in(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def name_in(path: Path) -> str:
    with Store(path) as store:
        return str(store.frame("run")["name"][0])


def test_a_published_store_has_every_table(tmp_path: Path) -> None:
    path = write_run(tmp_path / "deep" / "run.duckdb")
    with Store(path) as store:
        for table in TABLES:
            assert store.frame(table.name).columns == list(table.column_names)
    assert names_in(path.parent) == ["run.duckdb"]


def test_a_name_that_is_taken_is_refused_and_force_replaces_it(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.duckdb", "first")
    with pytest.raises(StoreError, match="--force"):
        write_run(path, "second")
    assert name_in(path) == "first"
    write_run(path, "second", force=True)
    assert name_in(path) == "second"


def test_what_is_not_published_leaves_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "run.duckdb") as writer:
        writer.insert("run", pl.DataFrame({"name": ["x"]}))
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("old", [True, False])
def test_a_writer_that_is_killed_leaves_the_old_file_or_none(tmp_path: Path, old: bool) -> None:
    path = tmp_path / "run.duckdb"
    if old:
        write_run(path, "old")
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert path.exists() == old
    if old:
        assert name_in(path) == "old"
    left = list(tmp_path.glob(".run.duckdb.*.tmp"))
    assert left
    for item in left:
        os.utime(item, (time.time() - 200_000,) * 2)
    write_run(path, "new", force=True)
    assert names_in(tmp_path) == ["run.duckdb"]
    assert name_in(path) == "new"


def test_two_runs_at_once_to_one_name(tmp_path: Path) -> None:
    path = tmp_path / "run.duckdb"
    row = pl.DataFrame({"name": ["slow"]})
    with StoreWriter(path) as slow:
        slow.insert("run", row)
        write_run(path, "fast")
        with pytest.raises(StoreError, match="exists already"):
            slow.publish()
    assert name_in(path) == "fast"
    with StoreWriter(path, force=True) as slow:
        slow.insert("run", row)
        write_run(path, "fast", force=True)
        slow.publish()
    assert name_in(path) == "slow"
    assert names_in(tmp_path) == ["run.duckdb"]


def test_a_reader_is_not_disturbed_by_a_new_file(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.duckdb", "old")
    with Store(path) as store:
        before = store.fingerprint()
        write_run(path, "new", force=True)
        assert store.frame("run")["name"][0] == "old"
        assert store.fingerprint() != before
    assert name_in(path) == "new"


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A file system of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.name != "posix"
        or os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=False).returncode
    ):
        pytest.skip("no small file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(path: Path, rows: pl.DataFrame) -> None:
    with StoreWriter(path) as writer:
        for _ in range(20):
            writer.insert("kernel", rows)
        writer.publish()


def test_a_full_disk_is_told(small_disk: Path) -> None:
    rows = pl.DataFrame({"name": [os.urandom(40).hex() for _ in range(200_000)]})
    with pytest.raises(StoreError, match="no space left"):
        fill(small_disk / "run.duckdb", rows)
    assert names_in(small_disk) == []


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no /sys here")
def test_a_place_that_cannot_be_written_is_told() -> None:
    with pytest.raises(StoreError, match="not writable"):
        StoreWriter(Path("/sys/kernel/run.duckdb"))


def test_a_parent_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        StoreWriter(tmp_path / "file" / "run.duckdb")


def test_files_that_are_no_run_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        Store(tmp_path / "absent.duckdb")
    text = tmp_path / "text.duckdb"
    text.write_text("hello, this is text, long enough to be looked at as a header of something\n" * 9)
    with pytest.raises(StoreError, match="not a run store"):
        Store(text)
    foreign = tmp_path / "foreign.duckdb"
    with duckdb.connect(str(foreign)) as connection:
        connection.execute("CREATE TABLE other (x INT)").fetchall()
    with pytest.raises(StoreError, match="no run store"):
        Store(foreign)
    newer = write_run(tmp_path / "newer.duckdb", version=SCHEMA_VERSION + 1)
    with pytest.raises(StoreError, match="update diagnose"):
        Store(newer)


def test_a_store_is_read_only_and_reaches_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with Store(write_run(tmp_path / "run.duckdb")) as store:
        for statement in (
            "DELETE FROM run",
            "CREATE TABLE mine (x INT)",
            f"SELECT * FROM read_csv('{tmp_path}/secret.csv')",
            f"ATTACH '{tmp_path}/other.duckdb'",
            "SET enable_external_access = true",
            "SELECT * FROM nothing",
            "",
        ):
            with pytest.raises(StoreError):
                store.query(statement)
        assert store.query("SELECT $x AS x", {"x": "'; DROP TABLE run"})["x"][0] == "'; DROP TABLE run"


def test_unknown_tables_and_columns_are_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "run.duckdb") as writer:
        with pytest.raises(StoreError, match="no table"):
            writer.insert("nothing", pl.DataFrame({"x": [1]}))
        with pytest.raises(StoreError, match="no columns"):
            writer.insert("run", pl.DataFrame({"colour": ["red"]}))
