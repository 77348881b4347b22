"""What `diagnose watch` was told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.config import Config
from diagnose.pipeline.build import RunOptions

if TYPE_CHECKING:
    from diagnose.findings.rules import RuleBook
    from diagnose.watch.places import Places


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which stores and reports to keep; history keeps its row for every run."""

    keep_runs: int | None = None
    """Per job, the newest."""
    keep_days: float | None = None


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one watcher. Times in seconds."""

    inbox: Path
    out: Path
    config: Config = Config()
    run: RunOptions = RunOptions()
    depth: int = 1
    """Folders between the inbox and a run; 0: the inbox itself is the run."""
    job_from: str | None = None
    ready_file: str | None = None
    settle_s: float = 60.0
    poll_s: float = 30.0
    lease_s: float = 300.0
    failures: int = 3
    margin: float = 0.02
    retention: Retention = Retention()
    notify: bool = False
    link_prefix: str | None = None
    dry_run: bool = False


class Setup(NamedTuple):
    """What stays the same over all runs of a watcher. ``stores`` is where earlier runs lie."""

    options: WatchOptions
    rules: RuleBook
    stores: Places
