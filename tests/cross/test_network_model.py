"""Cost model, tiers, suspects, outliers and uplinks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from diagnose.analysis.cross.cost_model import fit_cost
from diagnose.analysis.cross.network import network_tiers, place_tiers
from diagnose.analysis.cross.oversubscription import oversubscription
from diagnose.analysis.cross.suspects import find_suspects
from diagnose.analysis.cross.tails import tail_suspects

ALPHA_NS, BANDWIDTH, FACTOR = 60_000.0, 100e9, 1.75


def sweep(rng, count=400, congested=0.2, sizes=(2e5, 1e6, 4e6, 2e7, 1e8, 3e8)):
    size = rng.choice(sizes, count)
    time = (ALPHA_NS + FACTOR * size / BANDWIDTH * 1e9) * (1 + 0.03 * np.abs(rng.standard_normal(count)))
    hit = rng.random(count) < congested
    time[hit] *= 1 + rng.exponential(0.5, int(hit.sum()))
    return size, time, rng.integers(0, 20, count)


@pytest.mark.parametrize("seed", range(5))
def test_fixed_cost_and_bandwidth_are_recovered_under_congestion(seed):
    model = fit_cost(*sweep(np.random.default_rng(seed)), FACTOR)

    assert model.busbw_bytes_per_s == pytest.approx(BANDWIDTH, rel=0.06)
    assert model.alpha_ns == pytest.approx(ALPHA_NS, rel=0.25)
    assert model.low <= model.busbw_bytes_per_s <= model.high
    assert model.half_size_bytes == pytest.approx(ALPHA_NS * BANDWIDTH / 1e9 / FACTOR, rel=0.3)


def test_one_size_has_no_fixed_cost_of_its_own():
    size, time, step = sweep(np.random.default_rng(0), sizes=(2e7,), congested=0.0)

    bare = fit_cost(size, time, step, FACTOR)
    known = fit_cost(size, time, step, FACTOR, fixed_ns=ALPHA_NS)

    assert bare.alpha_ns is None
    assert bare.busbw_bytes_per_s < known.busbw_bytes_per_s
    assert known.busbw_bytes_per_s == pytest.approx(BANDWIDTH, rel=0.04)


@pytest.mark.parametrize("rows", [([], []), ([0.0], [5.0]), ([5.0], [0.0])])
def test_nothing_to_fit_is_no_model(rows):
    size, time = (np.array(values) for values in rows)

    assert fit_cost(size, time, np.zeros(len(size), int), 1.0) is None


def mesh(rng, slow_ranks=(), factor=2.0, steps=20, hosts=4, per_host=4, tail=None):
    """Shard groups of two hosts and replica groups across them, as instances and places."""
    ranks = hosts * per_host
    square = np.arange(ranks).reshape(-1, ranks // 2)
    sets = [tuple(row) for row in square.tolist()] + [tuple(row) for row in square.T.tolist()]
    places = pl.DataFrame(
        {"place": range(len(sets)), "ranks": [list(one) for one in sets]},
        schema={"place": pl.Int64, "ranks": pl.List(pl.Int32)},
    )
    rows = []
    for step in range(steps):
        for place, one in enumerate(sets):
            time = 1e6 * (1 + 0.02 * rng.random())
            if set(one) & set(slow_ranks) and tail is None:
                time *= factor
            if set(one) & set(slow_ranks) and tail is not None and rng.random() < tail:
                time *= factor
            rows.append({"place": place, "group_id": place, "tier": "inter-node", "collective": "all_reduce" if place > 1 else "all_gather", "members": len(one),
                         "msg_bytes": 10_000_000, "step": step, "transfer_ns": round(time), "wire_ns": round(time), "wait_ns": 0, "exposed_transfer_ns": 1.0,
                         "busbw_bytes_per_s": 1e10})  # fmt: skip
    return pl.DataFrame(rows), places, {rank: f"node{rank // per_host}" for rank in range(ranks)}


def test_the_host_where_slow_groups_cross_is_the_suspect():
    instances, places, hosts = mesh(np.random.default_rng(0), slow_ranks=(8, 9, 10, 11))

    found = find_suspects(instances, places, hosts)

    assert found.row(0, named=True)["host"] == "node2"
    assert found.row(0, named=True)["slowdown_ratio"] == pytest.approx(1.0, abs=0.1)


def test_a_single_port_is_told_from_its_host():
    instances, places, hosts = mesh(np.random.default_rng(0), slow_ranks=(9,), per_host=4)

    found = find_suspects(instances, places, hosts)

    assert 9 in found.row(0, named=True)["ranks"]


@pytest.mark.parametrize("seed", range(5))
def test_even_groups_have_no_suspect(seed):
    instances, places, hosts = mesh(np.random.default_rng(seed))

    assert find_suspects(instances, places, hosts).is_empty()
    assert tail_suspects(instances, places, hosts).is_empty()


def test_rare_slow_transfers_point_at_the_port_they_share():
    instances, places, hosts = mesh(np.random.default_rng(0), slow_ranks=(5,), factor=8.0, tail=0.15, steps=60)

    found = tail_suspects(instances, places, hosts)

    assert 5 in found.row(0, named=True)["ranks"]


def test_tiers_from_hosts_and_leaves():
    hosts = {0: "a", 1: "a", 2: "b", 3: "c"}
    places = pl.DataFrame({"place": [1, 2, 3], "ranks": [[0, 1], [0, 2], [0, 3]]})

    plain = place_tiers(places, hosts, {})
    known = place_tiers(places, hosts, {"a": "l1", "b": "l1", "c": "l2"})
    blind = place_tiers(places, hosts | {2: None}, {})

    assert plain.get_column("tier").to_list() == ["intra-node", "inter-node", "inter-node"]
    assert known.get_column("tier").to_list() == ["intra-node", "intra-leaf", "cross-leaf"]
    assert blind.get_column("tier").to_list() == ["intra-node", None, "inter-node"]


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_uplinks_with_an_interval(ratio):
    rng = np.random.default_rng(0)
    rows = [{"tier": tier, "collective": "all_reduce", "members": 8, "msg_bytes": 50_000_000, "step": step, "transfer_ns": round(1e6 * (ratio if tier == "cross-leaf" else 1) * (1 + 0.05 * rng.random()))}
            for step in range(20) for tier in ("intra-leaf", "cross-leaf") for _ in range(4)]  # fmt: skip

    found = oversubscription(pl.DataFrame(rows))

    assert found.ratio == pytest.approx(ratio, rel=0.03)
    assert found.low <= found.ratio <= found.high
    assert found.high - found.low < 0.15 * ratio


def test_one_tier_alone_has_no_ratio():
    rows = pl.DataFrame(
        {
            "tier": ["intra-leaf"],
            "collective": ["all_reduce"],
            "members": [8],
            "msg_bytes": [5_000_000],
            "step": [0],
            "transfer_ns": [10],
        }
    )

    assert oversubscription(rows) is None


def test_a_tail_bounds_a_class_and_a_fixed_cost_another():
    rng = np.random.default_rng(0)
    instances, places, hosts = mesh(rng)
    tail = instances.with_columns(
        pl.when(pl.int_range(pl.len()) % 7 == 0)
        .then(pl.col("transfer_ns") * 4)
        .otherwise(pl.col("transfer_ns"))
        .alias("transfer_ns")
    )
    small = instances.with_columns(transfer_ns=pl.lit(35_000), wire_ns=pl.lit(35_000))

    assert set(network_tiers(tail, {}, len(hosts)).get_column("bound").to_list()) == {"tail"}
    assert set(network_tiers(small, {}, len(hosts)).get_column("bound").to_list()) == {"latency"}
    assert set(network_tiers(instances, {}, len(hosts)).get_column("bound").to_list()) == {"bandwidth"}
    assert len(places) == network_tiers(instances, {}, len(hosts)).get_column("groups").sum()
