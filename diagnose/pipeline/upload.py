"""Stores and reports that go to a URL: made here, checked here, sent as a whole."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.errors import StoreError, UsageError
from diagnose.ingest.urls import check_address, is_url, told

if TYPE_CHECKING:
    from collections.abc import Iterator

_RENAMING = frozenset({"file", "local", "sftp", "ssh", "ftp", "hdfs", "webhdfs", "smb", "memory"})
"""File systems where a file appears while it is written, and a rename is one. Object stores publish whole objects."""


@contextlib.contextmanager
def built_for(target: str, *, force: bool) -> Iterator[Path]:
    """Where to build the store ``target``: there, or for a URL in a temporary folder, sent when the block ends well.

    Raises:
        StoreError: it exists already, or cannot be written. What was built is kept in the second case.
        UsageError: the URL holds a password.
    """
    if not is_url(target) or target.startswith("file://"):
        yield Path(target.removeprefix("file://"))
        return
    check_address(target)
    name = target.rstrip("/").rpartition("/")[2]
    try:
        filesystem, path = _file_system(target)
        taken = filesystem.exists(path)
    except Exception as error:
        raise StoreError(f"cannot write {target}: {told(error)}") from error
    if taken and not force:
        raise StoreError(f"{target} exists already; choose another name with -o, or overwrite it with --force")
    folder = Path(tempfile.mkdtemp(prefix="diagnose-store-"))
    keep = False
    try:
        yield folder / name
        try:
            _send(filesystem, folder / name, path)
        except Exception as error:
            keep = True
            raise StoreError(f"cannot write {target}: {told(error)}; the store is kept in {folder / name}") from error
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def write_url(text: str, url: str, *, force: bool = True) -> None:
    """A report to a URL.

    Raises:
        UsageError: it cannot be written there, or without ``force`` exists already.
    """
    check_address(url)
    if not force and _exists(url):
        raise UsageError(f"{url} exists already; choose another name, or overwrite it with --force")
    with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
        local = Path(folder) / "report"
        local.write_text(text, encoding="utf-8")
        try:
            filesystem, path = _file_system(url)
            _send(filesystem, local, path)
        except Exception as error:
            raise UsageError(f"cannot write {url}: {told(error)}") from error


def _exists(url: str) -> bool:
    try:
        filesystem, path = _file_system(url)
        return bool(filesystem.exists(path))
    except Exception as error:
        raise UsageError(f"cannot write {url}: {told(error)}") from error


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    found: tuple[Any, str] = fsspec.core.url_to_fs(url)
    return found


def _send(filesystem: Any, local: Path, path: str) -> None:  # noqa: ANN401 - fsspec has no types
    protocols = {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)
    if not protocols & _RENAMING:
        filesystem.put_file(str(local), path)
        return
    temporary = f"{path}.{secrets.token_hex(4)}.part"
    filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
    try:
        filesystem.put_file(str(local), temporary)
        filesystem.mv(temporary, path)
    except BaseException:
        with contextlib.suppress(Exception):
            filesystem.rm_file(temporary)
        raise
