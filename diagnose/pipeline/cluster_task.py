"""What workers of a cluster do: find sources, map one, hand over its shards. The client checks versions with the same
words. Nothing here knows who schedules.
"""

from __future__ import annotations

import platform
import secrets
import socket
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose import __version__
from diagnose.errors import DiagnoseError
from diagnose.ingest.discover import discover
from diagnose.pipeline.map_source import map_source
from diagnose.pipeline.result import SourceResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diagnose.ingest.base import Source
    from diagnose.pipeline.result import MapTask

MARKER = "running"
"""An empty file beside the shards for as long as the run goes on."""
PACKAGES = ("diagnose-training", "polars", "pyarrow")


class ClusterError(DiagnoseError):
    """The cluster cannot do the work: nobody answers, workers are gone, or are not like the client."""


class Handed(msgspec.Struct, frozen=True, kw_only=True):
    """A result whose shards are named without their folder, with the files themselves where no folder is shared."""

    result: SourceResult
    files: dict[str, bytes] = {}


def own_versions() -> dict[str, str | None]:
    """What results depend on, here."""
    found = {"python": ".".join(platform.python_version_tuple()[:2]), **{name: _installed(name) for name in PACKAGES}}
    return {**found, "diagnose-training": __version__}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def differences(mine: Mapping[str, str | None], theirs: Mapping[str, str | None]) -> str:
    """How a worker differs from the client, in words; empty when it does not."""
    return ", ".join(
        f"{name} {theirs.get(name) or 'missing'} instead of {wanted or 'none'}"
        for name, wanted in mine.items()
        if theirs.get(name) != wanted
    )


def mismatch(text: str, workers: Sequence[str], mine: Mapping[str, str | None]) -> str:
    """The message for workers that are not like the client."""
    named = ", ".join(workers[:3]) + (f" and {len(workers) - 3} more" if len(workers) > 3 else "")
    pins = " ".join(f"{name}=={mine[name]}" for name in PACKAGES)
    return (
        f"worker {named} has {text}: results would differ. Install the same everywhere "
        f"(python {mine['python']}; pip install {pins})"
    )


def find_here(paths: Sequence[str], folder: str, mine: Mapping[str, str | None]) -> list[Source]:
    """The sources as this worker sees them; ``folder`` is where the user typed the paths."""
    _check_versions(mine)
    return discover(paths, folder)


def map_here(task: MapTask, *, shards: str | None, mine: Mapping[str, str | None]) -> Handed:
    """Map one source; its shards go to the folder or URL ``shards``, or back with the result."""
    _check_versions(mine)
    with tempfile.TemporaryDirectory(prefix="diagnose-", dir=_scratch()) as scratch:
        result = map_source(msgspec.structs.replace(task, shards=scratch))
        files = [Path(file) for files in result.shards.values() for file in files]
        if shards is None:
            names = {file: file.name for file in files}
            kept = {file.name: file.read_bytes() for file in files}
        else:
            names, kept = _put(files, shards), {}
        by_table = {table: [names[Path(file)] for file in files] for table, files in result.shards.items()}
    return Handed(result=msgspec.structs.replace(result, shards=by_table), files=kept)


def _put(files: Sequence[Path], shards: str) -> dict[Path, str]:
    """Copy files to the shared place under names of this attempt. When the run ended meanwhile, nothing stays there."""
    import fsspec

    filesystem, root = fsspec.core.url_to_fs(shards)
    attempt = secrets.token_hex(4)
    names = {file: f"{attempt}-{file.name}" for file in files}
    if not _is_running(filesystem, root):
        raise ClusterError(
            f"the worker on {socket.gethostname()} does not see {shards}: cluster.shards in diagnose.yaml must be a "
            "folder or URL that the client and all workers share"
        )
    for file, name in names.items():
        filesystem.put_file(str(file), f"{root}/{name}")
    if not _is_running(filesystem, root):
        filesystem.rm([f"{root}/{name}" for name in names.values()])
        raise ClusterError("the run ended while this worker was writing")
    return names


def _is_running(filesystem: Any, root: str) -> bool:  # noqa: ANN401 - fsspec has no types
    filesystem.invalidate_cache()
    return bool(filesystem.exists(f"{root}/{MARKER}"))


def _check_versions(mine: Mapping[str, str | None]) -> None:
    """Workers may come later than the client looked."""
    if text := differences(mine, own_versions()):
        raise ClusterError(mismatch(text, [socket.gethostname()], mine))


def _scratch() -> str | None:
    """The folder that goes away with the worker, killed or not."""
    import distributed

    try:
        return str(distributed.get_worker().local_directory)
    except ValueError:
        return None
