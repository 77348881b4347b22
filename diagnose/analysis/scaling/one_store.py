"""What one run store tells about its size: step time, throughput, parts of the step, network and spread of ranks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.scaling.one_run import NetworkPart, OneRun
from diagnose.analysis.summary import WHOLE_TRACE
from diagnose.analysis.training_log import reference_log
from diagnose.errors import SourceError

if TYPE_CHECKING:
    import polars as pl

    from diagnose.store.reader import Store

PARTS = ("compute", "exposed_wait", "exposed_transfer", "exposed_comm", "exposed_memcpy", "idle")

SETTLE_STEPS = 2
"""Logged steps left out at the start: connections, allocations and compilation make them slower."""

MAD_TO_SD = 1.4826
MEDIAN_TO_MEAN_SD = 1.2533
"""A normal's sd over its median absolute deviation; the standard error of a median over that of a mean."""


class Seen(NamedTuple):
    """One run. ``noise_ratio`` is the relative standard error of its median step; ``unit`` is that of the log."""

    gpus: int
    hosts: int | None
    step_ns: float
    noise_ratio: float
    throughput: float | None
    unit: str | None
    parts_ns: dict[str, float]
    one: OneRun | None


def see(store: Store, name: str) -> Seen:
    """Read one store.

    Raises:
        SourceError: it knows neither its world size nor a step time.
    """
    world = store.query("SELECT max(world_size) AS n FROM run").item()
    if not world:
        raise SourceError(
            f"{name} does not know its world size: run `diagnose run` again on all its ranks, or give a table with a "
            "column gpus"
        )
    hosts = store.query("SELECT count(*) AS n FROM host").item()
    step_ns, noise, throughput, unit = _logged(store)
    if step_ns is None:
        step_ns, noise = _traced(store)
    if step_ns is None:
        raise SourceError(f"{name} holds no complete step: neither the traces nor a training log tell its step time")
    parts = _parts(store, alone=int(world) == 1)
    return Seen(
        gpus=int(world),
        hosts=int(hosts) or None,
        step_ns=step_ns,
        noise_ratio=noise or 0.0,
        throughput=throughput,
        unit=unit,
        parts_ns=parts,
        one=_one_run(store, int(world), int(hosts) or None, step_ns, parts),
    )


def _logged(store: Store) -> tuple[float | None, float | None, float | None, str | None]:
    """Step time, its noise, throughput and its unit as one rank logged them; all null without a log."""
    rows = reference_log(store)
    if rows.is_empty():
        return None, None, None, None
    if rows.height > 2 * SETTLE_STEPS:
        rows = rows.slice(SETTLE_STEPS)
    step_ns, noise = _median(rows.get_column("step_time_ns"))
    throughput, _ = _median(rows.get_column("throughput"))
    unit = next((str(value) for value in rows.get_column("throughput_unit") if value), None)
    return step_ns, noise, throughput, (unit or "work/s") if throughput is not None else None


def _traced(store: Store) -> tuple[float | None, float | None]:
    for labels in ("label = 'normal'", "label NOT IN ('cut', 'profiler_start')"):
        frame = store.query(
            f"SELECT step, median(step_ns) AS step_ns FROM step WHERE {labels} GROUP BY step ORDER BY step"
        )
        if not frame.is_empty():
            return _median(frame.get_column("step_ns"))
    return None, None


def _median(column: pl.Series) -> tuple[float | None, float | None]:
    """Median of the positive values of a column, and the relative standard error of that median."""
    values = column.drop_nulls()
    values = values.filter(values > 0)
    if values.is_empty():
        return None, None
    middle: Any = values.median()
    deviation: Any = (values - middle).abs().median()
    return float(middle), MEDIAN_TO_MEAN_SD * MAD_TO_SD * float(deviation) / float(middle) / math.sqrt(len(values))


def _parts(store: Store, *, alone: bool) -> dict[str, float]:
    """Mean over the ranks, then median over the normal steps, ns: GPU-time per step, so that the parts add up.

    A part that most ranks of a step do not know is left out. One rank alone waits for nobody and moves nothing.
    """
    means = ", ".join(
        f"CASE WHEN 2 * count(b.{name}_ns) >= count(*) THEN avg(b.{name}_ns) END AS {name}" for name in PARTS
    )
    frame = store.query(
        f"WITH s AS (SELECT step, {means} FROM breakdown b JOIN step USING (rank, step) "
        f"WHERE step > {WHOLE_TRACE} AND label = 'normal' GROUP BY step) "
        f"SELECT {', '.join(f'median({name}) AS {name}' for name in PARTS)} FROM s"
    )
    known = {name: float(value) for name, value in frame.row(0, named=True).items() if value is not None}
    if alone and known:
        known = {"exposed_wait": 0.0, "exposed_transfer": 0.0} | known
    return known


def _one_run(store: Store, gpus: int, hosts: int | None, step_ns: float, parts: dict[str, float]) -> OneRun | None:
    if gpus < 2 or "exposed_wait" not in parts or "exposed_transfer" not in parts:
        return None
    network = tuple(
        NetworkPart(
            tier=row["tier"],
            collective=str(row["collective"]),
            group_size=int(row["group_size"]),
            exposed_transfer_ns=float(row["exposed_transfer_ns"] or 0),
            latency_ratio=None if row["alpha_ns"] is None else row["latency_ratio"],
            busbw_bytes_per_s=row["busbw_bytes_per_s"],
        )
        for row in store.query("SELECT * FROM network_tier WHERE group_size IS NOT NULL ORDER BY ALL").to_dicts()
    )
    return OneRun(gpus, hosts, step_ns, parts["exposed_wait"], parts["exposed_transfer"], _spread(store), network)


def _spread(store: Store) -> float:
    """Standard deviation of local work over the ranks, stragglers left out: within steps, or lasting over them."""
    within = store.query(
        "WITH s AS (SELECT b.step, stddev_samp(b.local_work_ns) AS sd FROM breakdown b "
        "LEFT JOIN rank_work w USING (rank) "
        f"WHERE b.step > {WHOLE_TRACE} AND coalesce(w.verdict, 'ordinary') = 'ordinary' GROUP BY b.step HAVING count(*) > 1) "
        "SELECT median(sd) FROM s"
    ).item()
    lasting = store.query("SELECT median(sigma_ratio * reference_ns) FROM rank_work").item()
    return max(float(within or 0.0), float(lasting or 0.0))
