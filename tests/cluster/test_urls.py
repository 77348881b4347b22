"""URLs in and out without a cluster: what is listed, what is written, what is refused."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from cluster_support import HEALTHY, rows

from diagnose.cli.main import cli
from diagnose.config import Config
from diagnose.errors import DiagnoseError, SourceError, StoreError, UsageError
from diagnose.ingest.base import Source
from diagnose.ingest.discover import discover
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.pipeline.upload import built_for, write_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRACE = next((HEALTHY / "traces").glob("rank0*"))


def names(url: str) -> list[str]:
    return [source.path for source in discover([url])]


def test_object_stores_are_listed_once(s3_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    asked: list[str] = []
    original = s3fs.S3FileSystem._lsdir
    files = s3fs.S3FileSystem()
    files.invalidate_cache()

    async def counted(self: s3fs.S3FileSystem, *arguments: object, **options: object) -> object:
        asked.append(str(arguments))
        return await original(self, *arguments, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_lsdir", counted)
    found = names(s3_run)
    assert found == sorted(f"{s3_run}/{path.relative_to(HEALTHY)}" for path in HEALTHY.rglob("*") if path.is_file())
    assert len(asked) == 1
    assert names(f"{s3_run}/traces/rank[01]_*.gz") == [f"{s3_run}/traces/rank{rank}_trace.json.gz" for rank in range(2)]
    assert names(f"{s3_run}/traces/{TRACE.name}") == [f"{s3_run}/traces/{TRACE.name}"]
    with pytest.raises(UsageError, match="does not exist, or holds no files"):
        names(f"{s3_run}/other")
    with pytest.raises(UsageError, match=r"s3://no-such-bucket/x (does not exist|cannot be listed)"):
        names("s3://no-such-bucket/x")


def test_names_behind_ssh_keep_their_server(sftp: str, tmp_path: Path) -> None:
    for name in ("b/rank1.json.gz", "rank0.json.gz", ".hidden/x.json", "__pycache__/y", "old.duckdb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TRACE.read_bytes())
    url = f"{sftp}{tmp_path}"
    assert names(f"{url}/") == names(url) == [f"{url}/b/rank1.json.gz", f"{url}/rank0.json.gz"]
    assert names(f"{url}/rank*.gz") == names(f"{url}/rank0.json.gz") == [f"{url}/rank0.json.gz"]
    with pytest.raises(SourceError, match=r"cannot open sftp://.*No such file"):
        Source(path=f"{url}/nothing", size_bytes=1).open()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="the http driver of fsspec needs aiohttp")
    (tmp_path / TRACE.name).write_bytes(TRACE.read_bytes())
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_pages_and_files_on_the_web(web: str) -> None:
    assert names(f"{web}/{TRACE.name}") == [f"{web}/{TRACE.name}"]
    assert names(f"{web}/") == [f"{web}/{TRACE.name}"]
    (source,) = discover([f"{web}/{TRACE.name}"])
    assert source.size_bytes == TRACE.stat().st_size
    assert source.open().read() == gzip.decompress(TRACE.read_bytes())
    with pytest.raises(UsageError, match="does not exist"):
        names(f"{web}/nothing.json")


@pytest.mark.slow
def test_store_and_report_go_to_urls(s3_run: str, sftp: str, local_rows: dict[str, list[str]], tmp_path: Path) -> None:
    import s3fs

    for folder, fetch in (("s3://runs/out", s3fs.S3FileSystem().get_file), (f"{sftp}{tmp_path}/far/out", None)):
        arguments = [
            "run",
            str(HEALTHY),
            "--name",
            "run",
            "-o",
            f"{folder}/run.duckdb",
            "--format",
            "json",
            "--output",
            f"{folder}/run.json",
        ]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        assert f"Run store: {folder}/run.duckdb" in done.output
        if fetch is not None:
            (tmp_path / "near").mkdir()
            fetch(f"{folder}/run.duckdb", str(tmp_path / "near" / "run.duckdb"))
            fetch(f"{folder}/run.json", str(tmp_path / "near" / "run.json"))
        place = tmp_path / ("near" if fetch else "far/out")
        assert sorted(path.name for path in place.iterdir()) == ["run.duckdb", "run.json"]
        assert rows(place / "run.duckdb") == local_rows
        assert json.loads((place / "run.json").read_text())["run"]["name"] == "run"
        again = CliRunner().invoke(cli, arguments)
        assert isinstance(again.exception, StoreError)
        assert "exists already" in str(again.exception)


def test_a_file_url_is_a_local_file(tmp_path: Path) -> None:
    with built_for(f"file://{tmp_path}/a.duckdb", force=False) as place:
        assert place == tmp_path / "a.duckdb"
    write_url("text", f"file://{tmp_path}/new/a.md")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.md"]


def test_a_store_that_cannot_be_sent_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def full(*arguments: object, **options: object) -> None:
        raise OSError("quota exceeded")

    with pytest.raises(ZeroDivisionError), built_for("memory://x/a.duckdb", force=False) as place:
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(MemoryFileSystem, "put_file", full)
    with (
        pytest.raises(StoreError, match=r"quota exceeded; the store is kept in (\S+)") as error,
        built_for("memory://x/a.duckdb", force=False) as place,
    ):
        place.write_bytes(b"store")
    assert str(place) in str(error.value)
    assert place.read_bytes() == b"store"
    with pytest.raises(UsageError, match="quota exceeded"):
        write_url("text", "memory://x/a.md")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sftp://me:secret@host/x", "holds a password"), ("simplecache::s3://key:secret@bucket/x", "holds a password"),
        ("nonsense://x/y", "Protocol not known"), ("adl://x/y", "driver is not installed|adlfs"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told(url: str, said: str, tmp_path: Path) -> None:
    for call in (
        lambda: build_run([url], tmp_path / "x.duckdb", Config(), RunOptions()),
        lambda: write_url("text", url),
        lambda: built_for(url, force=False).__enter__(),
    ):
        with pytest.raises(DiagnoseError, match=said) as error:
            call()
        assert "secret" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_breaks_while_reading_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFile

    fsspec.filesystem("memory").pipe("/broken/a.json", b"x" * 500_000)
    served: list[int] = []

    def read(self: MemoryFile, size: int = -1) -> bytes:
        served.append(size)
        if len(served) > 2:
            raise KeyError("connection lost")
        return b"x" * size

    monkeypatch.setattr(MemoryFile, "read", read)
    stream = Source(path="memory://broken/a.json", size_bytes=1).open()
    assert len(stream.read()) >= 131_072
    assert "connection lost" in (stream.damage or "")
