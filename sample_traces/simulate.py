"""Writes the files of a simulated training run, with its answer key.

python sample_traces/simulate.py --scenario slow_node --ranks 8 --layout fsdp --steps 8 --seed 1 --out DIR
python sample_traces/simulate.py --list
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from simulator.config import LAYOUTS, Cluster, Job, Model
from simulator.output import METRIC_STYLES, write_run
from simulator.scenarios import SCENARIOS
from simulator.simulation import Run, simulate


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the scenarios and their parameters")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the scenario")
    parser.add_argument("--out", type=Path, help="folder of the run; must not hold a run yet")
    parser.add_argument("--truth", type=Path, help="file of the answer key (default: OUT/truth.yaml)")
    job = parser.add_argument_group("job (defaults come from the scenario)")
    job.add_argument("--layout", choices=LAYOUTS)
    job.add_argument("--ranks", type=int)
    job.add_argument("--tp", type=int)
    job.add_argument("--pp", type=int)
    job.add_argument("--shard", type=int, help="ranks of one shard group (hsdp)")
    job.add_argument("--steps", type=int, help="profiled steps")
    job.add_argument("--job-steps", type=int, help="steps of the whole job")
    job.add_argument("--seed", type=int)
    job.add_argument("--era", choices=("2.13", "2.4"), help="torch version whose files are imitated")
    job.add_argument("--gpus-per-host", type=int)
    job.add_argument("--layers", type=int, help="layers of one pipeline stage")
    job.add_argument("--hidden", type=int)
    job.add_argument("--tokens", type=int, help="per micro-batch and data-parallel rank")
    job.add_argument("--micro-batches", type=int)
    job.add_argument("--detail", choices=("fine", "coarse"))
    output = parser.add_argument_group("output")
    output.add_argument("--metrics", choices=METRIC_STYLES, default="smi")
    output.add_argument("--no-logs", action="store_true", help="no NCCL logs, metrics and training log")
    output.add_argument("--level", type=int, default=6, help="compression level of the traces")
    options = parser.parse_args(arguments)
    if not options.list and (options.scenario is None or options.out is None):
        parser.error("--scenario and --out are needed")
    return options


def simulated(options: argparse.Namespace) -> Run:
    """The run that the command line asks for."""
    base = replace(Job(), **SCENARIOS[options.scenario].job)  # type: ignore[arg-type]
    model = {f.name: getattr(options, f.name, None) for f in fields(Model)}
    wishes: dict[str, object] = {f.name: getattr(options, f.name, None) for f in fields(Job)}
    wishes["model"] = replace(base.model, **{k: v for k, v in model.items() if v is not None})
    cluster: Cluster = base.cluster
    if options.gpus_per_host:
        cluster = replace(cluster, gpus_per_host=options.gpus_per_host)
    wishes["cluster"] = cluster
    parameters = {k: float(v) for k, v in (item.split("=", 1) for item in options.set)}
    return simulate(options.scenario, parameters=parameters, **wishes)


def main() -> int:
    """Runs the command line."""
    options = parse()
    if options.list:
        for name, scenario in SCENARIOS.items():
            given = " ".join(f"{k}={v:g}" for k, v in scenario.parameters.items())
            print(f"{name:18s} {scenario.meaning}" + (f"  [{given}]" if given else ""))
        return 0
    if options.out.exists() and any(options.out.iterdir()):
        print(f"{options.out} is not empty", file=sys.stderr)
        return 2
    run = simulated(options)
    write_run(
        run,
        options.out,
        truth=options.truth or options.out / "truth.yaml",
        metrics=options.metrics,
        logs=not options.no_logs,
        level=options.level,
    )
    found, clean = run.timeline.median_step_ns() / 1e6, run.without_fault_ns / 1e6
    print(f"{options.out}: {found:.1f} ms a step, {clean:.1f} without the fault")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
