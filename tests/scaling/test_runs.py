"""Curves of real and simulated runs: raw folders, the lab's sweeps, the estimate from one run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml
from click.testing import CliRunner

from diagnose.analysis.scaling.analyse import analyse
from diagnose.analysis.scaling.one_run import estimate
from diagnose.analysis.scaling.stores import read_stores
from diagnose.analysis.scaling.table import build_curve
from diagnose.cli.scaling import scaling
from diagnose.config import Config
from diagnose.errors import DiagnoseError, SourceError, StoreError
from diagnose.findings.scaling import scaling_findings
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.store.writer import StoreWriter

ROOT = Path(__file__).parents[2]
LAB = ROOT.parent / "shared/data/lab"
SAMPLES = ROOT / "sample_traces"

needs_lab = pytest.mark.skipif(not LAB.is_dir(), reason="the lab's recorded runs are not beside the repository")


def call(*arguments):
    result = CliRunner().invoke(scaling, [str(a) for a in arguments])
    if isinstance(result.exception, DiagnoseError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def answer(*arguments):
    return json.loads(call(*arguments, "--format", "json").stdout)["scaling"]


def made(paths, target):
    return build_run([str(path) for path in paths], target, Config(), RunOptions(jobs=1, keep="stats"))


def curve(paths):
    read = read_stores(paths)
    return build_curve(read.rows, unit=read.unit, kind=read.kind, seconds=read.seconds, notes=read.notes)


@needs_lab
@pytest.mark.parametrize("sweep", ["scaling_150m", "scaling_400m"])
def test_lab_sweeps(sweep, tmp_path):
    """1 to 8 hosts over limited links: transfer bends the curve, 8 hosts are predicted from the others and from 4 alone."""
    stores = {
        hosts: made(
            [LAB / sweep / f"{hosts}hosts" / part for part in ("traces", "train.log")], tmp_path / f"{hosts}.duckdb"
        )
        for hosts in (1, 2, 3, 4, 6, 8)
    }
    whole = analyse(curve(list(stores.values())))
    assert whole.curve.type == "weak"
    assert whole.curve.unit == "samples/s"
    assert [point.gpus for point in whole.selection.used] == [2, 3, 4, 6, 8]
    assert whole.bend.culprit == "exposed_transfer"
    assert next(part.share for part in whole.bend.parts if part.name == "exposed_transfer") > 0.7
    plateau = next(finding for finding in scaling_findings(whole) if finding.code == "SCALE-PLATEAU")
    assert plateau.cause == "scaling_plateau"
    assert "Exposed transfer makes" in plateau.message

    rest = [store for hosts, store in stores.items() if hosts < 8]
    (prediction,) = analyse(curve(rest), sizes=(8,)).predictions
    truth = whole.curve.points[-1]
    assert prediction.confidence != "none"
    assert prediction.interval[0] <= truth.value <= prediction.interval[1]
    assert prediction.interval[1] / prediction.interval[0] < 1.35

    model = estimate(read_stores([stores[4]]).runs[0])
    assert model.gpus == 8
    assert model.interval_ns[0] <= truth.step_ns <= model.interval_ns[1]


@needs_lab
def test_a_folder_of_raw_runs(tmp_path):
    """Sub-folders become points without a store on disk; one that cannot be read is named and left out."""
    for hosts in (1, 2, 4):
        for part in ("traces", "logs"):
            shutil.copytree(LAB / "scaling_150m" / f"{hosts}hosts" / part, tmp_path / f"{hosts}hosts" / part)
    (tmp_path / "broken" / "traces").mkdir(parents=True)
    (tmp_path / "broken" / "traces" / "rank0.json").write_text("{")
    (tmp_path / "notes.txt").write_text("measured in May")
    result = call(tmp_path, "--format", "json")
    found = json.loads(result.stdout)["scaling"]
    assert [(point["gpus"], round(point["value"])) for point in found["points"]] == [(1, 41), (2, 69), (4, 122)]
    assert "left out: broken" in result.stderr
    assert any(note.startswith("left out: broken") for note in found["notes"])
    assert not list(tmp_path.rglob("*.duckdb"))


def test_one_run_as_a_folder_is_estimated_at_twice_its_size(tmp_path):
    """The model from 8 GPUs holds for 16 of the same job."""
    found = answer(SAMPLES / "healthy")
    model = found["model_estimate"]
    assert model["gpus"] == 16
    assert len(model["assumptions"]) == 5
    assert found["predictions"] == []
    subprocess.run(
        [sys.executable, SAMPLES / "simulate.py", "--scenario", "healthy", "--ranks", "16", "--seed", "11", "--no-logs", "--detail", "coarse", "--out", tmp_path / "16"],
        check=True,
        capture_output=True,
        timeout=60,
    )  # fmt: skip
    truth = yaml.safe_load((tmp_path / "16/truth.yaml").read_text())["truth"]["step_time"]["median_ns"]
    low, high = model["interval_ns"]
    assert low <= truth <= high
    assert model["step_ns"] == pytest.approx(truth, rel=0.03)


def test_a_folder_a_rank_is_one_run(tmp_path):
    for trace in sorted((SAMPLES / "gloo_healthy").glob("*.json.gz")):
        place = tmp_path / trace.name.split(".")[0]
        place.mkdir()
        shutil.copy(trace, place)
    found = answer(tmp_path)
    assert [point["gpus"] for point in found["points"]] == [4]
    assert "stays inside one host" in found["model_estimate"]["text"]
    page = call(tmp_path, "--format", "html").stdout
    assert "<svg" not in page  # one size is no chart
    assert "stays inside one host" in page


def test_folders_without_runs_are_explained(tmp_path):
    (tmp_path / "curve.csv").write_text("gpus,tokens/s\n8,1\n16,2\n")
    with pytest.raises(SourceError, match=r"give its path: .*curve\.csv"):
        call(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(SourceError, match="no sub-folder holds a run"):
        call(tmp_path)


def store(path, world, step_ns, *, logged=(), unit="samples/s"):
    steps = list(range(len(step_ns)))
    with StoreWriter(path) as writer:
        writer.insert("run", pl.DataFrame({"name": [path.stem], "schema_version": [1], "world_size": [world]}))
        writer.insert("host", pl.DataFrame({"host": [f"node{i}" for i in range(world or 1)]}))
        writer.insert(
            "step",
            pl.DataFrame(
                {"rank": [0] * len(steps), "step": steps, "step_ns": step_ns, "label": ["normal"] * len(steps)}
            ),
        )
        for rank, rate in enumerate(logged):
            writer.insert(
                "training_log",
                pl.DataFrame(
                    {"step": steps, "step_time_ns": step_ns, "throughput": [rate] * len(steps), "throughput_unit": [unit] * len(steps),
                     "restart": [0] * len(steps), "source": [f"rank{rank}.log"] * len(steps), "rank": [rank] * len(steps)}
                ),
            )  # fmt: skip
        writer.publish()
    return path


def test_ranks_that_log_their_own_rate(tmp_path):
    """Each rank's 100 samples/s at every size is no strong scaling without gain, unless the user says so."""
    paths = [store(tmp_path / f"{n}.duckdb", n, [10**8] * 8, logged=[100.0, 101.0]) for n in (2, 4, 8)]
    read = read_stores(paths)
    assert (read.kind, read.unit) == ("per_gpu", "samples/s per rank")
    assert "--type strong overrules" in read.notes[0]
    assert curve(paths).points[-1].rate == pytest.approx(800)
    assert read_stores(paths, stated="strong").kind == "throughput"


