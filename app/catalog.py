"""Which run stores there are: found under one root that the server chose, named by ids, never by paths from a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diagnose.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT_VARIABLE = "DIAGNOSE_APP_ROOT"
"""A run store or a folder of run stores; the working directory when it is not set."""
CONFIG_VARIABLE = "DIAGNOSE_APP_CONFIG"
ENDING = ".duckdb"
MAX_RUNS = 5_000
MAX_DEPTH = 6


class Run(NamedTuple):
    """One run store as it is now; the fingerprint changes when the file is replaced."""

    id: str
    path: Path
    fingerprint: tuple[int, int, int]


class Catalog(NamedTuple):
    """Ids in order with their files; ``rejected`` are links that lead out of the root."""

    root: Path
    runs: dict[str, Path]
    rejected: tuple[str, ...]
    cut: bool


def root() -> Path:
    """The root that the server was started with."""
    return Path(os.environ.get(ROOT_VARIABLE) or Path.cwd())


def discover(where: Path) -> Catalog:
    """All run stores under a folder, or the one store that was named."""
    if where.is_file():
        real = where.resolve()  # named by whoever started the server, so a link is meant
        return Catalog(real.parent, {_stem(real.name): real}, (), cut=False)
    found: dict[str, Path] = {}
    rejected: list[str] = []
    inside = where.resolve()
    for path in _files(where):
        name = _stem(path.relative_to(where).as_posix())
        if not _is_inside(path, inside):
            rejected.append(name)
        elif len(found) < MAX_RUNS:
            found[name] = path
        else:
            return Catalog(where, found, tuple(rejected), cut=True)
    return Catalog(where, found, tuple(rejected), cut=False)


def open_run(catalog: Catalog, run_id: str) -> Run:
    """The run of an id, checked again at the moment of use.

    Raises:
        StoreError: no such id, the file is gone, or a link now leads out of the root.
    """
    path = catalog.runs.get(run_id)
    if path is None:
        raise StoreError(f"there is no run {run_id!r} here")
    if not _is_inside(path, catalog.root.resolve()):
        raise StoreError(f"the run {run_id!r} is a link that leads out of the folder; it is not opened")
    try:
        return Run(run_id, path, fingerprint(path))
    except OSError as error:
        raise StoreError(f"the run {run_id!r} cannot be read: {error.strerror}") from error


def is_replaced(run: Run) -> bool:
    """Whether the file is gone or another one than when the run was opened."""
    try:
        return fingerprint(run.path) != run.fingerprint
    except OSError:
        return True


def fingerprint(path: Path) -> tuple[int, int, int]:
    """Identity of the file's present content."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _files(where: Path) -> Iterator[Path]:
    """Run stores in the order of their names; links to folders are not followed, hidden ones are left out."""
    for folder, folders, files in os.walk(where, followlinks=False):
        here = Path(folder)
        depth = len(here.relative_to(where).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < MAX_DEPTH else []
        for name in sorted(files):
            if name.endswith(ENDING) and not name.startswith("."):
                yield here / name


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder)


def _stem(name: str) -> str:
    return name.removesuffix(ENDING)
