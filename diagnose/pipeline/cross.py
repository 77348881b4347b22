"""The reduce step: what only all ranks together can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.cross.clocks import fit_clocks
from diagnose.analysis.cross.exposed import call_exposure, divide_exposed, mark_handshakes
from diagnose.analysis.cross.groups import GroupConfig, resolve_groups
from diagnose.analysis.cross.hidden_waits import as_collectives, hidden_waits, without_hidden
from diagnose.analysis.cross.match import match_calls
from diagnose.analysis.cross.network import instance_tiers, network_tiers
from diagnose.analysis.cross.oversubscription import oversubscription
from diagnose.analysis.cross.rank_work import rank_work
from diagnose.analysis.cross.received import imbalance, received_ratio
from diagnose.analysis.cross.references import tier_references
from diagnose.analysis.cross.replay import build_schedule
from diagnose.analysis.cross.roles import pipeline_stages
from diagnose.analysis.cross.stops import profiled_stops, regular_stops
from diagnose.analysis.cross.suspects import find_suspects, world_suspects
from diagnose.analysis.cross.tails import tail_suspects
from diagnose.analysis.cross.waits import MATCHED_RATIO, split_waits
from diagnose.analysis.cross.what_if import Inputs, what_if
from diagnose.analysis.cross.who_waits import who_waits
from diagnose.analysis.step_labels import label_steps
from diagnose.analysis.training_log import reference_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.config import Config
    from diagnose.pipeline.identify import Member
    from diagnose.pipeline.result import Group
    from diagnose.store.writer import StoreWriter

_CALL_COLUMNS = (
    "rank, call, step, stream, start_ns, dur_ns, issue_ns, exposed_ns, exposed_from_ns, exposed_to_ns, exposed_late_ns, collective, group_name, group_desc, "
    "group_ranks, group_size, seq, is_p2p, peer, dtype, in_elems, out_elems, msg_bytes"
)


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
    matched = _match(writer, members, world)
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
SELECT g.rank, g.step, g.start_ns, g.dur_ns, g.cause, g.detail FROM host_gap AS g JOIN step AS s USING (rank, step)
WHERE s.label = 'normal' AND g.rank >= 0 AND (g.cause IN ('input', 'host') OR g.detail IN ('gc', 'allocator')) ORDER BY g.rank, g.start_ns
"""


_MAX_KERNELS = 4_000_000
"""More kernels than this in the normal steps are judged by their totals only: reading them all costs gigabytes."""


def _kernels(writer: StoreWriter, columns: str) -> pl.DataFrame:
    """Compute kernels of normal steps; none where they were not kept or are too many."""
    source = "FROM kernel AS k JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND k.rank >= 0 AND k.class = 'compute'"
    many = int(writer.query(f"SELECT count(*) {source}").item()) > _MAX_KERNELS
    return writer.query(f"SELECT {columns} {source}{' AND false' if many else ''} ORDER BY ALL")


def _hidden(writer: StoreWriter) -> pl.DataFrame:
    """Waiting inside kernels that are no communication by name; the breakdown without it."""
    shift = writer.query(
        "SELECT c.rank, median(m.start_ns - c.start_ns)::BIGINT FROM comm_call AS c JOIN collective_rank AS m USING (rank, call) GROUP BY c.rank"
    )
    groups = writer.query("SELECT DISTINCT ranks FROM process_group WHERE len(ranks) > 1").get_column("ranks").to_list()
    hidden = hidden_waits(
        _kernels(writer, "k.rank, k.step, k.stream, k.name, k.start_ns, k.dur_ns"), dict(shift.iter_rows()), groups
    )
    if not hidden.is_empty():
        writer.replace("breakdown", without_hidden(writer.query("SELECT * FROM breakdown ORDER BY rank, step"), hidden))
    return hidden


def _price(writer: StoreWriter, hidden: pl.DataFrame) -> None:
    """Replay the schedule as it was and as it could be."""
    calls = writer.query(
        "SELECT rank, call, step, stream, start_ns, dur_ns, collective, is_p2p, exposed_from_ns, exposed_to_ns, exposed_late_ns FROM comm_call WHERE rank >= 0"
    )
    members = writer.query("SELECT instance, rank, call, start_ns FROM collective_rank")
    collective = writer.query(
        "SELECT instance, c.collective, c.members, c.msg_bytes, c.transfer_ns, median(c.transfer_ns) OVER (PARTITION BY c.collective, c.members, c.msg_bytes) AS "
        "median_ns, t.alpha_ns FROM collective AS c LEFT JOIN (SELECT collective, group_size, max(alpha_ns) AS alpha_ns FROM network_tier GROUP BY ALL) AS t "
        "ON t.collective = c.collective AND t.group_size = c.members WHERE c.transfer_ns IS NOT NULL"
    )
    steps = writer.query("SELECT rank, step, start_ns, end_ns, step_ns FROM step WHERE label = 'normal' AND rank >= 0")
    if members.is_empty() or steps.is_empty() or collective.is_empty():
        return
    if not hidden.is_empty():  # they hold ranks up as collectives do
        more = as_collectives(hidden)
        calls, members, collective = (
            pl.concat([ours, theirs.select(ours.columns)], how="vertical_relaxed")
            for ours, theirs in ((calls, hidden), (members, more.members), (collective, more.collective))
        )
    kernels = _kernels(writer, "k.rank, k.step, k.name, k.start_ns, k.dur_ns")
    kernels = kernels.filter(~pl.col("name").is_in(hidden.get_column("name").unique().to_list())).with_columns(
        pl.col("dur_ns").mean().over("name").alias("typical_ns")
    )
    schedule = build_schedule(calls, members, collective, steps, kernels)
    if schedule is None:
        return
    parts = writer.query(
        "SELECT b.* FROM breakdown AS b JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND b.rank >= 0 ORDER BY rank, step"
    )
    inputs = Inputs(
        parts, writer.query(_TYPICAL_SQL), writer.query("SELECT * FROM rank_work ORDER BY rank"), writer.query(_GAPS_SQL), schedule.alpha_ns, schedule.median_ns,
        round(float(steps.get_column("step_ns").median() or 0)),  # type: ignore[arg-type]
    )  # fmt: skip
    rows, explained = what_if(schedule, inputs)
    writer.insert("what_if", rows)
    writer.insert("job_stat", pl.DataFrame({"name": ["replay_explained_ratio"], "value": [explained]}))


