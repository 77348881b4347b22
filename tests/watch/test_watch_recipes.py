"""The recipes do what they say: each that can run on one machine runs here, with its own folders in the place of the example's."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from recipe_support import RECIPES, ROOT, placed, shell
from tiny_runs import write_run

from diagnose.config import Config
from diagnose.pipeline.build import RunOptions, build_run

if TYPE_CHECKING:
    from watch_support import Room


def test_the_crontab_line_gives_a_report(room: Room, tools: Path) -> None:
    write_run(room.inbox / "llama_1")
    lines = (RECIPES / "cron" / "diagnose.cron").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]+=", line))
    (line,) = (line for line in lines if re.match(r"[*0-9]", line))
    assert "%" not in line
    command = placed(line.split(None, 5)[5], room, tools)
    result = shell(command, tools, INBOX=str(room.inbox), REPORTS=str(room.out))
    assert set(settings) == {"PATH", "INBOX", "REPORTS"}
    assert (result.returncode, result.stderr) == (0, "")
    assert room.published() == ["llama_1"]
    assert "llama/llama_1: First run of this job." in (room.out / "watch.log").read_text()


def test_the_batch_script_analyses_its_own_run_and_keeps_its_status(room: Room, tools: Path) -> None:
    trainer = room.inbox.parent / "train.py"
    trainer.write_text(
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path; from tiny_runs import write_run\n"
        "write_run(Path(os.environ['RUN_DIR'])); print('trained'); sys.exit(3)\n"
    )
    result = shell(
        ["bash", str(RECIPES / "slurm" / "train.sbatch")], tools, DIAGNOSE_INBOX=str(room.inbox), DIAGNOSE_REPORTS=str(room.out),
        SLURM_JOB_NAME="llama-7b", SLURM_JOB_ID="4711", TRAIN_COMMAND=f"{sys.executable} {trainer}",
    )  # fmt: skip
    assert result.returncode == 3, result.stderr
    assert "llama-7b/llama-7b-4711: First run of this job. -> " in result.stdout
    assert room.published() == ["llama-7b-4711"]


def test_the_epilog_ends_at_once_and_analyses_in_the_background(room: Room, tools: Path) -> None:
    import time

    write_run(room.inbox / "llama_1")
    begun = time.monotonic()
    script = RECIPES / "slurm" / "epilog.sh"
    settings = {
        "DIAGNOSE_INBOX": str(room.inbox),
        "DIAGNOSE_REPORTS": str(room.out),
        "DIAGNOSE_SETTLE": "1",
        "DIAGNOSE_PATH": f"{tools}:/usr/bin:/bin",
    }
    result = shell([str(script)], tools, **settings)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert time.monotonic() - begun < 5
    while not room.published() and time.monotonic() - begun < 60:
        time.sleep(0.1)
    assert room.published() == ["llama_1"], (room.out / "epilog.log").read_text()
    assert shell([str(script)], tools, **settings | {"DIAGNOSE_INBOX": "/nowhere"}).returncode == 0


def units(tools: Path, room: Room) -> list[Path]:
    folder = room.inbox.parent / "units"
    folder.mkdir()
    for path in sorted((RECIPES / "systemd").glob("diagnose-*")):
        (folder / path.name).write_text(
            placed(path.read_text(), room, tools).replace("User=diagnose", f"User={os.environ.get('USER', 'root')}")
        )
    return sorted(folder.iterdir())


def test_systemd_finds_no_fault_in_the_units(room: Room, tools: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units(tools, room)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr.strip()) == (0, "")


def test_the_oneshot_unit_gives_a_report(room: Room, tools: Path) -> None:
    write_run(room.inbox / "llama_1")
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(next(path for path in units(tools, room) if path.name == "diagnose-once.service"))
    result = shell(shlex.split(parser["Service"]["ExecStart"]), tools)
    assert (result.returncode, result.stderr) == (0, "")
    assert room.published() == ["llama_1"]
    assert parser["Service"]["ReadWritePaths"] == str(room.out)


def test_the_cronjob_is_a_cronjob_and_its_arguments_work(room: Room, tools: Path) -> None:
    manifest = yaml.safe_load((RECIPES / "kubernetes" / "cronjob.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"], manifest["spec"]["concurrencyPolicy"]) == (
        "batch/v1",
        "CronJob",
        "Forbid",
    )
    job = manifest["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts["inbox"]["readOnly"] is True
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert pod["restartPolicy"] == "Never"
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
    write_run(room.inbox / "llama_1")
    arguments = [
        {"/inbox": str(room.inbox), "/reports": str(room.out), "120": "0"}.get(item, item) for item in container["args"]
    ]
    result = shell([str(tools / container["command"][0]), *arguments], tools)
    assert (result.returncode, result.stderr) == (0, "")
    assert room.published() == ["llama_1"]


def test_the_dag_runs_its_command_and_names_what_got_slower(
    room: Room, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under stand-ins for Airflow's three names, unless Airflow is there."""
    made: dict[str, object] = {}

    class Operator:
        def __init__(self, **options: object) -> None:
            made["look"] = options

        def __rshift__(self, other: object) -> None:
            made["after"] = other

    class Dag:
        def __init__(self, **options: object) -> None:
            made["dag"] = options

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def short_circuit(function: object) -> object:
        made["slower"] = function
        return lambda value: value

    stand_ins = {
        "airflow": {}, "airflow.models": {}, "airflow.operators": {}, "airflow.decorators": {"task": types.SimpleNamespace(short_circuit=short_circuit)},
        "airflow.models.dag": {"DAG": Dag}, "airflow.operators.bash": {"BashOperator": Operator},
    }  # fmt: skip
    for name, content in stand_ins.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    source = placed((RECIPES / "airflow" / "diagnose_dag.py").read_text(), room, tools)
    exec(compile(source, "diagnose_dag.py", "exec"), {})  # noqa: S102 - our own recipe
    write_run(room.inbox / "llama_1", seed=1)
    write_run(room.inbox / "llama_2", seed=2, slow=1.3, start_s=100)
    result = shell(str(made["look"]["bash_command"]), tools)
    assert (result.returncode, result.stderr) == (0, "")
    assert made["slower"]("2026-01-01T00:00:00+00:00") == ["llama_2"]
    assert made["slower"]("2126-01-01T00:00:00+00:00") == []
    assert made["dag"]["max_active_runs"] == 1


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A branch's working folder: stores of the main branch, and a training script that is slower than theirs."""
    work = tmp_path_factory.mktemp("checkout")
    for number in (1, 2, 3):
        write_run(work / "made" / str(number), seed=number, slow=1.3)
        source = write_run(work / "main" / str(number), seed=number + 10)
        build_run([str(source)], work / f"main-{number}.duckdb", Config(), RunOptions(jobs=1))
    (work / "train_short.sh").write_text('#!/bin/sh\nmkdir -p traces && rm -rf "$1" && cp -r "made/${1##*/}" "$1"\n')
    (work / "train_short.sh").chmod(0o755)
    return work


