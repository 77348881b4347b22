"""The reduce step: what only all ranks together can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.cross.hidden_waits import (
    MIN_SHARE,
    MIN_SPREAD_NS,
    Kernels,
    as_collectives,
    hidden_waits,
    without_hidden,
)
from diagnose.analysis.cross.network import network_tiers, place_tiers
from diagnose.analysis.cross.oversubscription import oversubscription
from diagnose.analysis.cross.rank_work import rank_work
from diagnose.analysis.cross.received import imbalance, received_ratio
from diagnose.analysis.cross.references import tier_references
from diagnose.analysis.cross.roles import pipeline_stages
from diagnose.analysis.cross.schedule import build_schedule, chosen_steps
from diagnose.analysis.cross.stops import profiled_stops, regular_stops
from diagnose.analysis.cross.suspects import find_suspects, world_suspects
from diagnose.analysis.cross.tails import tail_suspects
from diagnose.analysis.cross.waits import MATCHED_RATIO
from diagnose.analysis.cross.what_if import Inputs, repriced, what_if
from diagnose.analysis.cross.who_waits import who_waits
from diagnose.analysis.step_labels import label_steps
from diagnose.analysis.training_log import reference_log
from diagnose.pipeline.matching import match_ranks

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
        hidden = _hidden(writer)
        _judge_ranks(writer, world, matched, hidden)
        _judge_network(writer, members, config, matched)
        _price(writer, hidden)


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


_MAX_KERNELS = 4_000_000
"""More kernels than this in the normal steps are judged by their totals only: reading them all costs gigabytes."""


_KERNELS = "FROM kernel AS k JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND k.rank >= 0 AND k.class = 'compute'"


def _are_many(writer: StoreWriter) -> bool:
    return int(writer.query(f"SELECT count(*) {_KERNELS}").item()) > _MAX_KERNELS


_LONG_SQL = f"""
WITH each AS (
  SELECT k.name, k.rank, count(*) AS times, count_if(k.dur_ns >= $spread_ns) AS long, sum(k.dur_ns)::DOUBLE AS total
  {_KERNELS} GROUP BY k.name, k.rank
)
SELECT list(name) FILTER (WHERE ranks > 1 AND 2 * long >= times AND total >= $share * busy) AS names, any_value(busy) AS busy_ns
FROM (SELECT name, count(*) AS ranks, sum(long) AS long, min(times) AS times, sum(total) AS total, sum(sum(total)) OVER () AS busy FROM each GROUP BY name)
"""
"""Kernels that can wait as long as matters: in half of the instances, of which there are as many as the rank with the
fewest executions has, one rank at least takes that long.
"""


def _candidates(writer: StoreWriter) -> Kernels:
    """What may hold waiting without the name of a communication; nothing where kernels were not kept or are too many."""
    none = pl.DataFrame(
        schema={
            "rank": pl.Int32,
            "step": pl.Int64,
            "stream": pl.Int64,
            "name": pl.String,
            "start_ns": pl.Int64,
            "dur_ns": pl.Int64,
        }
    )
    names, busy_ns = writer.query(_LONG_SQL, {"spread_ns": MIN_SPREAD_NS, "share": MIN_SHARE}).row(0)
    if not names or _are_many(writer):
        return Kernels(none, (), 0.0)
    ranks = writer.query(f"SELECT DISTINCT k.rank {_KERNELS} ORDER BY k.rank").get_column("rank").to_list()
    columns = "k.rank, k.step, k.stream, k.name, k.start_ns, k.dur_ns"
    frame = writer.query(
        f"SELECT {columns} {_KERNELS} AND list_contains($names, k.name) ORDER BY ALL", {"names": names}
    )
    return Kernels(frame, ranks, busy_ns)


def _hidden(writer: StoreWriter) -> pl.DataFrame:
    """Waiting inside kernels that are no communication by name; the breakdown without it."""
    candidates = _candidates(writer)
    shift = writer.query(
        "SELECT c.rank, median(m.start_ns - c.start_ns)::BIGINT FROM comm_call AS c JOIN collective_rank AS m USING (rank, call) "
        f"{'WHERE false ' if candidates.frame.is_empty() else ''}GROUP BY c.rank"
    )
    groups = writer.query("SELECT DISTINCT ranks FROM process_group WHERE len(ranks) > 1").get_column("ranks").to_list()
    hidden = hidden_waits(candidates, dict(shift.iter_rows()), groups)
    if not hidden.is_empty():
        writer.replace("breakdown", without_hidden(writer.query("SELECT * FROM breakdown ORDER BY rank, step"), hidden))
    return hidden


_TYPICAL_KERNELS_SQL = f"""
WITH mean AS (SELECT k.name, avg(k.dur_ns) AS typical_ns {_KERNELS} AND NOT list_contains($without, k.name) GROUP BY k.name)
SELECT k.rank, k.step, k.start_ns, k.dur_ns, m.typical_ns
FROM kernel AS k JOIN step AS s USING (rank, step) JOIN mean AS m USING (name)
WHERE s.label = 'normal' AND k.rank >= 0 AND k.class = 'compute' ORDER BY ALL
"""


def _kernels(writer: StoreWriter, without: list[str]) -> pl.DataFrame | None:
    """Compute kernels of normal steps with the mean duration of their name, but those of these names."""
    return None if _are_many(writer) else writer.query(_TYPICAL_KERNELS_SQL, {"without": without})


def _price(writer: StoreWriter, hidden: pl.DataFrame) -> None:
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


_WHOLE = """
SELECT c.*, e.exposed_transfer_ns FROM collective AS c
JOIN (SELECT instance, avg(exposed_transfer_ns) AS exposed_transfer_ns FROM collective_rank GROUP BY instance) AS e USING (instance)
WHERE c.transfer_ns IS NOT NULL AND c.step IS NOT NULL ORDER BY c.instance
"""

_PAIRS = """
SELECT r.instance, list(r.rank ORDER BY r.rank) AS ranks FROM collective_rank AS r JOIN collective AS c USING (instance)
WHERE c.transfer_ns IS NOT NULL AND c.step IS NOT NULL
AND (c.match_method = 'p2p' OR c.group_id IN (SELECT group_id FROM process_group WHERE ranks IS NULL))
GROUP BY r.instance ORDER BY r.instance
"""

_OWN_WAITS = """
SELECT r.rank, sum(r.wait_ns)::BIGINT AS wait_ns, count(*) AS calls FROM collective_rank AS r JOIN collective AS c USING (instance)
WHERE c.wait_ns IS NOT NULL AND c.step IS NOT NULL GROUP BY r.rank
"""

_CAUSED_WAITS = """
SELECT last_rank AS rank, sum(wait_ns)::BIGINT AS wait_ns, count(*) AS last FROM collective WHERE last_rank IS NOT NULL AND step IS NOT NULL GROUP BY last_rank
"""


def _judge_network(writer: StoreWriter, members: Sequence[Member], config: Config, calls: pl.DataFrame) -> None:
    """Tiers, their cost models, and who makes groups slow."""
    hosts = {member.rank: member.host for member in members if member.rank >= 0}
    whole = writer.query(_WHOLE)
    if whole.is_empty():
        return
    pairs = writer.query(_PAIRS)
    unique = pairs.select("ranks").unique(maintain_order=True).with_row_index("pair")
    pairs = pairs.join(unique, on="ranks").select("instance", (-1 - pl.col("pair").cast(pl.Int64)).alias("pair"))
    whole = (
        whole.join(pairs, on="instance", how="left", maintain_order="left")
        .with_columns(pl.coalesce("pair", "group_id").alias("place"))
        .drop("pair")
    )
    groups = writer.query("SELECT group_id AS place, ranks FROM process_group WHERE ranks IS NOT NULL")
    sets = pl.concat([groups, unique.select((-1 - pl.col("pair").cast(pl.Int64)).alias("place"), "ranks")])
    places = place_tiers(
        sets.filter(pl.col("place").is_in(whole.get_column("place").unique().to_list())).sort("place"),
        hosts,
        config.topology,
    )
    instances = whole.join(places.select("place", "nodes", "tier"), on="place", how="left", maintain_order="left")
    if calls.get_column("handshake").any():
        ours = writer.query("SELECT instance, rank, call FROM collective_rank").join(
            calls.filter("handshake").select("rank", "call"), on=["rank", "call"]
        )
        instances = instances.join(ours.select("instance").unique(), on="instance", how="anti", maintain_order="left")
    references = tier_references(config, writer.query("SELECT * FROM bandwidth_reference"))
    writer.insert("network_tier", network_tiers(instances, references, len(hosts)))
    crossing = instances.filter(pl.col("tier").is_not_null() & (pl.col("tier") != "intra-node"))
    suspects = find_suspects(instances, places, hosts)
    if suspects.filter(pl.col("tier") != "intra-node").is_empty():  # who is slow all the time has the slow outliers too
        suspects = pl.concat([suspects, tail_suspects(crossing, places, hosts)])
    if suspects.is_empty() and len(crossing) and crossing.get_column("group_id").n_unique() == 1:
        suspects = world_suspects(sorted({host for host in hosts.values() if host is not None}))
    writer.insert("network_suspect", suspects)
    ratio = oversubscription(instances)
    if ratio is not None:
        names = [f"oversubscription_{field}" for field in ratio._fields]
        writer.insert("job_stat", pl.DataFrame({"name": names, "value": list(ratio)}))


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
