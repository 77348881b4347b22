"""What `diagnose scaling` was given: tables, run stores, or folders of runs, of which stores are made here."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from diagnose.cli.progress import reading
from diagnose.errors import DiagnoseError, SourceError
from diagnose.ingest.urls import check_address, is_url, list_url, open_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diagnose.config import Config

STORE_ENDING = ".duckdb"
TABLE_ENDINGS = (".csv", ".tsv", ".yaml", ".yml")
KINDS = frozenset(("trace", "traces", "log", "logs", "metrics", "flight_recorder", "profile", "profiles"))
"""Sub-folders of one run, which a folder of runs does not have."""


class Inputs(NamedTuple):
    """Tables; stores with what to call them; what was left out and why. Stores made here go when the caller is done."""

    tables: tuple[Path, ...]
    stores: dict[Path, str]
    notes: tuple[str, ...]


@contextmanager
def inputs(paths: Sequence[str], config: Config) -> Iterator[Inputs]:
    """Sort the paths; a run without a store gets one in a temporary folder.

    Raises:
        SourceError: a folder holds neither stores nor readable runs.
    """
    with tempfile.TemporaryDirectory(prefix="diagnose-scaling-") as scratch:
        maker = _Maker(Path(scratch), config)
        tables: list[Path] = []
        stores: dict[Path, str] = {}
        for path in paths:
            if is_url(path):
                if path.endswith(TABLE_ENDINGS):
                    tables.append(maker.table(path))
                else:
                    stores |= maker.remote(path)
                continue
            where = Path(path)
            if path == "-" or not where.is_dir():
                if path.endswith(STORE_ENDING):
                    stores[where] = path
                else:
                    tables.append(where)
                continue
            found = sorted(where.rglob(f"*{STORE_ENDING}"))
            stores |= {file: str(file) for file in found} or maker.folder(where)
        yield Inputs(tuple(tables), stores, tuple(maker.notes))


class _Maker:
    """Makes stores of runs; runs that cannot be read are noted, and named on standard error."""

    def __init__(self, scratch: Path, config: Config) -> None:
        self.scratch = scratch
        self.config = config
        self.notes: list[str] = []

    def folder(self, where: Path) -> dict[Path, str]:
        """Stores of the runs in a folder, or of the one run that it is."""
        below = sorted(item for item in where.iterdir() if item.is_dir() and not item.name.startswith("."))
        if not below or any(item.name.lower() in KINDS for item in below) or _traces_in(where):
            return self._one(where)
        stores: dict[Path, str] = {}
        problems = []
        for item in below:
            try:
                stores[self._make(item)] = item.name
            except DiagnoseError as error:
                problems.append(f"{item.name}: {error}")
        if not stores:
            listed = "; ".join(problems[:3])
            raise SourceError(f"{where}: no sub-folder holds a run that can be read ({listed})")
        if _one_job(list(stores)):
            return self._one(where)
        for problem in problems:
            click.echo(f"left out: {problem}", err=True)
        self.notes += [f"left out: {problem}" for problem in problems]
        return stores

    def remote(self, url: str) -> dict[Path, str]:
        """Copies of the stores behind a URL, or a store of the run that it is."""
        from diagnose.pipeline.download import fetch

        found = [file for file, _ in list_url(url) if file.endswith(STORE_ENDING)]
        if not found:
            return {self._make(url, url.rstrip("/").rpartition("/")[2]): url}
        return {fetch(file, self._place()): file for file in found}

    def table(self, url: str) -> Path:
        """A copy of a table."""
        target = self._place() / url.rpartition("/")[2]
        target.parent.mkdir()
        check_address(url)
        try:
            with open_url(url) as remote:
                target.write_bytes(remote.read())
        except OSError as error:
            raise SourceError(f"cannot read {url}: {error}") from error
        return target

    def _place(self) -> Path:
        return self.scratch / f"{sum(1 for _ in self.scratch.iterdir()):04d}"

    def _one(self, where: Path) -> dict[Path, str]:
        try:
            return {self._make(where): str(where)}
        except SourceError as error:
            named = [item.name for item in sorted(where.iterdir()) if item.suffix.lower() in TABLE_ENDINGS]
            hint = f"; if you mean a table in it, give its path: {where / named[0]}" if named else ""
            raise SourceError(
                f"{where} holds no run store (*{STORE_ENDING}) and no runs in sub-folders, and is no run itself: "
                f"{error}{hint}"
            ) from error

    def _make(self, where: Path | str, name: str | None = None) -> Path:
        from diagnose.pipeline.build import RunOptions, build_run

        name = name or Path(where).name or "run"
        target = self._place() / f"{name}{STORE_ENDING}"
        options = RunOptions(name=name, keep="stats", force=True)
        with reading([str(where)]) as progress:
            return build_run([str(where)], target, self.config, options, progress=progress)


def _traces_in(where: Path) -> bool:
    return any(".json" in item.name for item in where.iterdir() if item.is_file())


def _one_job(stores: Sequence[Path]) -> bool:
    """Whether these are parts of one job (a folder a rank or host): one world size, other ranks in each, all in part."""
    from diagnose.store.reader import Store

    seen: set[int] = set()
    worlds = set()
    for path in stores:
        with Store(path) as store:
            world = store.query("SELECT max(world_size) FROM run").item()
            ranks = set(store.query("SELECT DISTINCT rank FROM rank WHERE rank >= 0").get_column("rank").to_list())
        worlds.add(world)
        if not ranks or not world or len(ranks) >= world or seen & ranks:
            return False
        seen |= ranks
    return len(stores) > 1 and len(worlds) == 1
