"""Runs of the installed command over small inputs: the JSON report and the store it leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.store.reader import Store

if TYPE_CHECKING:
    import polars as pl

CASES = Path(__file__).parents[3] / "shared" / "data" / "bug_cases"


def command() -> list[str]:
    """The installed command of this environment."""
    beside = Path(sys.executable).with_name("diagnose")
    found = str(beside) if beside.exists() else shutil.which("diagnose")
    return [found] if found else [sys.executable, "-m", "diagnose"]


@dataclass
class Outcome:
    code: int
    error: str
    report: dict[str, Any] = field(default_factory=dict)
    store: Path | None = None

    def split(self, rank: int | str = 0) -> dict[str, int | None]:
        """The whole-trace split of a rank, "?" for the only trace without one."""
        found: dict[str, int | None] = self.report["step_time"]["trace"][str(rank)]
        return found

    def sources(self) -> dict[str, dict[str, Any]]:
        return {
            Path(row["path"]).name: row
            for row in self.report["data_quality"]["sources"]
            if not row["path"].endswith("expect.json")
        }

    def issues(self) -> dict[str, dict[str, Any]]:
        return {row["code"]: row for row in self.report["data_quality"]["issues"]}

    def findings(self) -> list[str]:
        return [row["code"] for row in self.report["findings"]]

    def query(self, sql: str) -> pl.DataFrame:
        assert self.store is not None
        with Store(self.store) as store:
            return store.query(sql)


def diagnose(folder: Path, *paths: Path, options: tuple[str, ...] = ()) -> Outcome:
    store = folder / "run.duckdb"
    done = subprocess.run(
        [*command(), "run", *map(str, paths), "-o", str(store), "--jobs", "1", "--format", "json", *options],
        capture_output=True, text=True, check=False, cwd=folder, timeout=120,
    )  # fmt: skip
    return Outcome(
        done.returncode, done.stderr, json.loads(done.stdout) if done.stdout else {}, store if store.exists() else None
    )
