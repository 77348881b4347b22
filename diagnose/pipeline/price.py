"""Replaying the schedule of a run as it was and as it could be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.cross.hidden_waits import as_collectives
from diagnose.analysis.cross.schedule import build_schedule, chosen_steps
from diagnose.analysis.cross.waits import MATCHED_RATIO
from diagnose.analysis.cross.what_if import Inputs, repriced, what_if
from diagnose.pipeline.hidden import KERNELS, are_many

if TYPE_CHECKING:
    from diagnose.store.writer import StoreWriter

_TYPICAL_SQL = """
WITH mean AS (SELECT name, sum(total_ns) / sum(count) AS each FROM kernel_stat WHERE class IN ('compute', 'cpu_op') AND step IS NOT NULL GROUP BY name)
SELECT k.rank, k.step, sum(k.count * m.each) AS typical_ns, sum(k.total_ns)::DOUBLE AS actual_ns
FROM kernel_stat AS k JOIN mean AS m USING (name)
WHERE k.class IN ('compute', 'cpu_op') AND k.step IS NOT NULL AND k.rank >= 0
GROUP BY k.rank, k.step ORDER BY k.rank, k.step
"""


_GAPS_SQL = """
SELECT g.rank, g.step, g.start_ns, g.dur_ns, g.cause, g.detail, g.cause_ns FROM host_gap AS g JOIN step AS s USING (rank, step)
WHERE s.label = 'normal' AND g.rank >= 0 AND (g.cause IN ('input', 'host') OR g.detail IN ('gc', 'allocator')) ORDER BY g.rank, g.start_ns
"""


_TYPICAL_KERNELS_SQL = f"""
WITH mean AS (SELECT k.name, avg(k.dur_ns) AS typical_ns {KERNELS} AND NOT list_contains($without, k.name) GROUP BY k.name)
SELECT k.rank, k.step, k.start_ns, k.dur_ns, m.typical_ns
FROM kernel AS k JOIN step AS s USING (rank, step) JOIN mean AS m USING (name)
WHERE s.label = 'normal' AND k.rank >= 0 AND k.class = 'compute' ORDER BY ALL
"""


def _kernels(writer: StoreWriter, without: list[str]) -> pl.DataFrame | None:
    """Compute kernels of normal steps with the mean duration of their name, but those of these names."""
    return None if are_many(writer) else writer.query(_TYPICAL_KERNELS_SQL, {"without": without})


def price(writer: StoreWriter, hidden: pl.DataFrame) -> None:
    """Replay the schedule as it was and as it could be."""
    steps = writer.query("SELECT rank, step, start_ns, end_ns, step_ns FROM step WHERE label = 'normal' AND rank >= 0")
    count = writer.query(
        "SELECT count(*) FROM comm_call JOIN step USING (rank, step) WHERE label = 'normal' AND rank >= 0"
    ).item()
    chosen = ", ".join(map(str, chosen_steps(steps, count)))
    if not chosen:
        return
    median = round(float(steps.get_column("step_ns").median() or 0))  # type: ignore[arg-type]
    steps = steps.filter(pl.col("step").is_in([int(one) for one in chosen.split(", ")]))
    calls = writer.query(
        "SELECT rank, call, step, stream, start_ns, dur_ns, ready_ns, collective, is_p2p, exposed_from_ns, exposed_to_ns, exposed_late_ns FROM comm_call "
        f"WHERE rank >= 0 AND step IN ({chosen}) ORDER BY rank, call"
    )
    members = writer.query(
        f"SELECT instance, rank, call, start_ns FROM collective_rank WHERE step IN ({chosen}) ORDER BY instance, rank"
    )
    collective = writer.query(
        "SELECT instance, c.collective, c.members, c.msg_bytes, c.transfer_ns, median(c.transfer_ns) OVER (PARTITION BY c.collective, c.members, c.msg_bytes) AS "
        "median_ns, t.alpha_ns, coalesce(t.alpha_ns, t.latency_ratio * avg(c.transfer_ns) OVER (PARTITION BY c.collective, c.members)) AS fixed_ns FROM collective AS c "
        "LEFT JOIN (SELECT collective, group_size, max(alpha_ns) AS alpha_ns, max(latency_ratio) AS latency_ratio FROM network_tier GROUP BY ALL) AS t "
        "ON t.collective = c.collective AND t.group_size = c.members WHERE c.transfer_ns IS NOT NULL"
    )
    if members.is_empty() or collective.is_empty():
        return
    if not hidden.is_empty():  # they hold ranks up as collectives do
        more = as_collectives(hidden)
        calls, members, collective = (
            pl.concat([ours, theirs.select(ours.columns)], how="vertical_relaxed")
            for ours, theirs in ((calls, hidden), (members, more.members), (collective, more.collective))
        )
    kernels = _kernels(writer, hidden.get_column("name").unique().to_list())
    schedule = build_schedule(calls, members, collective, steps, kernels)
    if schedule is None:
        return
    parts = writer.query(
        "SELECT b.* FROM breakdown AS b JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND b.rank >= 0 ORDER BY rank, step"
    )
    inputs = Inputs(
        parts, writer.query(_TYPICAL_SQL), writer.query("SELECT * FROM rank_work ORDER BY rank"), writer.query(_GAPS_SQL), schedule.alpha_ns, schedule.fixed_ns, schedule.median_ns, median,
    )  # fmt: skip
    writer.insert("job_stat", pl.DataFrame({"name": ["replay_matched_ratio"], "value": [schedule.matched_ratio]}))
    if schedule.matched_ratio < MATCHED_RATIO:  # ranks whose peers are not here run free of them
        return
    rows, explained = what_if(schedule, inputs)
    writer.insert("what_if", rows)
    writer.replace("rank_work", repriced(schedule, inputs, rows))
    writer.insert("job_stat", pl.DataFrame({"name": ["replay_explained_ratio"], "value": [explained]}))
