"""Stores behind URLs: copied here for as long as they are read. DuckDB wants a file it can seek in, object stores are slow at that."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.errors import StoreError
from diagnose.ingest.urls import check_address, is_url, list_url, told

if TYPE_CHECKING:
    from collections.abc import Iterator

STORE_ENDING = ".duckdb"


@contextmanager
def readable(place: str) -> Iterator[Path]:
    """The store at a path or URL as a local file; a copy goes away at the end.

    Raises:
        StoreError: it cannot be read; errors about a copy name the URL.
        UsageError: the URL holds a password.
    """
    if not is_url(place) or place.startswith("file://"):
        yield Path(place.removeprefix("file://"))
        return
    with tempfile.TemporaryDirectory(prefix="diagnose-store-") as folder:
        local = fetch(place, Path(folder))
        try:
            yield local
        except StoreError as error:
            raise StoreError(str(error).replace(str(local), place)) from error


@contextmanager
def readable_folder(place: str) -> Iterator[Path]:
    """A store or folder of stores as local files; copies of those behind a URL go away at the end.

    Raises:
        StoreError: one cannot be read.
        UsageError: nothing is there, or the URL holds a password.
    """
    if not is_url(place) or place.startswith("file://"):
        yield Path(place.removeprefix("file://"))
        return
    with tempfile.TemporaryDirectory(prefix="diagnose-stores-") as folder:
        for url in stores_below(place):
            fetch(url, Path(folder) / _below(url, place))
        yield Path(folder)


def _below(url: str, place: str) -> str:
    """The folder of a file below a place; both as their file system names them, for URLs have several spellings."""
    import fsspec

    path, root = (fsspec.core.url_to_fs(one)[1] for one in (url, place))
    return str(path.removeprefix(root.rstrip("/")).strip("/").rpartition("/")[0])


def stores_below(place: str) -> list[str]:
    """URLs of the stores in a folder behind a URL, or of the one that it names.

    Raises:
        StoreError: there are none.
        UsageError: nothing is there, or the URL holds a password.
    """
    found = [url for url, _ in list_url(place) if url.endswith(STORE_ENDING)]
    if not found:
        raise StoreError(f"{place} holds no run store (*{STORE_ENDING})")
    return found


def fetch(url: str, folder: Path) -> Path:
    """Copy a store into a folder, as a whole or not at all.

    Raises:
        StoreError: it cannot be read.
        UsageError: the URL holds a password.
    """
    import fsspec

    check_address(url)
    name = url.rstrip("/").rpartition("/")[2]
    local = folder / (name if name.endswith(STORE_ENDING) else f"{name or 'run'}{STORE_ENDING}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with fsspec.open(url, "rb") as remote, local.open("wb") as file:
            shutil.copyfileobj(remote, file, 1 << 22)
    except FileNotFoundError as error:
        raise StoreError(f"{url} does not exist; `diagnose run PATH... -o {url}` makes one") from error
    except Exception as error:
        raise StoreError(f"cannot read {url}: {told(error)}") from error
    return local
