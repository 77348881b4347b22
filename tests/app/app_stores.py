"""Stores of each kind for the dashboard's tests, and where the dashboard and the sample traces lie."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

from synthetic_store import add_logs, add_metrics, write_empty, write_store

from diagnose.config import Config
from diagnose.pipeline.build import RunOptions, build_run

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"
SAMPLES = ROOT / "sample_traces"

STORES = ("healthy", "straggler", "slow_nic", "cpu_only", "one_rank", "damaged", "logs_only", "nothing", "whole_job")
"""whole_job has traces, logs, metrics, events and a training log, written straight into the tables."""


def build_all(folder: Path) -> None:
    """Write one store of each kind into the folder."""
    for name, sample in (
        ("healthy", "healthy"),
        ("straggler", "slow_node"),
        ("slow_nic", "slow_nic"),
        ("cpu_only", "gloo_slow_rank"),
    ):
        _run(folder, name, *sorted((SAMPLES / sample).rglob("*rank*_trace*")))
    one = next(path for path in sorted((SAMPLES / "healthy" / "traces").glob("*rank0*")))
    _run(folder, "one_rank", one)
    broken = folder / "inputs"
    broken.mkdir(exist_ok=True)
    for path in sorted((SAMPLES / "healthy" / "traces").glob("*rank*"))[:4]:
        shutil.copy(path, broken / path.name)
    victim = next(broken.glob("*rank1*"))
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    (broken / "noise.json.gz").write_bytes(gzip.compress(b"{ not json"))
    _run(folder, "damaged", broken)
    write_empty(folder / "nothing.duckdb", name="nothing")
    write_empty(folder / "logs_only.duckdb", name="logs only", extra=add_logs)
    write_store(
        folder / "whole_job.duckdb",
        ranks=16,
        steps=6,
        slow_rank=5,
        name="whole job",
        extra=lambda writer: (add_logs(writer), add_metrics(writer)),
    )


def _run(folder: Path, name: str, *paths: Path) -> None:
    build_run(
        [str(path) for path in paths], folder / f"{name}.duckdb", Config(), RunOptions(name=name, jobs=1, force=True)
    )
