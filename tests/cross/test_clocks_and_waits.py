"""Clocks from common ends, waiting apart from transfer, and that no clock changes what is said."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from cross_support import calls, job

from diagnose.analysis.cross import clocks as clock_module
from diagnose.analysis.cross.clocks import fit_clocks
from diagnose.analysis.cross.exposed import mark_handshakes
from diagnose.analysis.cross.groups import resolve_groups
from diagnose.analysis.cross.instances import gather
from diagnose.analysis.cross.match import match_calls
from diagnose.analysis.cross.waits import split_waits

WORLD = range(8)
HOSTS = {rank: f"node{rank // 2}" for rank in WORLD}


def analysed(table, hosts=None):
    found, waits, _ = analysed_by_rank(table, hosts)
    return found, waits


def analysed_by_rank(table, hosts=None):
    hosts = hosts or HOSTS
    world = sorted(hosts)
    resolved = resolve_groups(mark_handshakes(table.with_row_index("row")), {}, hosts, world)
    matched = match_calls(resolved.calls, resolved.groups, {}, hosts, world)
    found = fit_clocks(matched.members, hosts)
    instances = gather(matched.members, matched.calls)
    waits = split_waits(instances, found, hosts)
    return found, waits, pl.DataFrame({"rank": instances.rank, "wait_ns": waits.wait_ns})


@pytest.mark.parametrize("dense", [True, False])
def test_offsets_of_hosts_are_found_to_microseconds(monkeypatch, dense):
    if not dense:
        monkeypatch.setattr(clock_module, "_DENSE_HOSTS", 0)
    true = {0: 0, 1: 0, 2: 5_000_000, 3: 5_000_000, 4: -7_000_000, 5: -7_000_000, 6: 300_000, 7: 300_000}

    found, _ = analysed(job(8, 30, offset_ns=true))

    for host, rank in (("node1", 2), ("node2", 4), ("node3", 6)):
        assert abs(found.offset[host][0] - true[rank]) < 5_000


def test_drift_is_found_over_seconds():
    table = job(8, 200)
    drift = 50e-6
    later = pl.when(pl.col("rank") >= 6).then(pl.col("start_ns") * drift).otherwise(0).cast(pl.Int64)

    found, _ = analysed(table.with_columns(pl.col("start_ns") + later))

    assert found.offset["node3"][1] * 1e6 == pytest.approx(50, abs=2)


def test_hosts_that_share_no_collective_stay_apart():
    rows = [{"rank": rank, "start_ns": 10 * step, "step": step, "seq": step, "group_name": str(rank // 4), "group_size": 4, "group_ranks": list(range(rank // 4 * 4, rank // 4 * 4 + 4))}
            for step in range(5) for rank in WORLD]  # fmt: skip

    found, _ = analysed(calls(*rows))

    component = dict(found.table.select("host", "component").iter_rows())
    assert component["node0"] == component["node1"] != component["node2"] == component["node3"]


def test_waiting_is_what_lies_above_the_shortest_duration():
    table = job(8, 10, slow=5)

    _, waits, by_member = analysed_by_rank(table)

    assert waits.collective.get_column("last_rank").to_list() == [5] * 20
    shortest = table.group_by("seq").agg(pl.col("dur_ns").min()).sort("seq").get_column("dur_ns").to_list()
    assert waits.collective.sort("seq").get_column("transfer_ns").to_list() == shortest
    by_rank = by_member.group_by("rank").agg(pl.col("wait_ns").sum())
    assert by_rank.filter(pl.col("rank") == 5).get_column("wait_ns").item() == 0


def test_a_straggler_among_many_is_not_taken_for_one_that_left_early():
    hosts = {rank: f"node{rank // 8}" for rank in range(32)}

    _, waits = analysed(job(32, 5, slow=17, factor=1.5), hosts)

    assert waits.collective.get_column("last_rank").unique().to_list() == [17]
    assert waits.collective.get_column("transfer_ns").max() < 1_100_000


def test_one_that_leaves_early_is_no_measure_of_the_transfer():
    hosts = {rank: f"node{rank // 8}" for rank in range(32)}
    table = job(32, 5)
    early = (pl.col("rank") == 3) & (pl.col("seq") == 4)

    _, waits = analysed(
        table.with_columns(pl.when(early).then(pl.col("dur_ns") // 10).otherwise(pl.col("dur_ns")).alias("dur_ns")),
        hosts,
    )

    odd = waits.collective.filter(pl.col("seq") == 4).get_column("transfer_ns").item()
    assert odd == pytest.approx(waits.collective.get_column("transfer_ns").median(), rel=0.05)


@pytest.mark.parametrize("shift", [40_000_000, -3_000_000_000])
def test_the_clock_of_a_host_changes_neither_waits_nor_the_last_one(shift):
    table = job(8, 20, slow=6)
    moved = table.with_columns(
        pl.when(pl.col("rank").is_in([2, 3]))
        .then(pl.col("start_ns") + shift)
        .otherwise(pl.col("start_ns"))
        .alias("start_ns")
    )

    _, before = analysed(table)
    _, after = analysed(moved)

    same = ["seq", "transfer_ns", "wait_ns", "start_skew_ns", "last_rank", "busbw_bytes_per_s"]
    assert before.collective.sort("seq").select(same).equals(after.collective.sort("seq").select(same))
    wire = [frame.collective.sort("seq").get_column("wire_ns").to_numpy() for frame in (before, after)]
    assert np.abs(wire[0] - wire[1]).max() < 20_000


def test_renumbering_the_ranks_renumbers_the_answer_only():
    table = job(8, 10, slow=5)
    swap = {rank: (rank + 3) % 8 for rank in WORLD}
    renamed = table.with_columns(pl.col("rank").replace_strict(swap, return_dtype=pl.Int32))

    _, before = analysed(table)
    _, after = analysed(renamed, {swap[rank]: host for rank, host in HOSTS.items()})

    assert after.collective.get_column("last_rank").unique().to_list() == [swap[5]]
    assert (
        before.collective.sort("seq")
        .get_column("transfer_ns")
        .equals(after.collective.sort("seq").get_column("transfer_ns"))
    )


def test_bytes_of_an_all_gather_whose_trace_has_the_shard_only():
    rows = [
        {"rank": rank, "start_ns": 0, "collective": "all_gather", "msg_bytes": 1000, "group_ranks": list(WORLD)}
        for rank in WORLD
    ]

    _, waits = analysed(calls(*rows))

    assert waits.collective.get_column("msg_bytes").item() == 8000


def test_many_small_groups_do_not_crowd_out_the_one_that_ties_all_hosts():
    """Pairs of hosts share thousands of short calls, all of them only a few long ones."""
    hosts, half, rng = 130, 65, np.random.default_rng(5)
    offset = np.round(5e6 * rng.standard_normal(hosts)).astype(np.int64)
    teams = [(place, [place, place + half], 100_000) for place in range(half) for _ in range(80)]
    for step in range(8):
        teams.insert(700 * step, (half, list(range(hosts)), 9_000_000))
    rows = [
        {"instance": number, "group_id": team, "rank": rank, "start_ns": number * 1_000_000 + int(offset[rank]), "dur_ns": length + int(rng.integers(0, 4_000)),
         "collective": "all_reduce", "size": len(ranks)}
        for number, (team, ranks, length) in enumerate(teams) for rank in ranks
    ]  # fmt: skip

    found = fit_clocks(pl.DataFrame(rows), {rank: f"host{rank:03d}" for rank in range(hosts)})

    assert found.table.get_column("component").n_unique() == 1
    error = found.table.sort("host").get_column("offset_ns").to_numpy() - (offset - offset[0])
    assert np.abs(error).max() <= 50_000
