"""`--cluster slurm` and `k8s`: workers that are started for the run, and gone after it."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from cluster_support import HEALTHY, START_S, answers, free_port, process, rows, wait_until

pytest.importorskip("distributed", reason="distributed is not installed")


from diagnose.cli.main import cli
from diagnose.config import Config, load_config
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.pipeline.cluster import DaskEngine
from diagnose.pipeline.cluster_start import ClusterSettings, cluster_settings
from diagnose.pipeline.cluster_task import ClusterError

RECIPES = HEALTHY.parents[1] / "docs" / "recipes" / "cluster"
SBATCH = """#!/bin/sh
setsid sh "$1" >/dev/null 2>&1 &
echo $! >> {jobs}
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -- -"$1"
"""


def queue_commands(folder: Path) -> Path:
    """`sbatch` and `scancel` as a queue with free nodes answers them: the job runs at once, on this machine."""
    jobs = folder / "jobs"
    for name, text in (("sbatch", SBATCH.format(jobs=jobs)), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return jobs


@pytest.mark.slow
def test_slurm_jobs_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_rows: dict[str, list[str]]
) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    jobs = queue_commands(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "diagnose.yaml").write_text(
        "cluster:\n  workers: 2\n  slurm: {queue: short, cores: 1, memory: 2GB, walltime: '00:10:00', interface: lo, "
        f"local_directory: {tmp_path}, log_directory: {tmp_path}, scheduler_options: {{dashboard: false}}}}\n"
    )
    command = [
        sys.executable,
        "-m",
        "diagnose",
        "run",
        str(HEALTHY),
        "--name",
        "run",
        "-o",
        "run.duckdb",
        "--cluster",
        "slurm",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "run.duckdb") == local_rows
    groups = [int(line) for line in jobs.read_text().split()]
    assert len(groups) == 2
    wait_until(lambda: not any(is_alive(group) for group in groups), "jobs are gone")


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_kubernetes_is_asked_with_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_rows: dict[str, list[str]]
) -> None:
    """KubeCluster itself needs a cluster with the Dask operator; a local one stands for it."""
    from distributed import LocalCluster

    asked: list[dict[str, object]] = []

    def kube_cluster(**arguments: object) -> LocalCluster:
        asked.append(arguments)
        return LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0")

    module = types.ModuleType("dask_kubernetes.operator")
    module.KubeCluster = kube_cluster  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dask_kubernetes", types.ModuleType("dask_kubernetes"))
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", module)
    settings = ClusterSettings(workers=1, k8s={"image": "registry.example/diagnose:1", "namespace": "profiling"})
    with DaskEngine(kind="k8s", settings=settings) as engine:
        store = build_run([str(HEALTHY)], tmp_path / "run.duckdb", Config(), RunOptions(name="run"), engine=engine)
    assert rows(store) == local_rows
    assert asked == [{"image": "registry.example/diagnose:1", "namespace": "profiling"}]


def test_wrong_settings_and_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    with pytest.raises(ClusterError, match="--cluster k8s needs dask-kubernetes: pip install dask-kubernetes"):
        DaskEngine(kind="k8s")

    def slurm_cluster(**arguments: object) -> None:
        raise ValueError(f"Got unexpected keyword argument {next(iter(arguments))!r}\nand much more")

    monkeypatch.setitem(sys.modules, "dask_jobqueue", types.SimpleNamespace(SLURMCluster=slurm_cluster))
    with pytest.raises(
        ClusterError, match=r"--cluster slurm: Got unexpected keyword argument 'cors' \(cluster.slurm in diagnose.yaml"
    ):
        DaskEngine(kind="slurm", settings=ClusterSettings(slurm={"cors": 1}))


def test_both_at_once_are_refused() -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(cli, ["run", "x", "--scheduler", "tcp://x:1", "--cluster", "slurm"])
    assert "give one of them" in str(done.exception)


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_the_recipes_are_settings(name: str) -> None:
    settings = cluster_settings(load_config(RECIPES / f"{name}.yaml"))
    assert settings.shards
    assert bool(settings.slurm) != bool(settings.k8s)


SRUN = """#!/bin/sh
shift
exec "$@"
"""
SSH = """#!/bin/sh
while [ "$1" != node ]; do shift; done
shift
exec sh -c "$*"
"""


def recipe(name: str, folder: Path) -> Path:
    """A script of the recipes without the site's environment, beside commands that stand for the site's."""
    for command, text in (("srun", SRUN), ("ssh", SSH), ("nproc", "#!/bin/sh\necho 1\n")):
        (folder / command).write_text(text)
        (folder / command).chmod(0o755)
    script = folder / name
    script.write_text(
        (RECIPES / name).read_text().replace("source /lustre/apps", ": /lustre/apps").replace("8786", str(free_port()))
    )
    return script


@pytest.mark.slow
def test_one_allocation_reads_a_run(tmp_path: Path, local_rows: dict[str, list[str]]) -> None:
    script = recipe("allocation.sbatch", tmp_path)
    (tmp_path / "run").symlink_to(HEALTHY)
    text = (
        script.read_text()
        .replace("$(hostname)", "127.0.0.1")
        .replace('"$run/', f'"{tmp_path}/')
        .replace("-o ", "--name run -o ")
    )
    script.write_text(text)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(script), str(HEALTHY)],
        env={**os.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "run.duckdb") == local_rows
    assert "<html" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_workers_over_ssh_end_with_the_script(tmp_path: Path) -> None:
    from distributed import Client

    script = recipe("workers.sh", tmp_path)
    port = free_port()
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PORT": str(port), "SCHEDULER_HOST": "127.0.0.1"}
    with process(["bash", str(script), "node", "node"], env=environment, cwd=tmp_path) as started:
        wait_until(lambda: answers("127.0.0.1", port), "scheduler")
        with Client(f"tcp://127.0.0.1:{port}", set_as_default=False) as client:
            client.wait_for_workers(2, timeout=START_S)
        started.terminate()
        started.wait(20)
        wait_until(lambda: not answers("127.0.0.1", port), "the scheduler is gone")
