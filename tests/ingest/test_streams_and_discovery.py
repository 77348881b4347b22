"""Finding inputs and opening them: archives, compression, links, patterns, URLs, thousands of files."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
import zstandard
from kineto_files import kinds, render, small_run

from diagnose.errors import SourceError, UsageError
from diagnose.ingest.base import Source
from diagnose.ingest.discover import discover
from diagnose.ingest.kineto.reader import read_trace

if TYPE_CHECKING:
    from pathlib import Path

DATA = render(small_run())


def tar_bytes(members: dict[str, bytes], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zip_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


MEMBERS = {
    "run/rank0.json": DATA,
    "run/rank1.json.gz": gzip.compress(DATA),
    "run/rank2.json.zst": zstandard.compress(DATA),
}
ARCHIVES = {
    "run.zip": lambda: zip_bytes(MEMBERS),
    "run.tar": lambda: tar_bytes(MEMBERS, "w"),
    "run.tar.gz": lambda: tar_bytes(MEMBERS, "w:gz"),
    "run.tgz": lambda: tar_bytes(MEMBERS, "w:gz"),
    "run.tar.bz2": lambda: tar_bytes(MEMBERS, "w:bz2"),
    "run.tar.xz": lambda: tar_bytes(MEMBERS, "w:xz"),
    "run.tar.zst": lambda: zstandard.compress(tar_bytes(MEMBERS, "w")),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_members_of_archives_are_sources(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(ARCHIVES[name]())
    sources = discover([str(tmp_path)])
    assert [source.label.removeprefix(f"{tmp_path}/") for source in sources] == [
        f"{name}!{member}" for member in MEMBERS
    ]
    for source in sources:
        decoded = read_trace(source)
        assert kinds(decoded) == {}
        assert len(decoded.trace.activities.start_ns) == 6


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_compression_is_known_by_content(tmp_path: Path, suffix: str) -> None:
    packed = {"": DATA, ".gz": gzip.compress(DATA[:900]) + gzip.compress(DATA[900:]), ".zst": zstandard.compress(DATA)}[
        suffix
    ]
    path = tmp_path / "trace.bin"
    path.write_bytes(packed)
    assert len(read_trace(Source(path=str(path), size_bytes=len(packed))).trace.activities.start_ns) == 6


def test_bytes_behind_compressed_data_are_told_and_padding_is_not(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    for tail, expected in ((b"\0" * 700, set()), (b"garbage", {"compressed_stream_damaged"})):
        path.write_bytes(gzip.compress(DATA) + tail)
        assert set(kinds(read_trace(Source(path=str(path), size_bytes=1)))) == expected


def test_a_broken_archive_is_one_source_and_a_cut_one_keeps_its_members(tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 not really")
    assert [source.member for source in discover([str(tmp_path)])] == [None]
    whole = tar_bytes({f"rank{rank}.json": os.urandom(2000).hex().encode() for rank in range(9)}, "w:gz")
    (tmp_path / "bad.zip").unlink()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    assert [source.member for source in discover([str(tmp_path)])][:3] == ["rank0.json", "rank1.json", "rank2.json"]


def test_an_encrypted_member_is_a_source_error(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"rank0.json": DATA}))
    data[6] |= 1
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(bytes(data))
    (source,) = discover([str(tmp_path)])
    with pytest.raises(SourceError, match="encrypted"):
        source.open()


def test_names_with_brackets_patterns_and_repeated_paths(tmp_path: Path) -> None:
    folder = tmp_path / "fit-[Strategy]"
    folder.mkdir()
    for name in ("trace[0].json", "trace[1].json", ".hidden.json", "done.duckdb", "x.lock"):
        (folder / name).write_bytes(DATA)
    both = [str(folder / "trace[0].json"), str(folder / "trace[1].json")]
    assert [source.path for source in discover([str(folder)])] == both
    assert [source.path for source in discover([both[0]])] == both[:1]
    assert [source.path for source in discover([str(folder), both[1], str(tmp_path)])] == both
    pattern = str(tmp_path / "fit-[[]Strategy]" / "*1*.json")
    assert [source.path for source in discover([pattern])] == both[1:]
    with pytest.raises(UsageError, match="does not exist"):
        discover([str(tmp_path / "*.nothing")])


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "run"
    real.mkdir(parents=True)
    (real / "rank0.json").write_bytes(DATA)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "linked").symlink_to(real)
    (folder / "rank0.json").symlink_to(real / "rank0.json")
    (real / "loop").symlink_to(folder)
    (folder / "dangling.json").symlink_to(tmp_path / "nothing")
    assert [source.path for source in discover([str(folder)])] == [str(folder / "rank0.json")]


def test_urls_are_listed_and_read(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    for rank in range(3):
        memory.pipe(f"/bucket/run/rank{rank}.json.gz", gzip.compress(DATA))
    memory.pipe("/bucket/run/all.zip", zip_bytes({"rank9.json": DATA}))
    sources = discover(["memory://bucket/run"])
    assert [source.label for source in sources] == [
        "memory:///bucket/run/all.zip!rank9.json", *(f"memory:///bucket/run/rank{rank}.json.gz" for rank in range(3)),
    ]  # fmt: skip
    assert {len(read_trace(source).trace.activities.start_ns) for source in sources} == {6}
    assert len(discover(["memory://bucket/run/rank*.json.gz"])) == 3
    path = tmp_path / "rank5.json"
    path.write_bytes(DATA)
    assert len(read_trace(discover([f"file://{path}"])[0]).trace.activities.start_ns) == 6
    with pytest.raises(UsageError, match="does not exist"):
        discover(["memory://bucket/other"])


def test_thousands_of_files_are_found_in_order(tmp_path: Path) -> None:
    for number in range(3000):
        folder = tmp_path / f"host{number % 30:02d}"
        folder.mkdir(exist_ok=True)
        (folder / f"rank{number}.json").touch()
    sources = discover([str(tmp_path)])
    assert len(sources) == 3000
    assert [source.label for source in sources] == sorted(source.label for source in sources)