@pytest.mark.parametrize(
    ("unit", "kind"), [("tokens/s/gpu", "per_gpu"), ("steps/s", "step_rate"), ("samples/s", "throughput")]
)
def test_units_of_logs(tmp_path, unit, kind):
    paths = [store(tmp_path / f"{n}.duckdb", n, [10**8] * 8, logged=[10.0 * n], unit=unit) for n in (2, 4)]
    assert read_stores(paths).kind == kind


def test_strong_scaling_without_a_log_is_seen(tmp_path):
    for n in (2, 4, 8):
        store(tmp_path / f"{n}.duckdb", n, [8 * 10**8 // n + 10**6] * 8)
    found = answer(tmp_path)
    assert found["type"] == "strong"
    assert found["efficiency"][-1]["ratio"] > 0.95


def test_a_store_that_tells_nothing_is_left_out(tmp_path):
    for n in (2, 4):
        store(tmp_path / f"{n}.duckdb", n, [10**8] * 4)
    store(tmp_path / "none.duckdb", None, [])
    (tmp_path / "text.duckdb").write_text("no store")
    found = answer(tmp_path)
    assert [point["gpus"] for point in found["points"]] == [2, 4]
    assert sum(note.startswith("left out: ") for note in found["notes"]) == 2
    with pytest.raises(StoreError):
        read_stores([tmp_path / "text.duckdb"])
