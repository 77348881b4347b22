"""The output folder: where everything lies, and how a file appears there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
SLUG_LENGTH = 80
KEY_LENGTH = 12


class Places(NamedTuple):
    """Paths below the output folder."""

    out: Path

    @property
    def runs(self) -> Path:
        """Published runs, a folder each."""
        return self.out / "runs"

    @property
    def retired(self) -> Path:
        """Records of runs whose folder retention removed."""
        return self.out / "retired"

    @property
    def claims(self) -> Path:
        """Who works on what."""
        return self.out / "claims"

    @property
    def attempts(self) -> Path:
        """Runs that failed, or were begun and not finished."""
        return self.out / "attempts"

    @property
    def failed(self) -> Path:
        """Runs set aside."""
        return self.out / "failed"

    @property
    def sent(self) -> Path:
        """Alerts that were delivered, a file each and service."""
        return self.out / "sent"

    @property
    def seen(self) -> Path:
        """Listing of each run when it was done, so that it need not be opened again."""
        return self.out / "seen"

    @property
    def work(self) -> Path:
        """Runs being built; a crash leaves its remains here and nowhere else."""
        return self.out / ".work"

    @property
    def history(self) -> Path:
        """All runs as one table."""
        return self.out / "history.parquet"

    @property
    def page(self) -> Path:
        """The page that lists them."""
        return self.out / "index.html"

    def folder(self, name: str, key: str) -> Path:
        """Where the run of that key is published."""
        return self.runs / f"{slug(name)}-{key[:KEY_LENGTH]}"

    def done(self, name: str, key: str) -> bool:
        """Whether the run was published, whatever retention did to it since."""
        return (self.folder(name, key) / "record.json").is_file() or (self.retired / f"{key}.json").is_file()

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders."""
        return (
            self.out,
            self.runs,
            self.retired,
            self.claims,
            self.attempts,
            self.failed,
            self.sent,
            self.seen,
            self.work,
        )

    def make(self) -> None:
        """Create the folders."""
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)

    def sweep(self, *, older_s: float) -> None:
        """Remove half-written files that a killed watcher left."""
        for folder in self.folders:
            for path in folder.glob(".*.tmp"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > older_s:
                        path.unlink()


def slug(name: str) -> str:
    """A name as part of a file name."""
    return _UNSAFE.sub("_", name).strip("._")[:SLUG_LENGTH] or "run"


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the name, flush to disk, move into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
