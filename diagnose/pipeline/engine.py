"""Where map tasks run: in this process, in a pool of worker processes, or on a cluster (see cluster.py)."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from diagnose.pipeline.result import MapTask, SourceResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess

    from diagnose.ingest.base import Source

_SMALL_BYTES = 2_000_000
_FEW_FILES = 50
"""Starting workers costs more than reading this much, in this many files, here."""

Progress = Callable[[SourceResult], None]


class Engine(Protocol):
    """Runs map tasks and yields their results in any order, each exactly once."""

    def run(self, tasks: list[MapTask]) -> Iterable[SourceResult]:
        """Results as they come. A result that has ``close`` is closed when nobody waits for it any more."""
        ...


@runtime_checkable
class Finder(Protocol):
    """An engine whose workers see files that this machine may not: it finds the sources too."""

    def discover(self, paths: Sequence[str]) -> list[Source]:
        """As `diagnose.ingest.discover.discover` finds them, where they lie."""
        ...


class LocalEngine:
    """One process a task at a time, ``jobs`` of them; small work stays in this process."""

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or min(os.cpu_count() or 1, 8)

    def run(self, tasks: list[MapTask]) -> Iterable[SourceResult]:
        """Workers start at once, whenever the first result is asked for."""
        total = sum(task.source.size_bytes for task in tasks)
        if self.jobs == 1 or len(tasks) == 1 or (total < _SMALL_BYTES and len(tasks) < _FEW_FILES):
            return (map_task(task) for task in tasks)
        return _InWorkers(sorted(tasks, key=lambda task: -task.source.size_bytes), self.jobs)


def map_task(task: MapTask) -> SourceResult:
    """`map_source`, imported where it runs: it needs much that a process which hands tasks out does not."""
    from diagnose.pipeline.map_source import map_source

    return map_source(task)


class _InWorkers:
    """Results of tasks in worker processes. A worker that dies takes no other file with it: what was lost is tried once
    more, alone, then reported.
    """

    def __init__(self, tasks: list[MapTask], workers: int) -> None:
        self._tasks = tasks
        self._pool = _Pool(tasks, workers)

    def __iter__(self) -> Iterator[SourceResult]:
        pending = {task.number: task for task in self._tasks}
        for number, result in self._pool.results():
            del pending[number]
            yield result
        self.close()
        for task in pending.values():
            with closing(_Pool([task], 1)) as alone:
                again = [result for _, result in alone.results()]
            yield again[0] if again else _killed(task)

    def close(self) -> None:
        """End the workers once they are through with what they read."""
        self._pool.close()


class _Pool:
    """Worker processes with tasks."""

    def __init__(self, tasks: list[MapTask], workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._executor = ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context, initializer=_end_with_parent)
        self._numbers: dict[Future[SourceResult], int] = {}
        with _main_module_hidden():
            for task in tasks:
                try:
                    self._numbers[self._executor.submit(map_task, task)] = task.number
                except BrokenProcessPool:
                    break

    def results(self) -> Iterator[tuple[int, SourceResult]]:
        """Results by task number; those of a worker that died, and of the tasks it took with it, are missing."""
        for future in as_completed(self._numbers):
            try:
                result = future.result()
            except BrokenProcessPool:
                continue
            yield self._numbers.pop(future), result

    def close(self) -> None:
        """Drop what has not begun, wait for the rest."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: a parent that was killed cannot say so, and the worker would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_after, args=(parent,), daemon=True, name="end with parent").start()


def _exit_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Workers need nothing of the program that calls us, and importing it again would run it once more in each of
    them: a plain script or a notebook has no guard against that.
    """
    main = sys.modules.get("__main__")
    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        if main is not None:
            main.__dict__.pop("__file__", None)
            main.__spec__ = None
        yield
    finally:
        if main is not None:
            main.__dict__.update(kept)


def _killed(task: MapTask) -> SourceResult:
    return SourceResult(
        path=task.source.label, kind="unreadable", size_bytes=task.source.size_bytes, status="failed",
        problem="the process that read it was killed, twice (out of memory?); use fewer --jobs",
    )  # fmt: skip
