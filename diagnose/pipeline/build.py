"""From paths to a published run store."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from diagnose.errors import SourceError
from diagnose.ingest.base import ReadOptions
from diagnose.ingest.discover import discover
from diagnose.ingest.identity import check_rank_pattern
from diagnose.pipeline.engine import Engine, Finder, LocalEngine, Progress
from diagnose.pipeline.result import MapTask, SourceResult, shared
from diagnose.store.names import check_free

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diagnose.config import Config


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `diagnose run` was told."""

    name: str | None = None
    jobs: int | None = None
    keep: str = "kernels"
    timezone: str | None = None
    rank_from: str | None = None
    host_map: Path | None = None
    force: bool = False


def build_run(
    paths: Sequence[str],
    store: Path,
    config: Config,
    options: RunOptions,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Path:
    """Read, analyse and publish one run; returns the store's path.

    Raises:
        UsageError: a path does not exist.
        SourceError: nothing readable in them; the message says what was found.
        StoreError: the store cannot be written.
    """
    check_free(store, force=options.force)
    check_rank_pattern(options.rank_from)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="diagnose-"))
        reading = _started(stack, paths, options, Path(scratch), engine)
        # Workers start and read while this process gets ready for what they will hand over.
        from diagnose.pipeline.cross import analyse_across
        from diagnose.pipeline.identify import identify, load_host_map
        from diagnose.pipeline.join_hosts import join_hosts
        from diagnose.pipeline.merge import write_records, write_sources, write_traces
        from diagnose.pipeline.run_row import write_run
        from diagnose.store.writer import StoreWriter

        host_map = load_host_map(options.host_map)
        writer = stack.enter_context(StoreWriter(store, force=options.force))
        identified = identify(_collected(reading, progress), host_map)
        if not any(result.shards for result in identified.results):
            raise SourceError(_nothing_readable(paths, identified.results))
        write_sources(writer, identified)
        write_traces(writer, identified.members)
        write_records(writer, identified.results)
        join_hosts(writer, host_map)
        write_run(writer, identified, config, options.name or run_name(paths))
        analyse_across(writer, identified.members, config)
        return writer.publish()


def read_sources(
    paths: Sequence[str],
    options: RunOptions,
    scratch: Path,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> list[SourceResult]:
    """Map every source below the paths; shards lie in ``scratch``."""
    check_rank_pattern(options.rank_from)
    with ExitStack() as stack:
        return _collected(_started(stack, paths, options, scratch, engine), progress)


def _started(
    stack: ExitStack, paths: Sequence[str], options: RunOptions, scratch: Path, engine: Engine | None
) -> Iterable[SourceResult]:
    """Results to come; the end of the stack ends the work on them."""
    sources = engine.discover(paths) if isinstance(engine, Finder) else discover(paths)
    read = ReadOptions(timezone=options.timezone, keep=options.keep)
    tasks = [
        MapTask(source=source, options=read, shards=str(scratch), number=number, rank_from=options.rank_from)
        for number, source in enumerate(sources)
    ]
    results = (engine or LocalEngine(options.jobs)).run(tasks)
    if (close := getattr(results, "close", None)) is not None:
        stack.callback(close)
    return results


def _collected(reading: Iterable[SourceResult], progress: Progress | None) -> list[SourceResult]:
    results: list[SourceResult] = []
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    for result in reading:
        results.append(shared(result, known))
        if progress is not None:
            progress(result)
    return results


def run_name(paths: Sequence[str]) -> str:
    """A name for the run from its first path: the folder's, or the file's without its suffixes."""
    parts = paths[0].rstrip("/").split("/")
    first = next((part for part in reversed(parts) if part and not set(part) & set("*?")), "run")
    name = first if Path(paths[0]).is_dir() else first.split(".")[0]
    return name if name not in ("", ".", "..") else Path(paths[0]).resolve().name or "run"


def _nothing_readable(paths: Sequence[str], results: Sequence[SourceResult]) -> str:
    if not results:
        return f"no files in {', '.join(paths)}"
    kinds = Counter(result.kind for result in results).most_common(4)
    listed = ", ".join(f"{count} x {kind}" for kind, count in kinds)
    told = next((result for result in results if result.status == "failed"), None)
    told = told or next((result for result in results if result.kind not in ("json", "unknown")), results[0])
    return (
        f"nothing readable in {', '.join(paths)} ({listed}); for example {told.path}: {told.problem}. "
        "`diagnose inspect` lists them all"
    )
