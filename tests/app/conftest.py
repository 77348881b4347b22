"""Stores for the dashboard's tests, made once for all workers; the app's modules are importable as streamlit sees them."""

from __future__ import annotations

import fcntl
import gzip
import shutil
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"
SAMPLES = ROOT / "sample_traces"
sys.path[:0] = [str(APP), str(Path(__file__).parent)]

STORES = ("healthy", "straggler", "slow_nic", "cpu_only", "one_rank", "damaged", "logs_only", "nothing", "whole_job")
"""whole_job has traces, logs, metrics, events and a training log, written straight into the tables."""


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one store of each kind."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen" in base.name else base) / "app stores"
    with (folder.with_suffix(".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            _build(folder)
            (folder / "done").touch()
    return folder


@pytest.fixture
def open_app(stores, monkeypatch):
    """An app session: ``open_app("steps", run="healthy")``; another folder by ``root=``."""
    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(stores))
    monkeypatch.delenv("DIAGNOSE_APP_CONFIG", raising=False)
    monkeypatch.setenv("STREAMLIT_CLIENT_SHOW_ERROR_DETAILS", "full")

    def start(page="overview", *, root=None, **params):
        if root is not None:
            monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(root))
        session = AppTest.from_file(str(APP / "main.py"), default_timeout=60)
        for name, value in params.items():
            session.query_params[name] = str(value)
        session.run()
        if page != "overview":
            session.switch_page(f"app_pages/{page}.py").run()
        return session

    return start


def _build(folder: Path) -> None:
    from synthetic_store import add_logs, add_metrics, write_empty, write_store

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
    from diagnose.config import Config
    from diagnose.pipeline.build import RunOptions, build_run

    build_run(
        [str(path) for path in paths], folder / f"{name}.duckdb", Config(), RunOptions(name=name, jobs=1, force=True)
    )
