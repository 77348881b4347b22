"""The Python API for notebooks and scripts: ``diagnose.run(paths)`` and ``diagnose.open(store)`` give a ``Run``.

with diagnose.run("traces/") as run:
    print(run.verdict.text)
    run.frame("breakdown")          # a polars frame of a table of the store
    run.query("SELECT rank, count(*) FROM kernel GROUP BY rank")
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from diagnose.config import Config, load_config
from diagnose.pipeline.build import RunOptions, build_run, run_name
from diagnose.pipeline.choose_engine import engine_for
from diagnose.pipeline.download import readable
from diagnose.pipeline.upload import built_for
from diagnose.report.assemble import assemble
from diagnose.store.reader import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    import polars as pl

    from diagnose.report.document import Document, FindingEntry, Verdict

PathLike = str | os.PathLike[str]


class Run:
    """An analysed run: its report, and the tables behind it. Closing it lets go of the store's file.

    Raises:
        StoreError: the store is missing, is none, or was written by a newer version.
    """

    def __init__(self, store: PathLike, config: Config | None = None) -> None:
        self._config = config or load_config()
        self.address = os.fspath(store)
        """Where the run store is kept: a path or a URL."""
        with ExitStack() as stack:
            self.store = stack.enter_context(readable(self.address))
            """The run store here, one DuckDB file (of one behind a URL a copy); its tables are described in docs/schema.md."""
            self._tables = stack.enter_context(Store(self.store))
            self._open = stack.pop_all()
        self._end = weakref.finalize(self, self._open.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Run({self.address!r})"

    def close(self) -> None:
        """Let go of the store; a report that was already made stays usable."""
        self._end()

    @cached_property
    def report(self) -> Document:
        """The report as ``diagnose run --format json`` prints it, as typed objects."""
        return assemble(self._tables, self._config)

    @property
    def verdict(self) -> Verdict:
        """What holds the run back, and whether it is the network."""
        return self.report.verdict

    @property
    def findings(self) -> tuple[FindingEntry, ...]:
        """Judged problems, the dearest first."""
        return tuple(self.report.findings)

    def frame(self, name: str) -> pl.DataFrame:
        """A whole table, ordered by its key.

        Raises:
            StoreError: no such table.
        """
        return self._tables.frame(name)

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> pl.DataFrame:
        """The rows of a SELECT over the store; ``$name`` parameters are bound.

        Raises:
            StoreError: the statement is wrong.
        """
        return self._tables.query(sql, dict(parameters) if parameters else None)


def run(
    paths: PathLike | Iterable[PathLike],
    *,
    store: PathLike | None = None,
    name: str | None = None,
    config: PathLike | Config | None = None,
    jobs: int | None = None,
    keep: str = "kernels",
    timezone: str | None = None,
    rank_from: str | None = None,
    host_map: PathLike | None = None,
    force: bool = False,
    scheduler: str | None = None,
    cluster: str | None = None,
) -> Run:
    """Read and analyse files, folders or URLs, as ``diagnose run`` does.

    Args:
        paths: one or several.
        store: where to keep the run store, a file or URL; without it the store goes away with the ``Run``.
        name: of the run; default: from the first path.
        config: a configuration or its file; default: the nearest diagnose.yaml.
        jobs: worker processes; default: processors, at most 8.
        keep: "kernels" for every device activity, "stats" for statistics only.
        timezone: of local times in logs and metrics.
        rank_from: regular expression whose first group is the rank in a path, for traces that do not say it.
        host_map: YAML file of ranks or path patterns to hosts.
        force: overwrite the store.
        scheduler: address of a Dask scheduler (tcp://HOST:PORT) on whose workers to read.
        cluster: "slurm" or "k8s", to start Dask workers there as the configuration says.

    Raises:
        DiagnoseError: nothing readable, a store that exists, a wrong configuration; see diagnose.errors.
    """
    several = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    settings = config if isinstance(config, Config) else load_config(None if config is None else Path(config))
    title = name or (run_name(several) if several else "run")
    options = RunOptions(
        name=title,
        jobs=jobs,
        keep=keep,
        timezone=timezone,
        rank_from=rank_from,
        host_map=None if host_map is None else Path(host_map),
        force=force,
    )
    if store is not None:
        with built_for(os.fspath(store), force=force) as place:
            _build(several, place, settings, options, scheduler, cluster)
        return Run(store, settings)
    folder = Path(tempfile.mkdtemp(prefix="diagnose-run-"))
    try:
        found = Run(_build(several, folder / f"{title}.duckdb", settings, options, scheduler, cluster), settings)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found


def _build(
    paths: list[str], store: Path, config: Config, options: RunOptions, scheduler: str | None, cluster: str | None
) -> Path:
    with engine_for(scheduler, cluster, config) as engine:
        return build_run(paths, store, config, options, engine=engine)


def open(store: PathLike, *, config: PathLike | Config | None = None) -> Run:  # noqa: A001 - read as diagnose.open
    """A run that was analysed before, from its store, a file or URL.

    Raises:
        StoreError: the store is missing, is none, or was written by a newer version.
    """
    settings = config if isinstance(config, Config) else load_config(None if config is None else Path(config))
    return Run(store, settings)
