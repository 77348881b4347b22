"""The simulator must be reproducible, obey its own physics, and leak no answers into its files."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
sys.path.insert(0, str(SAMPLES))

from simulator.config import Cluster, Model  # noqa: E402
from simulator.output import METRIC_STYLES, write_run  # noqa: E402
from simulator.scenarios import SCENARIOS  # noqa: E402
from simulator.simulation import simulate  # noqa: E402
from simulator.timeline import COMM, COMPUTE  # noqa: E402

SMALL = Model(detail="coarse", layers=2)
PIPELINE = {"layout": "dp_tp_pp", "ranks": 16, "tp": 2, "pp": 4, "model": replace(SMALL, micro_batches=6)}
LAYOUTS = {
    "ddp": {"layout": "ddp", "model": SMALL},
    "fsdp": {"layout": "fsdp", "model": SMALL},
    "hsdp": {"layout": "hsdp", "ranks": 16, "shard": 8, "model": SMALL},
    "dp_tp": {"layout": "dp_tp", "ranks": 16, "tp": 4, "model": SMALL},
    "dp_tp_pp": PIPELINE,
    "moe": {"layout": "moe", "model": SMALL},
}
WORDS_OF_FAULTS = {"simulat", "synthetic", "faults", "inject", "ground truth", "counterfactual"}


def written(folder, scenario="slow_node", **wishes):
    run = simulate(scenario, **({"model": SMALL, "steps": 3} | wishes))
    write_run(run, folder, truth=folder / "truth.yaml", metrics="openmetrics")
    return run


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def text_of(path):
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    written(tmp_path / "a")
    written(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_another_seed_gives_other_bytes(tmp_path):
    written(tmp_path / "a", seed=1)
    written(tmp_path / "b", seed=2)
    assert contents(tmp_path / "a") != contents(tmp_path / "b")


SLOWER = sorted(
    set(SCENARIOS)
    - {"healthy", "healthy_spread", "healthy_noisy", "overlapped", "small_model", "bubble"}  # nothing to remove
    - {"checkpoint", "warm_up", "gc", "lossy_link", "transient_gpu"}  # rare steps: the mean shows them
)


@pytest.mark.parametrize("scenario", SLOWER)
def test_without_its_fault_a_run_is_faster(scenario):
    run = simulate(scenario, counterfactuals=False)
    assert run.timeline.median_step_ns() > 1.01 * run.without_fault_ns


@pytest.mark.parametrize("scenario", ["checkpoint", "warm_up"])
def test_rare_steps_lengthen_the_mean_and_not_the_median(scenario):
    run = simulate(scenario, counterfactuals=False)
    window = slice(run.timeline.job.first_profiled, None)
    assert run.timeline.step_ns()[window].mean() > 1.2 * run.without_fault_ns
    assert run.timeline.median_step_ns() < 1.1 * run.without_fault_ns


@pytest.mark.parametrize(("weak", "strong"), [(1.1, 1.5), (1.5, 2.0)])
def test_a_stronger_fault_costs_more(weak, strong):
    mild, severe = (simulate("slow_gpu", parameters={"factor": f}, counterfactuals=False) for f in (weak, strong))
    assert mild.without_fault_ns == severe.without_fault_ns
    assert mild.timeline.median_step_ns() < severe.timeline.median_step_ns()


@pytest.mark.parametrize("scenario", ["wait_not_network", "overlapped", "small_model"])
def test_jobs_whose_network_is_no_bottleneck_gain_little_from_a_free_one(scenario):
    run = simulate(scenario)
    assert run.free_network_ns > 0.9 * run.timeline.median_step_ns()


@pytest.mark.parametrize(
    "scenario", ["slow_nic", "slow_network", "oversubscription", "socket_fallback", "tiny_buckets"]
)
def test_jobs_bound_by_the_network_gain_from_a_free_one(scenario):
    run = simulate(scenario)
    assert run.free_network_ns < 0.85 * run.timeline.median_step_ns()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("era", ["2.13", "2.4"])
def test_traces_load_and_their_events_fit_together(tmp_path, layout, era):
    run = simulate("healthy", steps=2, era=era, counterfactuals=False, **LAYOUTS[layout])
    write_run(run, tmp_path, truth=tmp_path / "truth.yaml", logs=False)
    files = sorted((tmp_path / "traces").iterdir())
    assert len(files) == run.timeline.job.ranks
    trace = json.loads(text_of(files[0]))
    events = trace["traceEvents"]
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    device = [e for e in events if e.get("cat") in {"kernel", "gpu_memcpy"}]
    assert device
    for event in device:
        launch = launches[event["args"]["correlation"]]
        assert launch["ts"] <= event["ts"]
        assert event["tid"] == event["args"]["stream"]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#")]
    assert len(steps) == 2
    assert all(("Seq" in e["args"]) == (era == "2.13") for e in device if "Collective name" in e["args"])
    by_stream = defaultdict(list)
    for event in device:
        by_stream[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_stream.values():
        spans.sort()
        assert all(a[1] <= b[0] + 0.01 for a, b in pairwise(spans))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_members_of_a_collective_end_together_once_clocks_agree(layout):
    run = simulate("healthy", steps=3, counterfactuals=False, **LAYOUTS[layout])
    timeline, noise = run.timeline, run.timeline.job.noise
    ends, starts = defaultdict(list), defaultdict(list)
    for slot in timeline.slots:
        if slot.seq is None or slot.op.__class__.__name__ != "Collective":
            continue
        for i in range(len(slot.ranks)):
            ends[int(slot.group[i]), int(slot.seq[i])].append(slot.end[i])
            starts[int(slot.group[i]), int(slot.seq[i])].append(slot.start[i])
    assert ends
    for key, values in ends.items():
        group = timeline.groups[key[0]]
        assert len(values) == len(group.ranks)
        transfer = min(values) - max(starts[key])
        assert transfer > 0
        assert max(values) - min(values) <= min(0.06 * transfer, noise.end_skew_cap_ns) * 1.1 + noise.end_skew_floor_ns


def test_observed_times_undo_to_true_times():
    run = simulate("clocks_off", model=SMALL, steps=3, counterfactuals=False)
    timeline = run.timeline
    slot = next(s for s in timeline.slots if s.end is not None)
    seen = timeline.observed(slot.ranks, slot.end)
    host = timeline.topology.host_of[slot.ranks]
    given = timeline.conditions
    back = (seen - given.clock_offset_ns[host]) / (1 + given.clock_drift_ppm[host] * 1e-6)
    assert np.allclose(back, slot.end, atol=1.0)
    assert np.abs(given.clock_offset_ns).max() > 2e7


@pytest.mark.parametrize("scenario", ["slow_node", "slow_nic", "input_bound", "socket_fallback"])
@pytest.mark.parametrize("style", METRIC_STYLES)
def test_no_input_tells_what_was_done(tmp_path, scenario, style):
    run = simulate(scenario, model=SMALL, steps=2, counterfactuals=False)
    write_run(run, tmp_path / "run", truth=tmp_path / "truth.yaml", metrics=style)
    forbidden = {scenario, run.scenario.meaning} | WORDS_OF_FAULTS
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            shown = f"{path.name}\n{text_of(path)}".lower()
            assert not [word for word in forbidden if word.lower() in shown], path


def test_truth_names_the_fault(tmp_path):
    written(tmp_path)
    truth = yaml.safe_load((tmp_path / "truth.yaml").read_text())["truth"]
    assert truth["faults"][0]["cause"] == "gpu_slow"
    assert truth["faults"][0]["ranks"] == [4, 5, 6, 7]
    assert truth["step_time"]["without_fault_median_ns"] < truth["step_time"]["median_ns"]
    assert truth["tiers"]


def test_missing_ranks_have_no_trace(tmp_path):
    run = written(tmp_path, "missing_ranks")
    assert run.timeline.job.drop_ranks
    assert len(list((tmp_path / "traces").iterdir())) == run.timeline.job.ranks - len(run.timeline.job.drop_ranks)


def test_arrays_hold_what_the_files_hold(tmp_path):
    run = written(tmp_path)
    table = run.timeline.kernels()
    trace = json.loads(text_of(tmp_path / "traces" / "rank5_trace.json.gz"))
    device = [e for e in trace["traceEvents"] if e.get("cat") in {"kernel", "gpu_memcpy"}]
    mine = table.rank == 5
    assert mine.sum() == len(device)
    assert (table.end_ns >= table.start_ns).all()
    assert set(np.unique(table.category[mine])) >= {COMPUTE, COMM}
    longest = max(e["dur"] for e in device)
    assert round(longest * 1000) == pytest.approx(int((table.end_ns - table.start_ns)[mine].max()), abs=2)


def test_thousands_of_ranks_are_cheap():
    run = simulate(
        "slow_gpu",
        ranks=2048,
        steps=2,
        model=Model(detail="coarse", layers=2),
        cluster=Cluster(gpus_per_host=8),
        counterfactuals=False,
    )
    assert len(np.unique(run.timeline.kernels().rank)) == 2048


def test_the_command_line_writes_a_run(tmp_path):
    command = [sys.executable, str(SAMPLES / "simulate.py"), "--scenario", "loader_one", "--steps", "2"]
    command += ["--detail", "coarse", "--ranks", "4", "--out", str(tmp_path / "run"), "--set", "share=0.9"]
    subprocess.run(command, check=True, capture_output=True)
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {"traces", "logs", "metrics", "train.log", "truth.yaml"}
    assert subprocess.run(command, check=False, capture_output=True).returncode == 2


SHIPPED = ["gloo_healthy", "gloo_slow_rank", "healthy", "input_bound", "slow_nic", "slow_node", "socket_fallback"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_samples_are_whole(name):
    folder = SAMPLES / name
    truth = yaml.safe_load((folder / "truth.yaml").read_text())["truth"]
    traces = sorted(folder.rglob("*.json.gz"))
    assert len(traces) == truth["world_size"]
    for path in traces:
        assert path.read_bytes()[4:8] == b"\0\0\0\0"  # no time stamp: the same bytes every time
        assert json.loads(text_of(path))["distributedInfo"]["world_size"] == truth["world_size"]
