"""The same collective on every rank: by number, by order, by group; and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from cross_support import calls, job
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analysis.cross.exposed import mark_handshakes
from diagnose.analysis.cross.groups import GroupConfig, group_id, resolve_groups
from diagnose.analysis.cross.match import best_shift, match_calls


def matched(table, world, hosts=None, config=None):
    hosts = hosts or dict.fromkeys(world, "node0")
    resolved = resolve_groups(mark_handshakes(table), config or {}, hosts, world)
    return match_calls(resolved.calls, resolved.groups, config or {}, hosts, world)


def sizes(result):
    return sorted(result.members.group_by("instance").len().get_column("len").to_list())


def test_numbers_match_whatever_the_order_of_rows():
    table = job(4, 5)

    straight = matched(table, range(4))
    shuffled = matched(table.sample(fraction=1.0, shuffle=True, seed=3), range(4))

    assert sizes(straight) == [4] * 10
    key = ["instance", "rank", "call"]
    assert straight.members.select(key).sort(key).equals(shuffled.members.select(key).sort(key))


def test_names_are_no_identities():
    rows = [
        {
            "rank": rank,
            "start_ns": 10,
            "seq": 1,
            "group_name": "7",
            "group_size": 2,
            "group_ranks": [rank // 2 * 2, rank // 2 * 2 + 1],
        }
        for rank in range(4)
    ]

    assert sizes(matched(calls(*rows), range(4))) == [2, 2]


def test_a_cut_member_list_is_completed_from_the_header():
    members = tuple(range(4))
    config = {rank: [GroupConfig("0", "default_pg", members, 4)] for rank in members}
    rows = [{"rank": rank, "start_ns": 10, "seq": 1, "group_name": "0", "group_size": 4} for rank in members]

    result = matched(calls(*rows), members, config=config)

    assert sizes(result) == [4]
    assert result.groups.get_column("known_from").to_list() == ["pg_config"]


def test_without_numbers_windows_cut_at_different_calls_are_shifted():
    kinds = ["all_reduce", "all_gather", "all_gather", "reduce_scatter"] * 6
    rows = [
        {
            "rank": rank,
            "call": place,
            "step": None,
            "start_ns": 1000 * place,
            "group_name": "0",
            "group_size": 2,
            "group_ranks": [0, 1],
            "collective": kind,
        }
        for rank in (0, 1)
        for place, kind in enumerate(kinds)
        if not (rank == 1 and place < 3)
    ]

    result = matched(calls(*rows), (0, 1))

    assert sizes(result).count(2) == len(kinds) - 3
    pairs = result.members.group_by("instance").agg("start_ns")
    assert all(len(set(starts)) == 1 for starts in pairs.get_column("start_ns").to_list())


def test_sends_find_their_receives():
    rows = [
        {"rank": 0, "start_ns": 10, "collective": "send", "is_p2p": True, "peer": 1, "group_name": "0", "group_size": 2, "group_ranks": [0, 1]},
        {"rank": 0, "start_ns": 20, "collective": "send", "is_p2p": True, "peer": 1, "group_name": "0", "group_size": 2, "group_ranks": [0, 1]},
        {"rank": 1, "start_ns": 15, "collective": "recv", "is_p2p": True, "peer": 0, "group_name": "0", "group_size": 2, "group_ranks": [0, 1]},
        {"rank": 1, "start_ns": 30, "collective": "recv", "is_p2p": True, "peer": 0, "group_name": "0", "group_size": 2, "group_ranks": [0, 1]},
    ]  # fmt: skip

    result = matched(calls(*rows), (0, 1))

    assert sizes(result) == [2, 2]
    first = result.members.filter(result.members["instance"] == 0).get_column("start_ns").to_list()
    assert sorted(first) == [10, 15]


def test_groups_that_no_call_names_come_from_common_ends():
    pairs = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    config = {
        rank: [GroupConfig("0", None, (0, 1, 2, 3), 4), GroupConfig("1", None, pairs[rank], 2)] for rank in range(4)
    }
    rng = np.random.default_rng(0)
    jitter = {pair: rng.integers(0, 5_000_000, 8).cumsum() for pair in set(pairs.values())}
    rows = [
        {
            "rank": rank,
            "call": number,
            "step": number // 2,
            "start_ns": int(1e9 * number + jitter[pairs[rank]][number]),
            "dur_ns": 1_000_000,
        }
        for rank in range(4)
        for number in range(8)
    ]

    result = matched(calls(*rows), range(4), config=config)

    assert set(result.members.get_column("group_id").to_list()) == {group_id((0, 1)), group_id((2, 3))}


def test_hand_shakes_of_the_debug_wrapper_are_told_apart():
    rows = [
        {"rank": 0, "start_ns": 1, "collective": "all_gather", "msg_bytes": 56},
        {"rank": 0, "start_ns": 2, "msg_bytes": 56},
    ]
    barrier = {"rank": 0, "start_ns": 0, "collective": "recv", "is_p2p": True, "msg_bytes": 4}

    assert mark_handshakes(calls(*rows)).get_column("handshake").to_list() == [False, False]
    assert mark_handshakes(calls(barrier, *rows)).get_column("handshake").to_list() == [True, True, False]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20), st.lists(st.integers(0, 3), min_size=40, max_size=60), st.integers(-(10**9), 10**9))
def test_any_shift_is_found_again(cut, codes, offset):
    reference = np.array(codes)
    ends = np.arange(len(reference)) * 1_000_000 + np.random.default_rng(1).integers(0, 1000, len(reference))

    found = best_shift(reference, reference[cut:], ends, ends[cut:] + offset)

    assert found is not None
    if cut == 0:
        assert found == 0
    assert (reference[found : found + len(reference) - cut] == reference[cut:]).mean() >= 0.95


def test_a_period_that_clocks_hide_is_no_shift():
    """Alike from end to end, clocks of two hosts a whole step apart: nothing says that a step is missing."""
    period, noise = 300_000_000, np.random.default_rng(3)
    ends = np.arange(40) * period + noise.integers(0, 2_000_000, 40)
    other = ends + period + noise.integers(0, 4_000, 40)

    assert best_shift(np.zeros(40, np.int64), np.zeros(40, np.int64), ends, other) == 0


def test_windows_of_one_length_that_were_cut_at_other_steps_are_shifted():
    noise = np.random.default_rng(4)
    ends = np.cumsum(300_000_000 + noise.integers(-3_000_000, 3_000_000, 41))

    assert best_shift(np.zeros(40, np.int64), np.zeros(40, np.int64), ends[:40], ends[1:] + 5_000) == 1


def test_sequences_that_never_agree_are_refused():
    left, right = np.arange(40), np.arange(100, 140)

    assert best_shift(left, right, left * 1000, right * 1000) is None


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_a_group_is_its_set_of_ranks(order):
    assert group_id(order) == group_id(sorted(order))
