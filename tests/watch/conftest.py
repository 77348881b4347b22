"""An inbox, an output folder, and services that take messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recipe_support import write_diagnose, write_program
from tiny_runs import write_run
from watch_support import Receiver, Room, web_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def room(tmp_path: Path) -> Room:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    return Room(inbox, tmp_path / "out", [], [])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with web_hook() as hook:
        yield hook


@pytest.fixture
def lay(room: Room) -> Callable[..., Path]:
    def run(name: str, **options: object) -> Path:
        return write_run(room.inbox / name, **options)

    return run


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with `diagnose`, and an `srun` that runs its command here."""
    folder = tmp_path / "bin"
    write_diagnose(folder)
    write_program(folder, "srun", 'exec "$@"')
    return folder
