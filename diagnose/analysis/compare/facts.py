"""What one run brings to a comparison, read from its store once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
import polars as pl

from diagnose.analysis.compare.stats import median_error
from diagnose.analysis.summary import summarise

if TYPE_CHECKING:
    from diagnose.analysis.summary import JobSummary

PARTS = (
    "compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_comm_ns", "exposed_memcpy_ns",
    "idle_input_ns", "idle_host_ns", "idle_sync_ns", "idle_bubble_ns", "idle_other_ns",
)  # fmt: skip
LOCAL_PARTS = (
    "compute_ns",
    "exposed_memcpy_ns",
    "idle_input_ns",
    "idle_host_ns",
    "idle_sync_ns",
    "idle_other_ns",
    "late_comm_ns",
)
"""Parts a rank causes itself: a rank is compared by these, never by when it arrives."""
UNKNOWN_ERROR = 0.03
"""Assumed for a median of one or two steps."""
SETTLE_STEPS = 5
"""Logged steps left out at the start of a run: connections, allocations, compilation."""
_GPU_UNITS = ("/gpu", "/device", "/rank")


class Tables(Protocol):
    """The reading half of a store."""

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Run a SELECT."""
        ...

    def frame(self, name: str) -> pl.DataFrame:
        """A whole table."""
        ...


class Work(NamedTuple):
    """Units of work (tokens, samples) in one step of the whole job."""

    per_step: float
    unit: str


class RunFacts(NamedTuple):
    """One run. Frames: ``parts`` and ``critical`` one row a step, ``ranks`` one a rank and step, the others medians."""

    name: str
    store: str
    world_size: int | None
    ranks_seen: tuple[int, ...]
    start_ns: int | None
    step_ns: float | None
    steps_used: int
    error: float
    measured_from: str
    work: Work | None
    parts: pl.DataFrame
    critical: pl.DataFrame
    ranks: pl.DataFrame
    kernels: pl.DataFrame
    collectives: pl.DataFrame
    comm_bytes: float | None
    transports: dict[str, float]
    settings: dict[str, str]
    scale: float = 1.0
    unit: str = "step"

    @property
    def time(self) -> float:
        """The compared time: of a step, or with a scale of a unit of work."""
        return (self.step_ns or 0.0) * self.scale

    def per_unit(self, unit: str) -> RunFacts:
        """The run with its times as device time per unit of work."""
        if self.work is None or self.world_size is None:
            return self
        return self._replace(scale=self.world_size / self.work.per_step, unit=unit)


def read_run(tables: Tables, store: str) -> RunFacts:
    """The facts of one stored run; a table without rows is a fact too."""
    run = tables.frame("run").row(0, named=True)
    steps, breakdown = tables.frame("step"), tables.frame("breakdown")
    job = None if breakdown.is_empty() else summarise(steps, breakdown, tables.frame("rank"), str(run["step_source"]))
    logged = _logged(tables)
    step_ns, used, error, measured = _step_time(job, steps, logged)
    ranks = _ranks(job, breakdown)
    seen = tables.query("SELECT rank FROM rank WHERE rank >= 0 ORDER BY rank").get_column("rank").to_list()
    return RunFacts(
        name=str(run["name"]), store=store, world_size=run["world_size"], ranks_seen=tuple(seen), start_ns=run["start_ns"],
        step_ns=step_ns, steps_used=used, error=error, measured_from=measured, work=_work(logged, run["world_size"]),
        parts=_median_view(ranks), critical=_critical_view(ranks), ranks=ranks, kernels=_kernels(tables), collectives=_collectives(tables),
        comm_bytes=_comm_bytes(tables), transports=_transports(tables), settings=_settings(tables, run),
    )  # fmt: skip


