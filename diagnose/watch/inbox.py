"""Runs in the inbox: their files, the job they belong to, whether they are finished. Only ever read."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from diagnose.errors import SourceError, UsageError
from diagnose.ingest.base import Source
from diagnose.ingest.identity import rank_from_name
from diagnose.ingest.streams import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET_S = 10.0
"""With all ranks there, files that did not change for this long are whole: a trace is written in one go."""
_IGNORED_SUFFIXES = (".tmp", ".part", ".duckdb", ".lock", ".filepart", ".crdownload")
_WORLD = re.compile(rb'"world_size"\s*:\s*(\d+)')
_RANK = re.compile(rb'"rank"\s*:\s*(\d+)')
_ENDING = r"(?:\d{4}-\d\d-\d\d[T_-]?[\d:.-]*|[0-9a-f]{8,}|\d+)"
_TAIL = re.compile(rf"(?:[._-]{_ENDING})+$|^{_ENDING}$", re.IGNORECASE)
_NUMBER = re.compile(r"\d+$")


class File(NamedTuple):
    """One file of a run, relative to it."""

    path: str
    size: int
    mtime_ns: int


class RunFolder(NamedTuple):
    """One run: a folder, or a single file. ``newest_ns`` counts files that are ignored too: somebody writes them."""

    name: str
    job: str
    path: Path
    files: tuple[File, ...]
    oldest_ns: int
    newest_ns: int
    has_ready_file: bool

    @property
    def listing(self) -> str:
        """Names, sizes and times: unchanged as long as nobody touches the run."""
        return json.dumps([list(file) for file in self.files])


def find_runs(
    inbox: Path, *, depth: int = 1, job_from: str | None = None, ready_file: str | None = None
) -> list[RunFolder]:
    """Runs in the order in which a job's runs happened: by their oldest file.

    Raises:
        UsageError: the inbox is missing, or the pattern for jobs is none.
    """
    if not inbox.is_dir():
        raise UsageError(f"{inbox} is not a folder; give the folder that holds the runs, each in a folder of its own")
    try:
        pattern = re.compile(job_from) if job_from else None
    except re.error as error:
        raise UsageError(f"--job-from {job_from!r} is no pattern: {error}") from error
    runs = []
    for path in _at_depth(inbox, depth):
        files, everything, ready = _files(path, ready_file)
        if files:
            relative = path.relative_to(inbox)
            times = [file.mtime_ns for file in everything]
            name = relative.name if depth else inbox.resolve().name
            runs.append(
                RunFolder(
                    name,
                    _job(relative, inbox, pattern, depth),
                    path,
                    files,
                    min(f.mtime_ns for f in files),
                    max(times),
                    ready,
                )
            )
    return sorted(runs, key=lambda run: (run.job, run.oldest_ns, run.name))


def _at_depth(folder: Path, depth: int) -> Iterator[Path]:
    if depth == 0:
        yield folder
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError:  # removed or unreadable meanwhile: the next look decides
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name.endswith(_IGNORED_SUFFIXES):
            continue
        if entry.is_dir():
            yield from _at_depth(entry, depth - 1)
        elif depth == 1 and entry.is_file():
            yield entry


def _files(path: Path, ready_file: str | None) -> tuple[tuple[File, ...], list[File], bool]:
    """Files that are analysed, all files, and whether the ready file is there."""
    wanted, everything, ready = [], [], False
    for item in sorted(path.rglob("*")) if path.is_dir() else [path]:
        try:
            status = item.stat()
        except OSError:
            continue
        relative = item.relative_to(path) if item != path else Path(item.name)
        if not stat.S_ISREG(status.st_mode):
            continue
        if ready_file is not None and relative.as_posix() == ready_file:
            ready = True
            continue
        file = File(relative.as_posix(), status.st_size, status.st_mtime_ns)
        everything.append(file)
        if not any(part.startswith(".") for part in relative.parts) and not item.name.endswith(_IGNORED_SUFFIXES):
            wanted.append(file)
    return tuple(wanted), everything, ready


def _job(relative: Path, inbox: Path, pattern: re.Pattern[str] | None, depth: int) -> str:
    """By the pattern's first group, else the folders above the run, else its name without number, date or id."""
    if pattern is not None and (found := pattern.search(relative.as_posix())):
        return found[1] if pattern.groups and found[1] else found[0]
    if depth > 1:
        return relative.parent.as_posix()
    name = relative.name or inbox.resolve().name
    name = name.split(".")[0] if "." in name and not (inbox / relative).is_dir() else name
    job = _TAIL.sub("", name)
    return (_NUMBER.sub("", name) if job == name else job).rstrip("._-") or inbox.resolve().name


def why_ready(run: RunFolder, *, ready_file: str | None, settle_s: float, now_ns: int) -> str | None:
    """What says that the run is finished; None while nothing does."""
    if ready_file is not None and run.has_ready_file:
        return "ready file"
    quiet = (now_ns - run.newest_ns) / 1e9
    if quiet >= settle_s:
        return "settled"
    if quiet >= min(QUIET_S, settle_s) and _all_ranks(run):
        return "all ranks"
    return None


def _all_ranks(run: RunFolder) -> bool:
    """Whether there is a trace of each rank that the traces say the job has."""
    world: int | None = None
    ranks = set()
    for file in run.files:
        head = _head(run, file)
        if b'"traceEvents"' not in head and b'"distributedInfo"' not in head:
            continue
        told = _WORLD.search(head)
        world = int(told[1]) if told else world
        rank = _RANK.search(head)
        named = rank_from_name(PurePosixPath(file.path))
        if rank or named:
            ranks.add(int(rank[1]) if rank else named[0] if named else -1)
    return world is not None and ranks >= set(range(world))


def _head(run: RunFolder, file: File) -> bytes:
    path = run.path / file.path if run.path.is_dir() else run.path
    try:
        with Source(path=str(path), size_bytes=file.size).open() as stream:
            return stream.read(HEAD_BYTES) or b""
    except (SourceError, OSError):
        return b""
