from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from nccl_log_support import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.close()


@pytest.fixture
def read(run: Run, tmp_path: Path) -> Callable[..., Run]:
    """Write texts as logs and read them: read("text", other_name="text")."""

    def make(text: str = "", **files: str) -> Run:
        paths = []
        for name, content in {
            **({"job.log": text} if text else {}),
            **{f"{key}.log": value for key, value in files.items()},
        }.items():
            path = tmp_path / name
            path.write_text(content, encoding="utf-8")
            paths.append(path)
        return run.read(paths)

    return make