def _step_time(
    job: JobSummary | None, steps: pl.DataFrame, logged: pl.DataFrame
) -> tuple[float | None, int, float, str]:
    """Median step of the traces; else of the training log."""
    if job is not None and job.steps_used and job.step_ns:
        per_step = (
            steps.filter(pl.col("label") == "normal").group_by("step").agg(pl.col("step_ns").median()).sort("step")
        )
        error = median_error(per_step.get_column("step_ns").drop_nulls().to_numpy().astype(float))
        return float(job.step_ns), job.steps_used, UNKNOWN_ERROR if error is None else error, "steps of the traces"
    times = logged.get_column("step_time_ns").drop_nulls().to_numpy().astype(float)
    if len(times):
        error = median_error(times)
        return (
            float(np.median(times)),
            len(times),
            UNKNOWN_ERROR if error is None else error,
            "steps of the training log",
        )
    return None, 0, UNKNOWN_ERROR, "nothing"


def _logged(tables: Tables) -> pl.DataFrame:
    """Logged steps after the first few, of the lowest rank that logs step times."""
    frame = tables.query(
        "SELECT step, any_value(step_time_ns ORDER BY coalesce(rank, -1), source) AS step_time_ns, "
        "any_value(throughput ORDER BY coalesce(rank, -1), source) AS throughput, "
        "any_value(throughput_unit ORDER BY coalesce(rank, -1), source) AS unit FROM training_log "
        "WHERE restart = 0 OR restart IS NULL GROUP BY step ORDER BY step"
    )
    frame = frame.filter(pl.col("step_time_ns").is_null() | (pl.col("step_time_ns") > 0))
    return frame.slice(SETTLE_STEPS) if frame.height > 3 * SETTLE_STEPS else frame


def _work(logged: pl.DataFrame, world: int | None) -> Work | None:
    """Work of one step, from throughput times step time of the same logged lines."""
    rows = logged.drop_nulls(["step_time_ns", "throughput", "unit"])
    if rows.is_empty():
        return None
    unit = str(rows.get_column("unit")[0])
    per_device = unit.endswith(_GPU_UNITS)
    if not unit.startswith(("tokens", "samples")) or (per_device and not world):
        return None
    middle = float(
        np.median(rows.get_column("throughput").to_numpy() * rows.get_column("step_time_ns").to_numpy() / 1e9)
    )
    return Work(middle * (world or 1) if per_device else middle, unit.split("/")[0]) if middle > 0 else None


def _ranks(job: JobSummary | None, breakdown: pl.DataFrame) -> pl.DataFrame:
    """Parts of the steps used, one row a rank and step, with the rank's host."""
    columns = ["rank", "step", *PARTS, "local_work_ns"]
    if job is None:
        return breakdown.select(columns).clear().with_columns(pl.lit(None, pl.String).alias("host"))
    hosts = job.per_rank.select("rank", "host")
    columns += [name for name in LOCAL_PARTS if name not in columns and name in job.parts.columns]
    return job.parts.select(columns).join(hosts, on="rank", how="left").sort("rank", "step")


def _median_view(ranks: pl.DataFrame) -> pl.DataFrame:
    """Each part's median over the ranks, one row a step."""
    return ranks.group_by("step").agg(pl.col(part).median() for part in PARTS).sort("step")


def _critical_view(ranks: pl.DataFrame) -> pl.DataFrame:
    """The parts of the rank that waited least in each step: what sets the pace; empty where waits are unknown."""
    known = ranks.filter(pl.col("exposed_wait_ns").is_not_null()).sort("step", "exposed_wait_ns", "rank")
    return known.group_by("step", maintain_order=True).agg(
        pl.col("rank").first(), *(pl.col(part).first() for part in PARTS)
    )


_KERNELS = """
WITH one AS (
  SELECT k.rank, k.step, k.signature, any_value(k.name ORDER BY k.name) AS name, any_value(k.class ORDER BY k.class) AS class,
         sum(k.total_ns)::DOUBLE AS total_ns, sum(k.count)::DOUBLE AS count
  FROM kernel_stat AS k JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND k.class <> 'comm' GROUP BY k.rank, k.step, k.signature)
SELECT rank, signature, any_value(name ORDER BY name) AS name, any_value(class ORDER BY class) AS class, median(total_ns) AS total_ns,
       median(count) AS count, mad(total_ns) AS mad_ns, count(*) AS steps
FROM one GROUP BY rank, signature ORDER BY rank, signature
"""


