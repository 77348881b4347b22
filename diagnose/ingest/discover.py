"""Paths the user names to sources: files, folders (recursively), archives and their members, fsspec URLs."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.errors import UsageError
from diagnose.ingest.base import Source
from diagnose.ingest.streams import is_url, open_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
_SKIPPED_SUFFIXES = (".tmp", ".duckdb", ".duckdb.wal", ".lock", ".part")
_SKIPPED_NAMES = frozenset({"__pycache__"})


def discover(paths: Iterable[str]) -> list[Source]:
    """All sources below the paths, each once, in the order of their names.

    Raises:
        UsageError: a path does not exist.
    """
    found: dict[str, Source] = {}
    for path in paths:
        for source in _expand(path):
            found.setdefault(source.label, source)
    return sorted(found.values(), key=lambda source: source.label)


def _expand(path: str) -> Iterator[Source]:
    if is_url(path):
        yield from _expand_url(path)
        return
    place = Path(path)
    if not place.exists():
        raise UsageError(f"{path} does not exist")
    if place.is_dir():
        for item in sorted(place.rglob("*")):
            if _is_candidate(item, place):
                yield from _members(str(item), item.stat().st_size)
    else:
        yield from _members(path, place.stat().st_size)


def _is_candidate(item: Path, root: Path) -> bool:
    parts = item.relative_to(root).parts
    if any(part.startswith(".") or part in _SKIPPED_NAMES for part in parts):
        return False
    try:
        return stat.S_ISREG(item.stat().st_mode) and not item.name.endswith(_SKIPPED_SUFFIXES)
    except OSError:
        return False


def _expand_url(url: str) -> Iterator[Source]:
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(url)
    try:
        if not filesystem.isdir(path):
            yield from _members(url, int(filesystem.size(path) or 0))
            return
        listing = filesystem.find(path, detail=True)
    except FileNotFoundError as error:
        raise UsageError(f"{url} does not exist") from error
    for name, info in sorted(listing.items()):
        if not name.endswith(_SKIPPED_SUFFIXES):
            yield from _members(filesystem.unstrip_protocol(name), int(info.get("size") or 0))


def _members(path: str, size_bytes: int) -> Iterator[Source]:
    lower = path.lower()
    try:
        if lower.endswith(".zip"):
            with open_path(path) as handle, zipfile.ZipFile(handle) as archive:
                entries = [(item.filename, item.file_size) for item in archive.infolist() if not item.is_dir()]
        elif lower.endswith(_TAR_SUFFIXES):
            with open_path(path) as handle, tarfile.open(fileobj=handle, mode="r|*") as tar:
                entries = [(item.name, item.size) for item in tar if item.isfile()]
        else:
            yield Source(path=path, size_bytes=size_bytes)
            return
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError):
        yield Source(path=path, size_bytes=size_bytes)
        return
    for name, size in entries:
        if not name.endswith(_SKIPPED_SUFFIXES) and not name.rpartition("/")[2].startswith("."):
            yield Source(path=path, size_bytes=size, member=name)
