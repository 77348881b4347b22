"""False alarms, power and attribution of `diagnose compare` on simulated pairs.

python benchmarks/compare.py [--trials N] [--step-sd RATIO] [--between-run-sd RATIO]

A run is a random pace (deviation --between-run-sd) times steps of their own noise; its parts and ranks vary with it. Equal
pairs must differ in at most 5 % of cases, in the verdict and in each table; slower ones should be seen, in the right part.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import polars as pl

from diagnose.analysis.compare.compare import compare_runs
from diagnose.analysis.compare.facts import PARTS, RunFacts
from diagnose.analysis.compare.stats import Sample, difference, median_error

SIDES = ((1, 1), (2, 2), (3, 1), (3, 3), (5, 5), (6, 1), (10, 1), (10, 10))
RANKS, STEPS = 8, 8
SHARES = {
    "compute_ns": 0.72,
    "exposed_wait_ns": 0.03,
    "exposed_transfer_ns": 0.12,
    "exposed_memcpy_ns": 0.02,
    "idle_input_ns": 0.03,
    "idle_host_ns": 0.08,
}


def verdicts(
    before: int, after: int, slower: float, *, trials: int, step_sd: float, run_sd: float, seed: int
) -> tuple[float, float]:
    """Shares of pairs called slower, and called changed in any direction."""
    dice = np.random.default_rng(seed)

    def side(runs: int, shift: float) -> Sample:
        steps = np.exp(shift + dice.normal(0, run_sd, (runs, 1)) + dice.normal(0, step_sd, (runs, STEPS)))
        return Sample(tuple(map(math.log, np.median(steps, axis=1))), tuple(median_error(row) or 0.0 for row in steps))

    found = [difference(side(before, 0.0), side(after, math.log1p(slower))) for _ in range(trials)]
    called = [effect for effect in found if effect is not None and effect.significant]
    return sum(effect.change > 0 for effect in called) / trials, len(called) / trials


def run(
    dice: np.random.Generator,
    *,
    step_sd: float,
    run_sd: float,
    grow: dict[str, float] | None = None,
    rank: int | None = None,
) -> RunFacts:
    """A run of eight ranks; ``grow`` adds shares of the step to parts, of one rank alone (the others wait) or of all."""
    pace = 100e6 * math.exp(dice.normal(0, run_sd))
    extra = sum((grow or {}).values())
    rows = []
    for step in range(STEPS):
        luck = math.exp(dice.normal(0, step_sd))
        for number in range(RANKS):
            parts = {part: share * pace * luck * math.exp(dice.normal(0, 0.01)) for part, share in SHARES.items()}
            guilty = rank is None or number == rank
            for part, share in (grow or {}).items():
                parts[part if guilty else "exposed_wait_ns"] += share * pace * luck
            parts["exposed_comm_ns"] = parts["exposed_wait_ns"] + parts["exposed_transfer_ns"]
            local = sum(
                value
                for part, value in parts.items()
                if part not in ("exposed_comm_ns", "exposed_wait_ns", "exposed_transfer_ns")
            )
            whole = {part: round(parts.get(part, 0.0)) for part in PARTS}
            rows.append(
                {
                    "rank": number,
                    "step": step,
                    **whole,
                    "local_work_ns": round(local),
                    "host": f"node{number // 4}",
                    "luck": luck,
                }
            )
    frame = pl.DataFrame(rows)
    times = pace * (1 + extra) * frame.group_by("step").agg(pl.col("luck").first()).get_column("luck").to_numpy()
    median = frame.group_by("step").agg(pl.col(part).median() for part in PARTS).sort("step")
    critical = (
        frame.sort("step", "exposed_wait_ns", "rank")
        .group_by("step", maintain_order=True)
        .first()
        .select("step", "rank", *PARTS)
    )
    kernels = pl.DataFrame(
        schema={
            "rank": pl.Int32,
            "signature": pl.Int64,
            "name": pl.String,
            "total_ns": pl.Float64,
            "count": pl.Float64,
            "mad_ns": pl.Float64,
            "steps": pl.Int64,
        }
    )
    collectives = pl.DataFrame(schema={"collective": pl.String, "transfer_ns": pl.Float64})
    return RunFacts(
        name="run", store="", world_size=RANKS, ranks_seen=tuple(range(RANKS)), start_ns=0, step_ns=float(np.median(times)), steps_used=STEPS,
        error=median_error(times) or 0.0, measured_from="simulation", work=None, parts=median, critical=critical, ranks=frame.drop("luck"),
        kernels=kernels, collectives=collectives, comm_bytes=None, transports={}, settings={},
    )  # fmt: skip


def attribution(sides: tuple[int, int], *, trials: int, step_sd: float, run_sd: float) -> None:
    """Right parts and ranks for confirmed changes, wrong ones on equal pairs."""
    cases: list[tuple[str, dict[str, float] | None, int | None, str | None]] = [
        ("nothing", None, None, None),
        ("compute +6 % everywhere", {"compute_ns": 0.06}, None, "compute"),
        ("transfer +6 % everywhere", {"exposed_transfer_ns": 0.06}, None, "exposed_transfer"),
        ("input +6 % everywhere", {"idle_input_ns": 0.06}, None, "idle_input"),
        ("compute +8 % on rank 5", {"compute_ns": 0.08}, 5, "compute"),
        ("input +8 % on rank 5", {"idle_input_ns": 0.08}, 5, "idle_input"),
    ]
    for name, grow, rank, part in cases:
        dice = np.random.default_rng(len(name))
        confirmed = right = tables = 0
        for _ in range(trials):
            base = [run(dice, step_sd=step_sd, run_sd=run_sd) for _ in range(sides[0])]
            new = [run(dice, step_sd=step_sd, run_sd=run_sd, grow=grow, rank=rank) for _ in range(sides[1])]
            found = compare_runs(base, new)
            if found.outcome.change == "regression":
                confirmed += 1
                right += found.attribution.part == part and found.attribution.ranks == (() if rank is None else (rank,))
            tables += any(item.changed for item in found.parts if item.view == "median") or any(
                item.changed for item in found.ranks
            )
        print(
            f"{sides[0]} v {sides[1]}  {name:26} regression {confirmed / trials:6.1%}  right part and ranks {right / max(confirmed, 1):6.1%}  a row changed {tables / trials:6.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--step-sd", type=float, default=0.002, help="noise of single steps")
    parser.add_argument("--between-run-sd", type=float, default=0.01)
    options = parser.parse_args()
    begun = time.monotonic()
    print("runs      false alarms   finds 2 %   finds 5 %   finds 10 %")
    for number, (before, after) in enumerate(SIDES):
        common = {"trials": options.trials, "step_sd": options.step_sd, "run_sd": options.between_run_sd}
        _, alarms = verdicts(before, after, 0.0, seed=number, **common)
        power = [verdicts(before, after, slower, seed=100 + number, **common)[0] for slower in (0.02, 0.05, 0.10)]
        print(f"{before:2} v {after:2}   {alarms:12.1%} {power[0]:11.1%} {power[1]:11.1%} {power[2]:12.1%}")
    for sides in ((1, 1), (3, 3)):
        attribution(sides, trials=max(20, options.trials // 20), step_sd=options.step_sd, run_sd=options.between_run_sd)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
