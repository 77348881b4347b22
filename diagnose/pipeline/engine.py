"""Where map tasks run: in this process, in a pool of worker processes, or on a cluster (see cluster.py)."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from diagnose.pipeline.map_source import map_source
from diagnose.pipeline.result import MapTask, SourceResult

_SMALL_BYTES = 2_000_000
"""Starting a worker costs more than reading this much here."""

_ATTEMPTS = 2

Progress = Callable[[SourceResult], None]


class Engine(Protocol):
    """Runs map tasks and yields their results in any order, each exactly once."""

    def run(self, tasks: list[MapTask]) -> Iterable[SourceResult]:
        """Results as they come."""
        ...


class LocalEngine:
    """One process a task at a time, ``jobs`` of them; small work stays in this process."""

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or min(os.cpu_count() or 1, 8)

    def run(self, tasks: list[MapTask]) -> Iterator[SourceResult]:
        """A worker that dies takes no other file with it: its task is tried once more alone, then reported."""
        total = sum(task.source.size_bytes for task in tasks)
        if self.jobs == 1 or len(tasks) == 1 or total < _SMALL_BYTES:
            yield from map(map_source, tasks)
            return
        pending = {task.number: task for task in sorted(tasks, key=lambda task: -task.source.size_bytes)}
        for attempt in range(_ATTEMPTS):
            workers = self.jobs if attempt == 0 else 1
            for result, number in self._pool(list(pending.values()), workers):
                del pending[number]
                yield result
            if not pending:
                return
        for task in pending.values():
            yield SourceResult(
                path=task.source.label, kind="unreadable", size_bytes=task.source.size_bytes, status="failed",
                problem="the process that read it was killed, twice (out of memory?); use fewer --jobs",
            )  # fmt: skip

    @staticmethod
    def _pool(tasks: list[MapTask], workers: int) -> Iterator[tuple[SourceResult, int]]:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context) as pool:
            futures = {pool.submit(map_source, task): task.number for task in tasks}
            for future in as_completed(futures):
                try:
                    yield future.result(), futures[future]
                except BrokenProcessPool:
                    continue
