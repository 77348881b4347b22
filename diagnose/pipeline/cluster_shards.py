"""How shards come from workers to the client: in a folder or URL that both see, else with the results themselves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from diagnose.errors import StoreError
from diagnose.ingest.urls import check_address, is_url, told
from diagnose.pipeline.cluster_task import MARKER, ClusterError

if TYPE_CHECKING:
    from types import TracebackType

    from diagnose.pipeline.cluster_task import Handed
    from diagnose.pipeline.result import SourceResult


class Shards:
    """The shards of one run: in a folder of its own below the shared place, removed at the end.

    Raises:
        ClusterError: the shared place cannot be written.
    """

    def __init__(self, shared: str | None, name: str, scratch: Path) -> None:
        self._scratch = scratch
        self._filesystem: Any = None
        self.place = None if shared is None else f"{shared.rstrip('/')}/{name}"
        """Where workers put them; None: into the result."""
        if shared is not None and not is_url(shared):
            self.place = str(Path(shared).expanduser().absolute() / name)

    def __enter__(self) -> Self:
        if self.place is None:
            return self
        import fsspec

        check_address(self.place)
        try:
            self._filesystem, self._root = fsspec.core.url_to_fs(self.place)
            self._filesystem.makedirs(self._root, exist_ok=True)
            self._filesystem.pipe_file(f"{self._root}/{MARKER}", b"")
        except Exception as error:
            raise ClusterError(f"cannot write to cluster.shards, {self.place}: {told(error)}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """First the marker, so that a worker that still writes takes its files back itself."""
        if self._filesystem is None:
            return
        self._filesystem.invalidate_cache()
        for what in (f"{self._root}/{MARKER}", self._root):
            with contextlib.suppress(Exception):
                self._filesystem.rm(what, recursive=what == self._root)

    def fetch(self, handed: Handed) -> SourceResult:
        """A result whose shards are files here.

        Raises:
            StoreError: the temporary folder is full.
            ClusterError: what a worker wrote is not there.
        """
        names = [name for files in handed.result.shards.values() for name in files]
        try:
            paths = {name: self._local(name, handed) for name in names}
        except FileNotFoundError as error:
            raise ClusterError(f"shards that a worker wrote to {self.place} are not there: {error}") from error
        except OSError as error:
            raise StoreError(
                f"cannot write to the temporary folder {self._scratch}: {error}; set TMPDIR to a place with more space"
            ) from error
        shards = {table: [paths[name] for name in files] for table, files in handed.result.shards.items()}
        return msgspec.structs.replace(handed.result, shards=shards)

    def _local(self, name: str, handed: Handed) -> str:
        local = self._scratch / name
        if self.place is None:
            local.write_bytes(handed.files[name])
        elif not is_url(self.place):
            Path(self.place, name).stat()
            return str(Path(self.place, name))
        else:
            self._filesystem.get_file(f"{self._root}/{name}", str(local))
        return str(local)
