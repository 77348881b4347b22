"""The reduce step: what only all ranks together can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.cross.rank_work import rank_work
from diagnose.analysis.cross.received import imbalance, received_ratio
from diagnose.analysis.cross.roles import pipeline_stages
from diagnose.analysis.cross.stops import profiled_stops, regular_stops
from diagnose.analysis.cross.who_waits import who_waits
from diagnose.analysis.step_labels import label_steps
from diagnose.analysis.training_log import reference_log
from diagnose.pipeline.hidden import find_hidden
from diagnose.pipeline.judge_network import judge_network
from diagnose.pipeline.matching import match_ranks
from diagnose.pipeline.price import price

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.config import Config
    from diagnose.pipeline.identify import Member
    from diagnose.store.writer import StoreWriter


def analyse_across(writer: StoreWriter, members: Sequence[Member], config: Config) -> None:
    """Label the steps, then match, align, divide and judge across ranks."""
    if not members:
        return
    steps = writer.query("SELECT * FROM step ORDER BY rank, step")
    if not steps.is_empty():
        steps = label_steps(
            steps,
            writer.query("SELECT * FROM breakdown WHERE step >= 0"),
            writer.query("SELECT rank, lost_capture FROM rank"),
        )
        writer.replace("step", steps)
    world = sorted(member.rank for member in members if member.rank >= 0)
    matched = match_ranks(writer, members, world)
    if len(world) > 1:
        hidden = find_hidden(writer)
        _judge_ranks(writer, world, matched, hidden)
        judge_network(writer, members, config, matched)
        price(writer, hidden)


_OWN_WAITS = """
SELECT r.rank, sum(r.wait_ns)::BIGINT AS wait_ns, count(*) AS calls FROM collective_rank AS r JOIN collective AS c USING (instance)
WHERE c.wait_ns IS NOT NULL AND c.step IS NOT NULL GROUP BY r.rank
"""

_CAUSED_WAITS = """
SELECT last_rank AS rank, sum(wait_ns)::BIGINT AS wait_ns, count(*) AS last FROM collective WHERE last_rank IS NOT NULL AND step IS NOT NULL GROUP BY last_rank
"""


def _judge_ranks(writer: StoreWriter, world: Sequence[int], calls: pl.DataFrame, hidden: pl.DataFrame) -> None:
    """Local work against peers, and who waits for whom."""
    roles = pipeline_stages(calls, world)
    parts = writer.query(
        "SELECT b.* FROM breakdown AS b JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND b.rank >= 0 ORDER BY rank, step"
    )
    stats = writer.query(
        "SELECT k.rank, k.class, k.name, k.signature, sum(k.count)::BIGINT AS count, sum(k.total_ns)::BIGINT AS total_ns FROM kernel_stat AS k "
        "JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND k.rank >= 0 GROUP BY ALL ORDER BY ALL"
    )
    stats = stats.filter(
        ~pl.col("name").is_in(hidden.get_column("name").unique().to_list())
    )  # as long as their peers let them
    names = writer.query("SELECT rank, device_name, has_device_work FROM rank WHERE rank >= 0")
    devices = dict(names.select("rank", "device_name").iter_rows())
    stops = profiled_stops(
        regular_stops(reference_log(writer)), writer.query("SELECT step, host_start_ns, host_end_ns FROM step")
    )
    received = received_ratio(calls)
    judged = rank_work(
        parts, stats, roles, devices, has_device=bool(names.get_column("has_device_work").any()), stops=stops,
        received=received,
    )  # fmt: skip
    writer.insert("rank_work", judged.table)
    steps = parts.get_column("step").n_unique() if len(parts) else 0
    writer.insert("who_waits", who_waits(writer.query(_OWN_WAITS), writer.query(_CAUSED_WAITS), steps))
    stages = len(set(roles.values()))
    numbers = {"detectable_slowdown_ratio": judged.detectable_ratio, "pipeline_stages": float(stages)}
    uneven = imbalance(received)
    if uneven is not None:
        numbers["all_to_all_imbalance_ratio"] = uneven
    writer.insert(
        "job_stat",
        pl.DataFrame(
            {"name": list(numbers), "value": list(numbers.values())}, schema={"name": pl.String, "value": pl.Float64}
        ),
    )
    table = pl.DataFrame(
        {"rank": list(roles), "role": list(roles.values())}, schema={"rank": pl.Int32, "role": pl.Int32}
    )
    writer.replace("rank", writer.query("SELECT * FROM rank").drop("role").join(table, on="rank", how="left"))
