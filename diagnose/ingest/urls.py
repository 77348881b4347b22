"""Inputs behind fsspec URLs: listed once, read as streams, whatever goes wrong in a driver as one kind of error.

Credentials come from where each driver looks for them (environment, profile, agent, keys); an address with a password
in it is refused, because addresses end up in stores, reports and shell histories.
"""

from __future__ import annotations

import glob
import io
import itertools
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUFFER_BYTES = 131_072
_PAGES = ("http", "https")
"""These have no folders, only pages with links: one that does not end in a slash is a file."""


def is_url(path: str) -> bool:
    """Whether a path is an fsspec URL."""
    return "://" in path


def check_address(url: str) -> None:
    """Refuse an address that holds a password.

    Raises:
        UsageError: it does.
    """
    for part in url.split("::"):
        if urlsplit(part).password and not part.startswith("github:"):
            shown = urlsplit(part)._replace(netloc=f"...@{urlsplit(part).hostname}").geturl()
            raise UsageError(
                f"{shown} holds a password, which would end up in reports: give it where its driver looks for it "
                "(environment, profile, key file or agent)"
            )


def told(error: BaseException) -> str:
    """What a driver says, with the name of its error where the text alone says little."""
    if isinstance(error, ImportError):
        return f"its driver is not installed: {error}"
    text = str(error).strip()
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}".removesuffix(": ")


def open_url(url: str) -> IO[bytes]:
    """The bytes behind a URL, streaming.

    Raises:
        OSError: they cannot be opened.
    """
    import fsspec

    try:
        return io.BufferedReader(_Remote(fsspec.open(url, "rb").open()), BUFFER_BYTES)
    except OSError:
        raise
    except Exception as error:
        raise OSError(told(error)) from error


def list_url(url: str) -> Iterator[tuple[str, int]]:
    """Files below a URL or matching its pattern, with their sizes, from one listing.

    Raises:
        UsageError: nothing is there, or it cannot be listed.
    """
    check_address(url)
    try:
        found = _listing(url)
    except FileNotFoundError as error:
        raise UsageError(f"{url} does not exist") from error
    except Exception as error:
        raise UsageError(f"{url} cannot be listed: {told(error)}") from error
    if not found:
        raise UsageError(f"{url} does not exist, or holds no files")
    yield from sorted(found)


def _listing(url: str) -> list[tuple[str, int]]:
    import fsspec

    filesystem, path = fsspec.core.url_to_fs(url)
    is_page = urlsplit(url).scheme in _PAGES
    if not is_page and len(path) > 1:
        url, path = url.rstrip("/"), path.rstrip("/")
    full = _full_names(filesystem, url, path)
    if glob.has_magic(path) and not filesystem.exists(path):
        listing = filesystem.glob(path, detail=True)
        root = ""
    elif is_page and not url.endswith("/"):
        listing, root = {path: filesystem.info(path)}, path
    else:
        listing, root = filesystem.find(path, detail=True), path
    if list(listing) == [path] and not listing[path]:
        listing = {path: filesystem.info(path)}
    return [
        (full(name), int(info.get("size") or 0))
        for name, info in listing.items()
        if info.get("type") != "directory" and not name.endswith("/") and not _is_hidden(name.removeprefix(root))
    ]


def _is_hidden(below: str) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in below.split("/"))


def _full_names(filesystem: Any, url: str, path: str) -> Callable[[str], str]:  # noqa: ANN401 - fsspec has no types
    """From the names a file system uses to URLs. Some drop the server from them, as sftp, hdfs and abfs do."""
    if urlsplit(url).netloc in path:
        unstrip: Callable[[str], str] = filesystem.unstrip_protocol
        return unstrip
    pairs = zip(reversed(url), reversed(path), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    server, above = url[: len(url) - same], path[: len(path) - same]
    return lambda name: server + name.removeprefix(above)


class _Remote(io.RawIOBase):
    """A file behind a driver; whatever the driver raises while reading is an OSError here."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._inner = handle

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._inner.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: object, /) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        try:
            data = self._inner.read(len(view))
        except OSError:
            raise
        except Exception as error:
            raise OSError(told(error)) from error
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()
