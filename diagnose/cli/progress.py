"""Progress on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diagnose.pipeline.engine import Progress
    from diagnose.pipeline.result import SourceResult


@contextmanager
def reading(paths: Sequence[str]) -> Iterator[Progress | None]:
    """A callback that shows how many sources were read."""
    del paths
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    with Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("reading")
        done = [0, 0]

        def show(result: SourceResult) -> None:
            done[0] += 1
            done[1] += result.size_bytes
            bar.update(task, description=f"{done[0]} files, {done[1] / 1e6:.0f} MB, last {result.path[-50:]}")

        yield show
