"""The Slurm recipes under a real Slurm of one node, started here; where there is none the tests skip and say why."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recipe_support import RECIPES, write_diagnose
from tiny_runs import write_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from watch_support import Room

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "sinfo")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
UP_S = 30
SETTINGS = """
ClusterName=test
SlurmctldHost={host}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
EpilogSlurmctld={folder}/diagnose-epilog.sh
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{folder / 'bin'}:{PATH}",
        "HOME": str(folder),
        "SLURM_CONF": str(folder / "slurm.conf"),
        "LANG": "C.UTF-8",
    }


@pytest.fixture
def slurm(tmp_path: Path, room: Room) -> Iterator[Path]:
    """The folder of a running controller and node, with `diagnose` and the epilog installed as the recipe says."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]:
        pytest.skip(f"no Slurm here: {', '.join(missing)} not installed (Debian: slurm-wlm)")
    folder = tmp_path / "slurm"
    for name in ("state", "spool", "bin"):
        (folder / name).mkdir(parents=True)
    write_diagnose(folder / "bin")
    env_file = folder / "watch.env"
    env_file.write_text(
        f"DIAGNOSE_INBOX={room.inbox}\nDIAGNOSE_REPORTS={room.out}\nDIAGNOSE_SETTLE=1\nDIAGNOSE_PATH={folder / 'bin'}:{PATH}\n"
    )
    epilog = (RECIPES / "slurm" / "epilog.sh").read_text().replace("/etc/diagnose/watch.env", str(env_file))
    (folder / "diagnose-epilog.sh").write_text(epilog)
    (folder / "diagnose-epilog.sh").chmod(0o755)
    host = socket.gethostname().partition(".")[0]
    cpus = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
    text = SETTINGS.format(
        host=host, user=Path.home().owner(), controller=free_port(), node=free_port(), folder=folder, cpus=cpus
    )
    (folder / "slurm.conf").write_text(text)
    daemons = [
        subprocess.Popen([name, "-D"], env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for name in ("slurmctld", "slurmd")
    ]
    try:
        if not _up(folder):
            log = folder / "slurmctld.log"
            said = log.read_text(errors="replace")[-300:] if log.exists() else "no log"
            pytest.skip(f"Slurm is installed but does not start here: {said}")
        yield folder
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _up(folder: Path) -> bool:
    end = time.monotonic() + UP_S
    while time.monotonic() < end:
        state = subprocess.run(
            ["sinfo", "-h", "-o", "%T"], env=environment(folder), capture_output=True, text=True, check=False
        )
        if state.stdout.strip() == "idle":
            return True
        time.sleep(0.3)
    return False


def submit(folder: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sbatch", "--wait", "--nodes=1", *arguments], env=environment(folder) | extra, cwd=folder, capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_batch_script_gives_a_report_and_keeps_the_status(room: Room, slurm: Path) -> None:
    trainer = slurm / "train.py"
    trainer.write_text(
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path; from tiny_runs import write_run\n"
        "write_run(Path(os.environ['RUN_DIR'])); print('trained'); sys.exit(3)\n"
    )
    done = submit(
        slurm, str(RECIPES / "slurm" / "train.sbatch"),
        DIAGNOSE_INBOX=str(room.inbox), DIAGNOSE_REPORTS=str(room.out), TRAIN_COMMAND=f"{sys.executable} {trainer}",
    )  # fmt: skip
    (output,) = slurm.glob("llama-7b-*.out")
    assert done.returncode == 3, done.stderr + output.read_text()
    assert "trained" in output.read_text()
    assert f"llama-7b/{output.stem}: First run of this job. -> " in output.read_text()
    assert room.published() == [output.stem]


def test_the_epilog_analyses_what_a_job_left(room: Room, slurm: Path) -> None:
    script = slurm / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    write_run(room.inbox / "llama_1")
    assert submit(slurm, "--output=/dev/null", str(script)).returncode == 0
    end = time.monotonic() + 60
    while not (room.out / "index.html").exists() and time.monotonic() < end:
        time.sleep(0.2)
    assert room.published() == ["llama_1"], (slurm / "slurmctld.log").read_text()[-2000:]
    assert "llama/llama_1: First run of this job." in (room.out / "epilog.log").read_text()