def _kernels(tables: Tables) -> pl.DataFrame:
    """Time per step of every signature on every rank; communication kernels stand with the collectives."""
    return tables.query(_KERNELS)


_COLLECTIVES = """
SELECT c.collective, g.size AS group_size, g.tier, c.msg_bytes, median(c.transfer_ns) AS transfer_ns, mad(c.transfer_ns) AS mad_ns,
       median(c.wait_ns / c.members) AS wait_ns, count(*)::DOUBLE / nullif(count(DISTINCT c.group_id) * count(DISTINCT c.step), 0) AS calls,
       count(c.transfer_ns) AS seen
FROM collective AS c LEFT JOIN process_group AS g USING (group_id) WHERE c.step IS NOT NULL
GROUP BY c.collective, g.size, g.tier, c.msg_bytes ORDER BY c.collective, g.size, g.tier, c.msg_bytes
"""


def _collectives(tables: Tables) -> pl.DataFrame:
    """Transfer and mean wait per kind, group size and message size; ``calls`` per group and step."""
    return tables.query(_COLLECTIVES)


def _comm_bytes(tables: Tables) -> float | None:
    """Bytes that one rank gives to collectives in one step: the model's signature on the network."""
    value = tables.query(
        "WITH one AS (SELECT c.rank, c.step, sum(c.msg_bytes) AS bytes FROM comm_call AS c JOIN step AS s USING (rank, step) "
        "WHERE s.label = 'normal' GROUP BY c.rank, c.step) SELECT median(bytes) AS bytes FROM one"
    ).item()
    return None if value is None else float(value)


def _transports(tables: Tables) -> dict[str, float]:
    """Connections by transport; those of networks with and without GPUDirect apart."""
    rows = tables.query(
        "SELECT CASE WHEN family = 'NET' THEN 'NET/' || coalesce(network, '?') || CASE WHEN gdr THEN '/GDR' ELSE '' END "
        "ELSE coalesce(family, kind) END AS transport, sum(lines)::DOUBLE AS lines FROM channel GROUP BY 1 ORDER BY 1"
    )
    return {str(name): float(lines) for name, lines in rows.iter_rows() if name is not None}


def _settings(tables: Tables, run: dict[str, Any]) -> dict[str, str]:
    """Everything stated about how the job ran, as text."""
    found = {
        "backend": run["backend"],
        "devices": ", ".join(sorted(run["device_names"] or [])) or None,
        "parallelism": None if run["parallelism"] is None else _parallelism(run["parallelism"]),
        "hosts": ", ".join(tables.query("SELECT host FROM host ORDER BY host").get_column("host").to_list()) or None,
        "steps from": run["step_source"],
    }
    for label, column in (
        ("NCCL version", "version"),
        ("driver version", "driver_version"),
        ("network", "network"),
        ("network plugin", "plugin"),
    ):
        values = tables.query(
            f"SELECT DISTINCT {column}::VARCHAR AS v FROM comm_process WHERE {column} IS NOT NULL ORDER BY 1"
        )
        found[label] = ", ".join(values.get_column("v").to_list()) or None
    env = tables.query(
        "SELECT name, string_agg(DISTINCT value, ', ' ORDER BY value) AS value FROM comm_env GROUP BY name ORDER BY name"
    )
    found |= {f"env {name}": value for name, value in env.iter_rows()}
    return {name: str(value) for name, value in found.items() if value is not None}


def _parallelism(text: str) -> str:
    return " x ".join(f"{key} {size}" for key, size in sorted(msgspec.json.decode(text).items()))