def _judge_network(writer: StoreWriter, members: Sequence[Member], config: Config, calls: pl.DataFrame) -> None:
    """Tiers, their cost models, and who makes groups slow."""
    hosts = {member.rank: member.host for member in members if member.rank >= 0}
    ranks = writer.query("SELECT instance, rank, call, exposed_transfer_ns FROM collective_rank").join(
        calls.filter("handshake").select("rank", "call"), on=["rank", "call"], how="anti"
    )
    if ranks.is_empty():
        return
    tiers = instance_tiers(ranks, hosts, config.topology)
    exposed = ranks.group_by("instance").agg(pl.col("exposed_transfer_ns").mean())
    whole = writer.query(
        "SELECT * FROM collective WHERE transfer_ns IS NOT NULL AND step IS NOT NULL ORDER BY instance"
    )
    instances = whole.join(tiers, on="instance").join(exposed, on="instance")
    references = tier_references(config, writer.query("SELECT * FROM bandwidth_reference"))
    writer.insert("network_tier", network_tiers(instances, references, len(hosts)))
    crossing = instances.filter(pl.col("tier").is_not_null() & (pl.col("tier") != "intra-node"))
    suspects = pl.concat([find_suspects(instances, hosts), tail_suspects(crossing, hosts)])
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
    collective = writer.query("SELECT * FROM collective WHERE step IS NOT NULL")
    writer.insert("who_waits", who_waits(collective, writer.query("SELECT * FROM collective_rank"), steps))
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


def _match(writer: StoreWriter, members: Sequence[Member], world: Sequence[int]) -> pl.DataFrame:
    """Groups, instances, clocks, waits, and the split of exposed communication; returns the calls with their groups."""
    calls = mark_handshakes(writer.query(f"SELECT {_CALL_COLUMNS} FROM comm_call ORDER BY rank, call"))
    hosts = {member.rank: member.host for member in members if member.rank >= 0}
    config = {
        member.rank: [GroupConfig(*_fields(group)) for group in member.result.trace.groups]
        for member in members
        if member.rank >= 0 and member.result.trace
    }
    resolved = resolve_groups(calls, config, hosts, world)
    matched = match_calls(resolved.calls, resolved.groups, config, hosts, world)
    writer.insert("process_group", matched.groups)
    clock_of = {rank: host if host is not None else f"rank{rank}" for rank, host in hosts.items()}
    clocks = fit_clocks(matched.members, clock_of)
    writer.insert("clock", clocks.table)
    believed = pl.DataFrame(schema={"rank": pl.Int32, "call": pl.Int64, "wait_ns": pl.Int64, "certain": pl.Boolean})
    if not matched.members.is_empty():
        waits = split_waits(matched.members, matched.calls, clocks, clock_of)
        writer.insert("collective", waits.collective.drop("is_p2p"))
        exposure = call_exposure(calls, waits.collective_rank)
        writer.insert("collective_rank", waits.collective_rank.join(exposure, on=["instance", "rank"], how="left"))
        sure = waits.coverage.filter(pl.col("matched_ratio") >= MATCHED_RATIO).select(
            "group_id", "is_p2p", sure=pl.lit(value=True)
        )
        whole = pl.col("transfer_ns").is_not_null() & pl.col("sure").fill_null(value=False)
        instances = waits.collective.join(sure, on=["group_id", "is_p2p"], how="left").select(
            "instance", whole.alias("certain")
        )
        believed = waits.collective_rank.join(instances, on="instance").select("rank", "call", "wait_ns", "certain")
    breakdown = writer.query("SELECT * FROM breakdown ORDER BY rank, step")
    alone = matched.groups.filter(pl.col("size") == 1).get_column("group_id").to_list()
    own = matched.calls.filter(pl.col("group_id").is_in(alone)).select(
        "rank", "call", pl.lit(0, pl.Int64).alias("wait_ns"), pl.lit(value=True).alias("certain")
    )
    divided = divide_exposed(
        breakdown.drop(
            "exposed_wait_ns", "exposed_transfer_ns", "exposed_transfer_max_ns", "late_comm_ns", "blocking_transfer_ns"
        ),
        calls,
        pl.concat([believed, own]),
    )
    writer.replace("breakdown", divided)
    return matched.calls


def _fields(group: Group) -> tuple[str, str | None, tuple[int, ...] | None, int | None]:
    return group.name, group.description, group.ranks, group.size
