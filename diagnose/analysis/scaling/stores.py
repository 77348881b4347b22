"""Points of a scaling curve from run stores: world size, throughput, step split and step-to-step noise of each run."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.analysis.scaling.ensemble import RUN_NOISE
from diagnose.analysis.scaling.one_store import Seen, see
from diagnose.errors import SourceError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from diagnose.analysis.scaling.one_run import OneRun
    from diagnose.analysis.scaling.table import Kind, ScalingType

PER_GPU = ("/gpu", "/device", "/rank")
STEP_RATES = ("steps/s", "step/s", "it/s", "iterations/s")

SAME = 0.1
"""Work per step (rate times step time) counts as the same within 10 %, and so does a step time."""


class StoreRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run as a measurement; ``value`` is throughput where every run logged one, else the step time in s."""

    place: str
    gpus: int
    value: float
    repeat: str | None = None
    hosts: int | None = None
    model: str | None = None
    global_batch: float | None = None
    local_batch: float | None = None
    step_ns: float | None = None
    noise_ratio: float | None = None
    parts_ns: dict[str, float] = {}


class StoreRows(NamedTuple):
    """Rows with their unit and what was assumed; ``runs`` keep what an estimate from one run needs."""

    rows: tuple[StoreRow, ...]
    unit: str
    kind: Kind
    seconds: float | None
    notes: tuple[str, ...]
    runs: tuple[OneRun | None, ...]


def read_stores(
    paths: Sequence[Path], *, names: Mapping[Path, str] | None = None, stated: ScalingType = "unknown"
) -> StoreRows:
    """Read one point from each store; several stores of one size are repeats.

    A store that tells no point is named in the notes and left out. ``names`` are what to call the stores (default:
    their paths). ``stated`` is the scaling type as the user says it.

    Raises:
        StoreError: no file is a run store.
        SourceError: no store knows its world size and a step time.
    """
    runs: list[tuple[str, Seen]] = []
    notes: list[str] = []
    problems: list[StoreError | SourceError] = []
    for path in sorted(paths):
        name = (names or {}).get(path, str(path))
        try:
            runs.append((name, _read(path, name)))
        except (StoreError, SourceError) as error:
            problems.append(error)
            notes.append(f"left out: {error}")
    if not runs:
        raise problems[0]
    kind, unit, seconds, why = _unit([seen for _, seen in runs], stated)
    sizes = [seen.gpus for _, seen in runs]
    rows = tuple(
        StoreRow(
            place=name,
            gpus=seen.gpus,
            value=seen.step_ns / 1e9 if kind == "step_time" else seen.throughput or 0.0,
            repeat=str(number + 1) if sizes.count(seen.gpus) > 1 else None,
            hosts=seen.hosts,
            step_ns=seen.step_ns,
            noise_ratio=math.hypot(RUN_NOISE, seen.noise_ratio),
            parts_ns=seen.parts_ns,
        )
        for number, (name, seen) in enumerate(runs)
    )
    return StoreRows(rows, unit, kind, seconds, (why, *notes), tuple(seen.one for _, seen in runs))


def _read(path: Path, name: str) -> Seen:
    from diagnose.store.reader import Store

    with Store(path) as store:
        return see(store, name)


def _unit(runs: Sequence[Seen], stated: ScalingType) -> tuple[Kind, str, float | None, str]:
    """Kind, unit, seconds of the unit, and where the value comes from."""
    units = {seen.unit for seen in runs}
    unit = next(iter(units))
    if len(units) > 1 or unit is None:
        note = (
            "no throughput was logged by every run: from the median step time, taking the same work per rank in "
            "every run for weak scaling"
        )
        return "step_time", "s per step", None, note
    note = "throughput as logged by the runs, median over steps"
    plain = unit.lower().replace(" ", "")
    if plain in STEP_RATES:
        return "step_rate", unit, None, note
    if plain.endswith(PER_GPU):
        return "per_gpu", unit, 1.0, note
    if stated != "strong" and _own_rate(runs):
        note += (
            f"; {unit} is taken as one rank's own: the job grows, but neither does the work that rate and step time imply, nor "
            "does the step get shorter (--type strong overrules)"
        )
        return "per_gpu", f"{unit} per rank", 1.0, note
    return "throughput", unit, 1.0, note


def _own_rate(runs: Sequence[Seen]) -> bool:
    """Whether each rank logged its own throughput: the job grows, yet rate times step time stays and no step is shorter."""
    sizes = sorted({seen.gpus for seen in runs})
    if sizes[-1] < 2 * sizes[0]:
        return False
    first, last = ([seen for seen in runs if seen.gpus == size] for size in (sizes[0], sizes[-1]))
    steps = median(seen.step_ns for seen in last) / median(seen.step_ns for seen in first)
    rates = median(seen.throughput or 0 for seen in last) / median(seen.throughput or 0 for seen in first)
    return abs(math.log(steps * rates)) <= math.log1p(SAME) and steps >= 1 - SAME
