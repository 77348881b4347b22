"""Names of new stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path


def check_free(path: Path, *, force: bool) -> None:
    """Ask before the work.

    Raises:
        StoreError: there is a file of that name, and it is not to be replaced.
    """
    if path.exists() and not force:
        raise StoreError(taken(path))


def taken(path: Path) -> str:
    """Why a store was not written."""
    return f"{path} exists already; choose another name with -o, or overwrite it with --force"
