"""Points of a scaling curve from run stores: world size, throughput, step split and step-to-step noise of each run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from diagnose.analysis.scaling.ensemble import RUN_NOISE
from diagnose.analysis.scaling.one_run import OneRun
from diagnose.errors import SourceError, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

    from diagnose.analysis.scaling.table import Kind
    from diagnose.store.reader import Store

PARTS = ("compute", "exposed_wait", "exposed_transfer", "exposed_comm", "exposed_memcpy", "idle")

SETTLE_STEPS = 2
"""Logged steps left out at the start: connections, allocations and compilation make them slower."""

SMALL_BYTES = 65_536
"""Collectives up to 64 KiB take their latency and little else."""

MAD_TO_SD = 1.4826
MEDIAN_TO_MEAN_SD = 1.2533
"""A normal's sd over its median absolute deviation; the standard error of a median over that of a mean."""


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


class _Run(NamedTuple):
    row: StoreRow
    throughput: float | None
    unit: str | None
    one: OneRun | None


def read_stores(paths: Sequence[Path]) -> StoreRows:
    """Read one point from each store; several stores of one size are repeats.

    Raises:
        StoreError: a file is no run store.
        SourceError: a store knows neither its world size nor a step time.
    """
    runs = [_read(path) for path in sorted(paths)]
    units = {run.unit for run in runs}
    logged = all(run.throughput is not None for run in runs) and len(units) == 1
    numbered = [run.row.gpus for run in runs]
    rows = []
    for number, run in enumerate(runs):
        repeat = str(number + 1) if numbered.count(run.row.gpus) > 1 else None
        value = run.throughput if logged and run.throughput is not None else (run.row.step_ns or 0) / 1e9
        rows.append(msgspec.structs.replace(run.row, value=value, repeat=repeat))
    ones = tuple(run.one for run in runs)
    if logged:
        unit = next(iter(units)) or "work/s"
        kind: Kind = "per_gpu" if unit.lower().replace(" ", "").endswith(("/gpu", "/device", "/rank")) else "throughput"
        return StoreRows(tuple(rows), unit, kind, 1.0, ("throughput as logged by the runs, median over steps",), ones)
    note = (
        "no throughput was logged by every run: from the median step time, taking the same work per rank in "
        "every run for weak scaling"
    )
    return StoreRows(tuple(rows), "s per step", "step_time", None, (note,), ones)


def _read(path: Path) -> _Run:
    from diagnose.store.reader import Store

    with Store(path) as store:
        world = store.query("SELECT max(world_size) AS n FROM run").item()
        if not world:
            raise SourceError(
                f"{path} does not know its world size: run `diagnose run` again on all its ranks, or give a table "
                "with a column gpus"
            )
        hosts = store.query("SELECT count(*) AS n FROM host").item()
        logged = _training_log(store)
        step_ns, noise = _steps(store) if logged is None or logged[0] is None else (logged[0], logged[1])
        if step_ns is None:
            raise SourceError(
                f"{path} holds no complete step: neither the traces nor a training log tell its step time"
            )
        parts = _parts(store)
        row = StoreRow(
            place=str(path),
            gpus=int(world),
            value=1.0,
            hosts=int(hosts) or None,
            step_ns=step_ns,
            noise_ratio=math.hypot(RUN_NOISE, noise or 0.0),
            parts_ns=parts,
        )
        throughput, unit = (logged[2], logged[3]) if logged else (None, None)
        return _Run(row, throughput, unit, _one_run(store, int(world), step_ns, parts))


def _training_log(store: Store) -> tuple[float | None, float | None, float | None, str | None] | None:
    """Step time, its noise, throughput and its unit from the logged steps; null without a log."""
    try:
        frame = store.query("SELECT * FROM training_log ORDER BY step")
    except StoreError:
        return None
    if frame.is_empty():
        return None
    if "label" in frame.columns and (normal := frame.filter(frame["label"] == "normal")).height:
        frame = normal
    if frame.height > 2 * SETTLE_STEPS:
        frame = frame.slice(SETTLE_STEPS)
    step_ns, noise = _median(frame, "step_time_ns")
    throughput, _ = _median(frame, "throughput")
    unit = None
    if throughput is not None and "throughput_unit" in frame.columns:
        unit = next((str(value) for value in frame["throughput_unit"] if value), None)
    return step_ns, noise, throughput, unit or "work/s"


def _steps(store: Store) -> tuple[float | None, float | None]:
    frame = store.query(
        "SELECT step, median(step_ns) AS step_ns FROM step WHERE label = 'normal' GROUP BY step ORDER BY step"
    )
    if frame.is_empty():
        frame = store.query(
            "SELECT step, median(step_ns) AS step_ns FROM step WHERE label NOT IN ('cut', 'profiler_start') "
            "GROUP BY step ORDER BY step"
        )
    return _median(frame, "step_ns")


def _median(frame: pl.DataFrame, column: str) -> tuple[float | None, float | None]:
    """Median of the positive values of a column, and the relative standard error of that median."""
    if column not in frame.columns:
        return None, None
    values = frame[column].drop_nulls()
    values = values.filter(values > 0)
    if values.is_empty():
        return None, None
    middle: Any = values.median()
    deviation: Any = (values - middle).abs().median()
    return float(middle), MEDIAN_TO_MEAN_SD * MAD_TO_SD * float(deviation) / float(middle) / math.sqrt(len(values))


def _parts(store: Store) -> dict[str, float]:
    """Median over ranks of each part's median over the normal steps, ns."""
    columns = ", ".join(f"median(b.{name}_ns) AS {name}" for name in PARTS)
    frame = store.query(
        f"WITH r AS (SELECT b.rank, {columns} FROM breakdown b JOIN step s USING (rank, step) "
        "WHERE b.step >= 0 AND s.label = 'normal' GROUP BY b.rank) SELECT "
        f"{', '.join(f'median({name}) AS {name}' for name in PARTS)} FROM r"
    )
    if frame.is_empty():
        return {}
    return {name: float(value) for name, value in frame.row(0, named=True).items() if value is not None}


def _one_run(store: Store, gpus: int, step_ns: float, parts: dict[str, float]) -> OneRun | None:
    if "exposed_wait" not in parts or "exposed_transfer" not in parts:
        return None
    spread = store.query(
        "WITH s AS (SELECT step, stddev_samp(local_work_ns) AS sd FROM breakdown WHERE step >= 0 GROUP BY step "
        "HAVING count(*) > 1) "
        "SELECT median(sd) AS sd FROM s"
    ).item()
    latency = store.query(
        "WITH c AS (SELECT step, count(*) AS calls FROM collective WHERE step IS NOT NULL GROUP BY step) "
        "SELECT (SELECT median(transfer_ns) FROM collective WHERE msg_bytes <= $small) * (SELECT median(calls) "
        "FROM c) AS ns",
        {"small": SMALL_BYTES},
    ).item()
    return OneRun(
        gpus,
        step_ns,
        parts["exposed_wait"],
        parts["exposed_transfer"],
        float(spread or 0.0),
        None if latency is None else float(latency),
    )
