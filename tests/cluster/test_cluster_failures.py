"""Workers that die, vanish or differ, schedulers that do not answer, Ctrl-C: the right result or a clear error."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cluster_support import HEALTHY, START_S, Cluster, Network, rows, wait_until

from diagnose.config import Config
from diagnose.errors import ConfigError
from diagnose.ingest.base import ReadOptions, Source
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.pipeline.result import MapTask

pytest.importorskip("distributed", reason="distributed is not installed")

from typing import TYPE_CHECKING

from distributed import Client

from diagnose.pipeline import cluster_start
from diagnose.pipeline.cluster import DaskEngine
from diagnose.pipeline.cluster_start import ClusterSettings, cluster_settings
from diagnose.pipeline.cluster_task import ClusterError, map_here, own_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALLOWED = "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"
SATURATION = "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION"  # one task a worker: only the one it was at is blamed
SLOW = """
import os, time
from diagnose.pipeline import cluster_task
from diagnose.pipeline.map_source import map_source as original
def slow(task):
    if "rank3_" in task.source.path and {deadly}:
        os._exit(1)
    time.sleep({seconds})
    return original(task)
cluster_task.map_source = slow
"""


def slow(seconds: float, *, deadly: bool = False) -> str:
    return SLOW.format(seconds=seconds, deadly=deadly)


@pytest.fixture
def clusters(network: Network, tmp_path: Path) -> Iterator[list[Cluster]]:
    started: list[Cluster] = []
    yield started
    for one in started:
        one.close()


def build(
    cluster: Cluster,
    store: Path,
    *,
    on_result: object = None,
    settings: ClusterSettings | None = None,
    notice: Callable[[str], None] | None = None,
) -> Path:
    with DaskEngine(cluster.address, settings=settings, notice=notice) as engine:
        return build_run([str(HEALTHY)], store, Config(), RunOptions(name="run"), engine=engine, progress=on_result)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_killed_worker_changes_nothing_and_none_left_is_an_error(
    network: Network,
    tmp_path: Path,
    clusters: list[Cluster],
    local_rows: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(network, tmp_path / "cluster", preload=slow(0.4), environment={ALLOWED: "3"})
    clusters.append(cluster)
    seen: list[str] = []

    def kill_one(result: object) -> None:
        seen.append(result.path)  # type: ignore[attr-defined]
        if len(seen) == 3:
            cluster.kill(0)

    (tmp_path / "shared").mkdir()
    late: list[str] = []
    monkeypatch.setattr("diagnose.pipeline.cluster._QUIET_S", 0.3)
    monkeypatch.setattr("diagnose.pipeline.cluster._LOOK_S", 0.05)
    store = build(
        cluster,
        tmp_path / "one.duckdb",
        on_result=kill_one,
        settings=ClusterSettings(shards=str(tmp_path / "shared")),
        notice=late.append,
    )
    assert rows(store) == local_rows
    assert any(re.search(r"\d+ left, no result for 0 s; being read: \S+healthy/\S+ on tcp://", text) for text in late)
    assert len(seen) == len(set(seen)) == len(local_rows["source"])
    assert list((tmp_path / "shared").iterdir()) == []

    def kill_the_other(result: object) -> None:
        del result
        cluster.kill(1)

    with pytest.raises(
        ClusterError, match=r"no workers are left at tcp://.* tasks were not done and nothing was written"
    ):
        build(cluster, tmp_path / "none.duckdb", on_result=kill_the_other, settings=ClusterSettings(lost_after_s=1))
    with pytest.raises(ClusterError, match="has no workers"):
        build(cluster, tmp_path / "none.duckdb", settings=ClusterSettings(lost_after_s=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster", "one.duckdb", "shared"]


@pytest.mark.slow
def test_a_file_that_kills_its_worker_is_failed_and_the_scheduler_may_vanish(
    network: Network, tmp_path: Path, clusters: list[Cluster]
) -> None:
    cluster = Cluster(
        network, tmp_path / "cluster", preload=slow(0, deadly=True), environment={ALLOWED: "0", SATURATION: "1.0"}
    )
    clusters.append(cluster)
    found = []
    build(cluster, tmp_path / "run.duckdb", on_result=found.append)
    failed = [result for result in found if result.status == "failed"]
    assert {Path(result.path).name.partition(".")[0] for result in failed} == {"rank3_trace"}
    assert "killed, again and again" in failed[0].problem
    assert len(found) == len({result.path for result in found})

    def end(result: object) -> None:
        del result
        cluster.scheduler.kill()

    with pytest.raises(ClusterError, match="the scheduler is gone"):
        build(cluster, tmp_path / "none.duckdb", on_result=end)
    assert not (tmp_path / "none.duckdb").exists()


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(network: Network, tmp_path: Path, clusters: list[Cluster]) -> None:
    cluster = Cluster(network, tmp_path / "cluster", preload=slow(0.8))
    clusters.append(cluster)
    shared, scratch = tmp_path / "shared", tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "diagnose.yaml").write_text(f"cluster: {{shards: {shared}}}\n")
    command = [
        sys.executable,
        "-m",
        "diagnose",
        "run",
        str(HEALTHY),
        "-o",
        "run.duckdb",
        "--scheduler",
        cluster.address,
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE, text=True
    ) as client:
        wait_until(lambda: shared.exists() and len(list(shared.glob("*/*"))) > 2, "the first shards")
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=START_S)
    assert client.returncode == 130, said
    assert "Traceback" not in said
    wait_until(lambda: cluster.tasks() == 0, "the scheduler forgets")
    time.sleep(1.5)
    assert list(shared.iterdir()) == []
    assert list(scratch.iterdir()) == []
    assert not list(tmp_path.glob("*.duckdb")) + list(tmp_path.glob(".run*"))


@pytest.mark.slow
def test_workers_of_another_version_are_named(network: Network, tmp_path: Path, clusters: list[Cluster]) -> None:
    older = tmp_path / "older"
    for name, version in (("polars", "1.0.0"), ("diagnose_training", "0.0.9")):
        info = older / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    cluster = Cluster(network, tmp_path / "cluster", environment={"PYTHONPATH": str(older)})
    clusters.append(cluster)
    with pytest.raises(
        ClusterError,
        match=r"worker tcp://\S+, tcp://\S+ has diagnose-training 0.0.9 instead of \S+, polars 1.0.0 instead of",
    ):
        build(cluster, tmp_path / "run.duckdb")


def test_a_worker_that_came_late_checks_itself() -> None:
    task = MapTask(source=Source(path="x", size_bytes=1), options=ReadOptions(), shards="", number=0)
    with pytest.raises(ClusterError, match=r"diagnose-training .* instead of 9.9"):
        map_here(task, shards=None, mine={**own_versions(), "diagnose-training": "9.9"})


def test_a_worker_that_does_not_see_the_shards_says_so(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    trace = next((HEALTHY / "traces").glob("*.gz"))
    task = MapTask(source=Source(path=str(trace), size_bytes=1), options=ReadOptions(), shards=str(tmp_path), number=0)
    with pytest.raises(ClusterError, match=r"does not see .*/shared: cluster.shards in diagnose.yaml"):
        map_here(task, shards=str(tmp_path / "shared"), mine=own_versions())
    assert list((tmp_path / "shared").iterdir()) == []


def test_a_worker_that_finishes_after_the_end_takes_its_shards_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    (tmp_path / "running").touch()
    trace = next((HEALTHY / "traces").glob("*.gz"))
    task = MapTask(source=Source(path=str(trace), size_bytes=1), options=ReadOptions(), shards=str(tmp_path), number=0)
    original = LocalFileSystem.put_file

    def put_and_end(self: LocalFileSystem, *arguments: str) -> None:
        (tmp_path / "running").unlink(missing_ok=True)
        original(self, *arguments)

    monkeypatch.setattr(LocalFileSystem, "put_file", put_and_end)
    with pytest.raises(ClusterError, match="the run ended"):
        map_here(task, shards=str(tmp_path), mine=own_versions())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "nonsense", "tcp://no-such-host.invalid:8786", "http://127.0.0.1:1"]
)
def test_nobody_answers(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_start, "_CONNECT_S", 1)
    with pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address}.*dask scheduler"):
        DaskEngine(address)
    assert not [thread for thread in threading.enumerate() if "watch" in thread.name]
    clients = [one for one in gc.get_objects() if isinstance(one, Client)]
    assert [one for one in clients if one.status != "closed"] == [], "a client left open blocks who collects it"


def test_settings_are_checked() -> None:
    assert cluster_settings(Config(cluster={"shards": "/x", "workers": 3})) == ClusterSettings(shards="/x", workers=3)
    with pytest.raises(ConfigError, match="shard"):
        cluster_settings(Config(cluster={"shard": "/x"}))
