"""Paths the user names to sources: files, folders (recursively), patterns, archives and their members, fsspec URLs."""

from __future__ import annotations

import glob
import os
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.errors import UsageError
from diagnose.ingest.base import Source
from diagnose.ingest.streams import open_path, open_tar, placed
from diagnose.ingest.urls import is_url, list_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
_SKIPPED_SUFFIXES = (".duckdb", ".duckdb.wal", ".lock", ".part")
_SKIPPED_NAMES = frozenset({"__pycache__"})


def discover(paths: Iterable[str], folder: str | None = None) -> list[Source]:
    """All sources below the paths, each once, in the order of their names.

    A file that is reached on two ways (a link, a folder and a file in it) is one source, under its first name. With
    ``folder``, relative paths begin there instead of in the working directory, and are named as typed all the same.

    Raises:
        UsageError: a path does not exist, or a pattern finds nothing.
    """
    found: dict[tuple[str, str | None], Source] = {}
    for path in paths:
        for source in _named_as_typed(path, folder):
            there = placed(source.path, source.folder)
            place = there if is_url(there) else os.path.realpath(there)
            found.setdefault((place, source.member), source)
    return sorted(found.values(), key=lambda source: source.label)


def is_unfinished(name: str) -> bool:
    """Whether a writer marks a file as not complete by this name (Kineto writes ``.tmp`` and renames at the end)."""
    return name.endswith(".tmp")


def _named_as_typed(path: str, folder: str | None) -> Iterator[Source]:
    there = placed(path, folder)
    if folder is None or there == path:
        yield from _expand(path)
        return
    above = there.removesuffix(path)
    for source in _expand(there):
        yield Source(
            path=source.path.removeprefix(above), size_bytes=source.size_bytes, member=source.member, folder=folder
        )


def _expand(path: str) -> Iterator[Source]:
    if is_url(path):
        for url, size_bytes in list_url(path):
            if not url.endswith(_SKIPPED_SUFFIXES):
                yield from _members(url, size_bytes)
        return
    place = Path(path)
    if place.is_dir():
        yield from _walk(path)
    elif place.exists():
        yield from _members(path, place.stat().st_size)
    elif glob.has_magic(path) and (matches := sorted(glob.glob(path, recursive=True))):  # noqa: PTH207 - as typed, not below a folder
        for match in matches:
            yield from _expand(match)
    else:
        raise UsageError(f"{path} does not exist")


def _walk(root: str) -> Iterator[Source]:
    """Files below a folder; links to folders are followed, each folder once. One that cannot be read is a source too,
    so that the report says so.
    """
    seen: set[tuple[int, int]] = set()
    unreadable: list[str] = []
    for folder, folders, files in os.walk(
        root, followlinks=True, onerror=lambda error: unreadable.append(str(error.filename))
    ):
        status = os.stat(folder)  # noqa: PTH116 - thousands of them
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_NAMES)
        for name in sorted(files):
            if not _is_wanted(name):
                continue
            path = os.path.join(folder, name)  # noqa: PTH118 - thousands of them
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield from _members(path, status.st_size)
    yield from (Source(path=path, size_bytes=0) for path in unreadable)


def _members(path: str, size_bytes: int) -> Iterator[Source]:
    lower = path.lower()
    is_zip, is_tar = lower.endswith(".zip"), lower.endswith(_TAR_SUFFIXES)
    if not (is_zip or is_tar):
        yield Source(path=path, size_bytes=size_bytes)
        return
    entries = [entry for entry in (_zip_entries(path) if is_zip else _tar_entries(path)) if _is_wanted(entry[0])]
    if not entries:
        yield Source(path=path, size_bytes=size_bytes)
    for name, size in entries:
        yield Source(path=path, size_bytes=size, member=name)


def _is_wanted(name: str) -> bool:
    return not name.endswith(_SKIPPED_SUFFIXES) and not name.rpartition("/")[2].startswith(".")


def _zip_entries(path: str) -> list[tuple[str, int]]:
    try:
        with open_path(path) as handle, zipfile.ZipFile(handle) as archive:
            return [(item.filename, item.file_size) for item in archive.infolist() if not item.is_dir()]
    except (OSError, zipfile.BadZipFile):
        return []


def _tar_entries(path: str) -> list[tuple[str, int]]:
    """Members up to where the archive can be read; one that is cut keeps those before."""
    import tarfile
    import zlib

    import zstandard

    entries: list[tuple[str, int]] = []
    try:
        with open_path(path) as handle, open_tar(handle, path, streaming=True) as tar:
            entries.extend((item.name, item.size) for item in tar if item.isfile())
    except (OSError, EOFError, tarfile.TarError, zlib.error, zstandard.ZstdError):
        pass
    return entries
