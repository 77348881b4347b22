"""Stores of small runs, made once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "watch"))

from tiny_runs import write_run

from diagnose.analysis.compare.facts import RunFacts, read_run
from diagnose.config import Config
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.store.reader import Store

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The store of a tiny run or of a folder, each built once a session."""
    folder = tmp_path_factory.mktemp("stores")
    made: dict[str, Path] = {}

    def build(name: str, source: Path | None = None, **options: object) -> Path:
        key = f"{name} {options}"
        if key not in made:
            where = source or write_run(folder / "inputs" / str(len(made)) / name, **options)
            made[key] = build_run(
                [str(where)],
                folder / f"{len(made)}" / f"{name}.duckdb",
                Config(),
                RunOptions(name=name, jobs=1, keep="stats"),
            )
        return made[key]

    return build


@pytest.fixture(scope="session")
def facts_of(store_of: Callable[..., Path]) -> Callable[..., RunFacts]:
    def read(name: str, source: Path | None = None, **options: object) -> RunFacts:
        path = store_of(name, source, **options)
        with Store(path) as tables:
            return read_run(tables, path.name)

    return read
