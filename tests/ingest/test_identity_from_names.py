"""Ranks and hosts from file names, as the tools in use give them; nothing is guessed from other numbers."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from diagnose.errors import UsageError
from diagnose.ingest.identity import check_rank_pattern, host_from_name, rank_from_name, short_host


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0_trace.json", 0),  # torchtitan
        ("iteration_10/rank12_trace.json", 12),
        ("rank-7.json.gz", 7),  # HTA
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("sampled_rank-1.json.gz", 1),
        ("dp0_pp0_tp0_dcp0_ep0_rank3.1755000000000.pt.trace.json.gz", 3),  # vLLM
        ("1755000000.1-TP-2.trace.json.gz", 2),  # sglang
        ("1755000000.1-TP-3-DP-0-PP-0.trace.json.gz", 3),
        ("1755000000.1-TP-3-DP-1.trace.json.gz", None),  # two dimensions: the rank is not in the name
        ("worker5_step_12.1694128201545.pt.trace.json", 5),  # tensorboard handler with worker names, PARAM
        ("worker0.pt.trace.json.gz", 0),
        ("r3-2025-3-14-14-46.1741988781221064630.pt.trace.json.gz", 3),  # torchtune
        ("node17_1234.1755000000000000000.pt.trace.json", None),  # tensorboard handler: host and process
        ("trace_rank_3.json", 3),
        ("profile.rank3.json", 3),
        ("RANK_4.json", 4),
        ("rank_5/trace.json", 5),
        ("global_rank6/node1/trace.json.gz", 6),
        ("trace_3.json", None),
        ("3.json", None),
        ("ranking_2024.json", None),
        ("frank3.json", None),
        ("step_12.json", None),
    ],
)
def test_rank(name: str, rank: int | None) -> None:
    found = rank_from_name(PurePosixPath(name))
    assert found == (None if rank is None else (rank, "name"))


def test_a_pattern_of_the_user_is_searched_in_the_whole_path() -> None:
    path = PurePosixPath("job/gpu-11/trace.json")
    assert rank_from_name(path, r"gpu-(\d+)/") == (11, "option")
    assert rank_from_name(path, r"none-(\d+)") is None
    assert rank_from_name(path, r"(gpu)-") is None


@pytest.mark.parametrize("pattern", ["rank[", r"rank\d+"])
def test_a_pattern_that_cannot_give_a_rank_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--rank-from"):
        check_rank_pattern(pattern)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("gpu-a12.cluster_4711.1755000000000000000.pt.trace.json.gz", "gpu-a12.cluster"),
        ("3f2a9c1b0d4e_1.1755000000000.pt.trace.json", "3f2a9c1b0d4e"),
        ("worker0_step_12.1694128201545.pt.trace.json", None),
        ("node3/rank0.json", "node3"),
        ("run/host-7/logs/rank0.json", "host-7"),
        ("node_metrics/rank0.json", None),
        ("nodes/rank0.json", None),
        ("rank0.json", None),
    ],
)
def test_host(name: str, host: str | None) -> None:
    assert host_from_name(PurePosixPath(name)) == host


def test_hosts_are_joined_by_their_short_names() -> None:
    assert short_host("Node-3.Cluster.Example") == "node-3"
    assert short_host("node-3:9400") == "node-3"
    assert short_host("10.0.0.7:9400") == "10.0.0.7"
