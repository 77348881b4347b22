"""The same folder here and on two workers: the same store, row for row, however shards and inputs travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_support import HEALTHY, Cluster, Network, rows

from diagnose.config import Config
from diagnose.errors import UsageError
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.pipeline.cluster import DaskEngine
from diagnose.pipeline.cluster_start import ClusterSettings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def build(cluster: Cluster, path: str, store: Path, shards: str | None = None) -> Path:
    with DaskEngine(cluster.address, settings=ClusterSettings(shards=shards)) as engine:
        return build_run([path], store, Config(), RunOptions(name="run"), engine=engine)


def test_workers_have_networks_of_their_own(cluster: Cluster, network: Network) -> None:
    if network.why_not:
        pytest.skip(f"workers share the loopback interface: {network.why_not}")
    from distributed import Client

    with Client(cluster.address, set_as_default=False) as client:
        hosts = {address.rpartition(":")[0] for address in client.scheduler_info()["workers"]}
    assert len(hosts) == 2
    assert f"tcp://{network.host}" not in hosts


def test_shards_travel_with_the_results(cluster: Cluster, local_rows: dict[str, list[str]], tmp_path: Path) -> None:
    assert rows(build(cluster, str(HEALTHY), tmp_path / "run.duckdb")) == local_rows
    assert sum(len(found) for found in local_rows.values()) > 10_000
    assert cluster.tasks() == 0


def test_shards_in_a_shared_folder_are_gone_afterwards(
    cluster: Cluster, local_rows: dict[str, list[str]], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    assert rows(build(cluster, str(HEALTHY), tmp_path / "run.duckdb", str(shared))) == local_rows
    assert list(shared.iterdir()) == []


def test_paths_are_named_as_typed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HEALTHY.parents[1])
    typed = "./sample_traces/../sample_traces/healthy/traces/*.gz"
    here = build_run([typed], tmp_path / "here.duckdb", Config(), RunOptions(name="run"))
    assert rows(build(cluster, typed, tmp_path / "there.duckdb")) == rows(here)


def test_object_store_in_and_out(
    cluster: Cluster, local_rows: dict[str, list[str]], s3_run: str, tmp_path: Path
) -> None:
    import s3fs

    instead = (s3_run, str(HEALTHY))
    here = build_run([s3_run], tmp_path / "here.duckdb", Config(), RunOptions(name="run"))
    assert rows(here, instead=instead) == local_rows
    there = build(cluster, s3_run, tmp_path / "there.duckdb", "s3://runs/shards")
    assert rows(there, instead=instead) == local_rows
    files = s3fs.S3FileSystem()
    files.invalidate_cache()
    assert files.find("runs/shards") == []


def test_files_behind_ssh(cluster: Cluster, local_rows: dict[str, list[str]], sftp: str, tmp_path: Path) -> None:
    url = f"{sftp}{HEALTHY}"
    here = build_run([url], tmp_path / "here.duckdb", Config(), RunOptions(name="run"))
    assert rows(here, instead=(sftp, "")) == local_rows
    there = build(cluster, f"{url}/", tmp_path / "there.duckdb", f"{sftp}{tmp_path}/shards")
    assert rows(there, instead=(sftp, "")) == local_rows
    assert list((tmp_path / "shards").iterdir()) == []


def test_errors_are_the_same(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing-here does not exist"):
        build(cluster, str(tmp_path / "nothing-here"), tmp_path / "run.duckdb")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rank0.json.gz").write_bytes(b"\x1f\x8bnot really")
    (tmp_path / "bad" / "rank1.json.gz").write_bytes((HEALTHY / "traces").glob("*.gz").__next__().read_bytes()[:4000])
    here = build_run([str(tmp_path / "bad")], tmp_path / "here.duckdb", Config(), RunOptions(name="run"))
    assert rows(build(cluster, str(tmp_path / "bad"), tmp_path / "there.duckdb")) == rows(here)
    assert not list(tmp_path.glob(".*"))
