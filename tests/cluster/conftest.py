from __future__ import annotations

import contextlib
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "ingest"))

from typing import TYPE_CHECKING

from cluster_support import HEALTHY, Cluster, Network, object_store, rows, ssh_server

from diagnose.config import Config
from diagnose.pipeline.build import RunOptions, build_run

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    found = Network()
    yield found
    found.close()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of client and workers: keys for SSH lie there."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def environment(network: Network, home: Path) -> Iterator[dict[str, str]]:
    """What the drivers of s3 and sftp look for, for this process and for workers."""
    with contextlib.ExitStack() as stack:
        found = {"HOME": str(home), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
        if find_spec("moto") and find_spec("s3fs"):
            found["AWS_ENDPOINT_URL"] = stack.enter_context(object_store(network.host, home))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in found.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="session")
def s3_run(environment: dict[str, str]) -> str:
    """The healthy run in a bucket."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    if "AWS_ENDPOINT_URL" not in environment:
        pytest.skip("moto is not installed")
    files = s3fs.S3FileSystem()
    files.mkdir("runs")
    for path in sorted(HEALTHY.rglob("*")):
        if path.is_file():
            files.put_file(str(path), f"runs/team a/healthy/{path.relative_to(HEALTHY)}")
    return "s3://runs/team a/healthy"


@pytest.fixture(scope="session")
def sftp(network: Network, home: Path, environment: dict[str, str]) -> Iterator[str]:
    """A real SSH server on this machine."""
    pytest.importorskip("paramiko", reason="paramiko is not installed")
    if not (shutil.which("sshd") or Path("/usr/sbin/sshd").exists()):
        pytest.skip("no sshd on this machine")
    if os.getuid() != 0:
        pytest.skip("an SSH server of one's own needs root")
    with ssh_server(network.host, home) as url:
        yield url


@pytest.fixture(scope="session")
def cluster(
    network: Network, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    pytest.importorskip("distributed", reason="distributed is not installed")
    found = Cluster(network, tmp_path_factory.mktemp("cluster"), environment=environment)
    yield found
    found.close()


@pytest.fixture(scope="session")
def local_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The healthy run, read in this process."""
    return build_run([str(HEALTHY)], tmp_path_factory.mktemp("local") / "run.duckdb", Config(), RunOptions(name="run"))


@pytest.fixture(scope="session")
def local_rows(local_store: Path) -> dict[str, list[str]]:
    return rows(local_store)
