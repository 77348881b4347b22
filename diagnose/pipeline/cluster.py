"""Map tasks on a Dask cluster: same tasks, same results as LocalEngine, where the data is.

Dask schedules, retries what died with its worker, and forgets what a vanished client asked for. Here is only what it
cannot know: what a task is, which differences between client and workers matter, when nobody is left to wait for.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from diagnose.errors import DiagnoseError
from diagnose.pipeline.cluster_shards import Shards
from diagnose.pipeline.cluster_start import ClusterSettings, connected, dask, started
from diagnose.pipeline.cluster_task import (
    PACKAGES,
    ClusterError,
    differences,
    find_here,
    map_here,
    mismatch,
    own_versions,
)
from diagnose.pipeline.result import SourceResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from diagnose.ingest.base import Source
    from diagnose.pipeline.cluster_task import Handed
    from diagnose.pipeline.result import MapTask

_LOOK_S = 1.0
_QUIET_S = 60.0
"""After this long without a result the user is told who is still reading what."""


class DaskEngine:
    """Finds and maps sources on the workers of a Dask scheduler, or of a cluster that is started for this run.

    A context manager: at its end, however it comes, nothing of the run is left on the cluster. Shards of a shared
    folder can be read until then.

    Raises:
        ClusterError: no scheduler answers, no worker is there or left, or workers differ from the client.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        *,
        kind: str | None = None,
        settings: ClusterSettings | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings or ClusterSettings()
        self._notice = notice or _untold
        self._mine = own_versions()
        self._name = f"diagnose-{secrets.token_hex(6)}"
        self._lost: str | None = None
        self._stack = contextlib.ExitStack()
        try:
            self._client = self._connect(scheduler, kind)
            self._await_worker(patient=kind is not None)
            self._check_workers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget what is not done, remove shared shards, let go of the cluster."""
        self._stack.close()

    def discover(self, paths: Sequence[str]) -> list[Source]:
        """The sources below the paths, as a worker sees them."""
        future = self._client.submit(
            find_here, list(paths), str(Path.cwd()), self._mine, key=f"{self._name}-find", pure=False
        )
        with self._watched({future.key: (future, "looking for files")}):
            found: list[Source] = self._result(future, "looking for files")
        return found

    def run(self, tasks: list[MapTask]) -> Iterator[SourceResult]:
        """Results as they come, the largest sources first. A source whose workers died again and again is failed."""
        if not tasks:
            return
        shards = self._stack.enter_context(Shards(self._settings.shards, self._name, Path(tasks[0].shards)))
        ordered = sorted(tasks, key=lambda task: -task.source.size_bytes)
        keys = [f"{self._name}-{place:06d}" for place in range(len(ordered))]
        futures = self._client.map(
            map_here, ordered, key=keys, pure=False, retries=1, shards=shards.place, mine=self._mine
        )
        pending = {future.key: (future, task.source.label) for future, task in zip(futures, ordered, strict=True)}
        task_of = dict(zip(keys, ordered, strict=True))
        del futures
        self._stack.callback(self._forget, pending)
        with self._watched(pending):
            for future in dask().as_completed([future for future, _ in pending.values()], loop=self._client.loop):
                result = self._taken(future, task_of[future.key], shards)
                del pending[future.key]
                future.release()
                yield result

    def _taken(self, future: Any, task: MapTask, shards: Shards) -> SourceResult:  # noqa: ANN401 - Dask has no types
        from distributed.scheduler import KilledWorker

        try:
            handed: Handed = self._result(future, task.source.label)
        except KilledWorker:
            return SourceResult(
                path=task.source.label, kind="unreadable", size_bytes=task.source.size_bytes, status="failed",
                problem="the workers that read it were killed, again and again (out of memory?); give workers more memory",
            )  # fmt: skip
        return shards.fetch(handed)

    def _result(self, future: Any, what: str) -> Any:  # noqa: ANN401 - Dask has no types
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except (DiagnoseError, KilledWorker):
            raise
        except CancelledError as error:
            raise ClusterError(self._lost or "the scheduler is gone: nothing was written; run it again") from error
        except Exception as error:
            raise ClusterError(f"a worker failed at {what}: {type(error).__name__}: {error}") from error

    def _connect(self, scheduler: str | None, kind: str | None) -> Any:  # noqa: ANN401 - Dask has no types
        cluster = self._stack.enter_context(started(kind, self._settings)) if kind else None
        client = self._stack.enter_context(contextlib.closing(connected(cluster or scheduler, scheduler or str(kind))))
        if "dashboard" in client.scheduler_info().get("services", {}):
            self._notice(f"Dask dashboard: {client.dashboard_link}")
        return client

    def _await_worker(self, *, patient: bool) -> None:
        """One is enough to begin. A cluster that was asked for may queue for hours; an existing one should be there."""
        while True:
            try:
                self._client.wait_for_workers(1, timeout=self._settings.lost_after_s)
            except TimeoutError as error:
                if not patient:
                    raise ClusterError(
                        f"the scheduler {self._client.scheduler.address} has no workers: start some with `dask worker`"
                    ) from error
                self._notice("waiting for the first worker")
            else:
                return

    def _check_workers(self) -> None:
        """All that are there, at once; those that come later are checked by their first task."""
        found: dict[str, list[str]] = {}
        for address, info in self._client.get_versions(packages=PACKAGES)["workers"].items():
            theirs = {**info["packages"], "python": ".".join(info["host"]["python"].split(".")[:2])}
            if text := differences(self._mine, theirs):
                found.setdefault(text, []).append(address)
        if found:
            raise ClusterError("; ".join(mismatch(text, workers, self._mine) for text, workers in found.items()))

    def _forget(self, pending: dict[str, tuple[Any, str]]) -> None:
        if pending and self._client.status == "running":
            self._client.cancel([future for future, _ in pending.values()])

    @contextlib.contextmanager
    def _watched(self, pending: dict[str, tuple[Any, str]]) -> Iterator[None]:
        done = threading.Event()
        self._stack.callback(done.set)
        watch = threading.Thread(target=self._watch, args=(pending, done), daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()

    def _watch(self, pending: dict[str, tuple[Any, str]], done: threading.Event) -> None:
        """End the wait when no worker is left; tell who is late."""
        seen = told = time.monotonic()
        left = len(pending)
        with contextlib.suppress(OSError, RuntimeError, CancelledError):
            while not done.wait(_LOOK_S):
                now = time.monotonic()
                if self._client.scheduler_info()["workers"]:
                    seen = now
                elif now - seen > self._settings.lost_after_s:
                    self._lost = (
                        f"no workers are left at {self._client.scheduler.address} since {now - seen:.0f} s; {len(pending)} tasks were not done "
                        "and nothing was written. Start workers and run it again"
                    )
                    self._forget(pending.copy())
                    return
                if len(pending) != left:
                    left, told = len(pending), now
                elif now - told > _QUIET_S:
                    self._notice(self._late(pending.copy()))
                    told = now

    def _late(self, pending: dict[str, tuple[Any, str]]) -> str:
        reading = [
            f"{pending[key][1]} on {worker}"
            for worker, keys in self._client.processing().items()
            for key in keys
            if key in pending
        ]
        return f"{len(pending)} left, no result for {_QUIET_S:.0f} s; being read: {', '.join(reading[:3]) or 'none'}"


def _untold(text: str) -> None:
    del text