def test_the_github_gate_fails_on_a_slower_branch(checkout: Path, tools: Path) -> None:
    jobs = yaml.safe_load((RECIPES / "ci" / "github.yml").read_text())
    steps = [step["run"] for step in jobs["jobs"]["speed"]["steps"] if "run" in step]
    make, gate = (next(step for step in steps if word in step) for word in ("diagnose run", "--fail-on regression"))
    summary = checkout / "summary.md"
    result = shell(["bash", "-c", f"cd {checkout} && {make}\n{gate}"], tools, GITHUB_STEP_SUMMARY=str(summary))
    assert result.returncode == 1, result.stderr
    assert summary.read_text().startswith("## SLOWER")
    assert (checkout / "compare.html").is_file()


def test_the_gitlab_gate_fails_and_leaves_its_test_report(checkout: Path, tools: Path) -> None:
    job = yaml.safe_load((RECIPES / "ci" / "gitlab.yml").read_text())["training-speed"]
    gate = next(step for step in job["script"] if "--fail-on regression" in step)
    assert job["artifacts"]["reports"]["junit"] in gate
    for number in (1, 2, 3):
        source, store = checkout / "made" / str(number), checkout / f"branch-{number}.duckdb"
        build_run([str(source)], store, Config(), RunOptions(jobs=1, force=True))
    result = shell(["bash", "-c", f"cd {checkout} && {gate}"], tools)
    assert result.returncode == 1, result.stderr
    assert 'type="regression"' in (checkout / "compare.xml").read_text()


class FakeProfile:
    """Writes a trace as torch.profiler.profile does."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def export_chrome_trace(self, path: str) -> None:
        import gzip

        Path(path).write_bytes(gzip.compress(self.source.read_bytes()))


def test_the_trace_handler_lays_files_where_the_watcher_finds_them(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(RECIPES / "pytorch"))
    from trace_handler import lay_traces

    made = write_run(room.inbox.parent / "made")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("SLURM_JOB_NAME", "llama")
        monkeypatch.setenv("SLURM_JOB_ID", "12")
        lay_traces(room.inbox)(FakeProfile(made / f"rank{rank}.json"))
    assert sorted(path.name for path in (room.inbox / "llama-12").iterdir()) == ["rank0.json.gz", "rank1.json.gz"]
    (record,) = room.watcher().look().published
    assert (record.job, record.name, record.world_size) == ("llama", "llama-12", 2)


def test_the_trace_handler_with_a_real_profiler(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.syspath_prepend(str(RECIPES / "pytorch"))
    from trace_handler import lay_traces

    handler = lay_traces(room.inbox, run="real_1", rank=0)
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3), on_trace_ready=handler
    ) as prof:
        for _ in range(5):
            torch.randn(200, 200) @ torch.randn(200, 200)
            prof.step()
    (record,) = room.watcher().look().published
    assert record.name == "real_1"


def test_the_other_snippets_are_valid() -> None:
    import tomllib

    for path in (RECIPES / "pytorch").glob("*.py"):
        compile(path.read_text(), path.name, "exec")
    settings = tomllib.loads((RECIPES / "pytorch" / "torchtitan.toml").read_text())
    assert settings["profiling"]["enable_profiling"] is True


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in [*RECIPES.rglob("*.md"), ROOT / "docs" / "watch.md", ROOT / "docs" / "compare.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
