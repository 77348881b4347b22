"""Curves and estimates of real and simulated runs: the largest size of recorded sweeps, and twice the size from one run.

Usage: python benchmarks/scaling_runs.py [LAB]     (default: ../shared/data/lab with scaling_150m and scaling_400m)

Prints Markdown. Makes the stores in a temporary folder: about two minutes on two cores.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from diagnose.analysis.scaling.analyse import analyse
from diagnose.analysis.scaling.one_run import estimate
from diagnose.analysis.scaling.stores import read_stores
from diagnose.analysis.scaling.table import build_curve
from diagnose.config import Config
from diagnose.pipeline.build import RunOptions, build_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diagnose.analysis.scaling.table import Curve

ROOT = Path(__file__).parents[1]
SWEEPS = {"scaling_150m": "150 Mbit/s", "scaling_400m": "400 Mbit/s"}
HOSTS = (1, 2, 3, 4, 6, 8)
SIMULATED = (
    ("healthy", "ddp"),
    ("healthy", "hsdp"),
    ("healthy_spread", "fsdp"),
    ("slow_network", "ddp"),
    ("socket_fallback", "fsdp"),
)


def store(run: Path, target: Path) -> Path:
    return build_run([str(run)], target, Config(), RunOptions(keep="stats"))


def curve(paths: Iterable[Path]) -> Curve:
    read = read_stores(list(paths))
    return build_curve(read.rows, unit=read.unit, kind=read.kind, seconds=read.seconds, notes=read.notes)


def sweep_line(name: str, stores: dict[int, Path]) -> str:
    whole = analyse(curve(stores.values()))
    (found,) = analyse(curve(path for hosts, path in stores.items() if hosts < 8), sizes=(8,)).predictions
    truth = whole.curve.points[-1].value
    if whole.bend is None or whole.bend.culprit is None or found.value is None or found.interval is None:
        return f"| {name} | no answer |"
    share = next(part.share for part in whole.bend.parts if part.name == whole.bend.culprit)
    low, high = found.interval
    return (
        f"| {name} | {whole.measured[-1].efficiency:.0%} | {whole.bend.culprit.replace('_', ' ')}, {share:.0%} of the loss "
        f"| {found.value:.0f}, {low:.0f} to {high:.0f} samples/s | {truth:.0f} | {found.value / truth - 1:+.1%} |"
    )


def estimate_line(name: str, path: Path, factor: int, truth_ns: float) -> str:
    run = read_stores([path]).runs[0]
    found = estimate(run, factor) if run else None
    if run is None or found is None or found.step_ns is None or found.interval_ns is None:
        return f"| {name} | no estimate |"
    inside = "yes" if found.interval_ns[0] <= truth_ns <= found.interval_ns[1] else "no"
    error, same = found.step_ns / truth_ns - 1, run.step_ns / truth_ns - 1
    return f"| {name} | {run.gpus} | {found.gpus} | {error:+.1%} | {same:+.1%} | {inside} |"


def simulated(scenario: str, layout: str, ranks: int, out: Path) -> tuple[Path, float]:
    """Traces of a simulated run, and the median step of its answer key in nanoseconds."""
    command = [sys.executable, str(ROOT / "sample_traces/simulate.py"), "--scenario", scenario, "--layout", layout]
    command += [
        "--ranks",
        str(ranks),
        "--seed",
        "5",
        "--steps",
        "6",
        "--no-logs",
        "--detail",
        "coarse",
        "--out",
        str(out),
    ]
    subprocess.run(command, check=True, capture_output=True)
    truth = yaml.safe_load((out / "truth.yaml").read_text())["truth"]
    return out / "traces", float(truth["step_time"]["median_ns"])


def main() -> None:
    lab = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared/data/lab"
    with tempfile.TemporaryDirectory(prefix="diagnose-bench-") as folder:
        scratch = Path(folder)
        sweeps: list[str] = []
        estimates: list[str] = []
        for sweep, name in SWEEPS.items():
            if not (lab / sweep).is_dir():
                continue
            stores = {n: store(lab / sweep / f"{n}hosts", scratch / f"{sweep}-{n}.duckdb") for n in HOSTS}
            sweeps.append(sweep_line(name, stores))
            for n in (2, 3, 4):
                truth = read_stores([stores[2 * n]]).rows[0].step_ns or 0.0
                estimates.append(estimate_line(f"recorded, DDP, {name}", stores[n], 2, truth))
        for scenario, layout in SIMULATED:
            traces, _ = simulated(scenario, layout, 16, scratch / f"{scenario}-{layout}-16")
            _, truth = simulated(scenario, layout, 32, scratch / f"{scenario}-{layout}-32")
            label = f"simulated, {layout.upper()}, {scenario.replace('_', ' ')}"
            estimates.append(estimate_line(label, store(traces, scratch / f"{scenario}-{layout}.duckdb"), 2, truth))
    print("| sweep | efficiency at 8, of 2 | what bends the curve | predicted, interval | measured | error |")
    print("|---|---|---|---|---|---|", *sweeps, sep="\n")
    print("\n| run | from | to | error | same | in the range |")
    print("|---|---|---|---|---|---|", *estimates, sep="\n")


if __name__ == "__main__":
    main()
