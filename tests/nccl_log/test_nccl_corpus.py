"""Every file of the corpus of real logs: transports as counted by hand, and the right finding or none."""

from __future__ import annotations

from typing import Any

import pytest
from nccl_log_support import SHARED, Run, corpus

FILES = corpus()
NEEDS_CORPUS = pytest.mark.skipif(not FILES, reason="the corpus of real logs is not beside the project")

EXPECTED = {
    "gdr-off": {"no_gdr"},
    "gdr-partial": {"partial_gdr"},
    "gdr-distance": {"no_gdr"},
    "p2p-limited-by-env": {"p2p_disabled"},
    "net-socket-fallback": {"no_rdma"},
    "net-device-mismatch": {"partial_rdma"},
    "wrong-net-plugin": {"no_rdma"},
    "oob-wrong-interface": {"wrong_interface"},
    "cross-rail-link": {"rail_mismatch"},
    "ib-modify-qp-timeout": {"rail_mismatch"},
    "init-hang": {"hang"},
    "collective-timeout": {"hang"},
    "collective-desync": {"hang"},
    "ras-mismatch": {"hang"},
    "ib-port-error": {"link_errors"},
    "version-mismatch": {"version_mismatch"},
    "perf-drop-at-size": {"bandwidth_bound"},
    "numa-balancing-on": {"host_slow"},
}
"""Causes of the kinds of faults; every other kind is a communication error."""


@NEEDS_CORPUS
@pytest.mark.parametrize("item", FILES, ids=lambda item: item["file"])
def test_file_of_the_corpus(item: dict[str, Any], run: Run) -> None:
    run.read([SHARED / "nccl_logs" / item["file"]])

    assert run.kinds() == item["observed"]["via_lines"]
    loud = run.loud()
    want = item["expected"]["finding"]
    if want == "healthy":
        assert loud == {}
    else:
        assert EXPECTED.get(want, {"comm_error"}) <= {finding.cause for finding in loud.values()}
    for finding in loud.values():
        assert finding.actions
        assert all(evidence.source for evidence in finding.evidence)


@NEEDS_CORPUS
@pytest.mark.parametrize("item", FILES, ids=lambda item: item["file"])
def test_sizes_of_the_corpus(item: dict[str, Any], run: Run) -> None:
    run.read([SHARED / "nccl_logs" / item["file"]])
    expected, observed = item["expected"], item["observed"]

    devices = run.query(
        "SELECT nic::VARCHAR AS nic, sum(lines)::BIGINT AS n FROM channel WHERE family = 'NET' GROUP BY 1"
    )
    assert dict(devices.iter_rows()) == observed["net_dev_lines"]
    hosts = run.query("SELECT DISTINCT host FROM comm_process WHERE host IS NOT NULL")
    assert hosts.height == observed["hosts_in_file"]
    largest = run.query("SELECT max(nranks) FROM communicator").item()
    if largest is not None and isinstance(expected.get("nranks"), int):
        assert largest == expected["nranks"]
    bench = expected.get("nccl_tests", {})
    if "max_oop_busbw" in bench:
        best = run.query("SELECT max(busbw_bytes_per_s) FROM bandwidth_reference WHERE NOT in_place").item()
        assert best == pytest.approx(bench["max_oop_busbw"] * 1e9)


LAB = SHARED / "lab"


@pytest.mark.skipif(not LAB.is_dir(), reason="the lab's recordings are not beside the project")
@pytest.mark.parametrize(
    ("name", "code", "ranks"),
    [
        ("die_r2", "COM-HANG-DIED", (2,)),
        ("startup_segv_ddp_detail", "COM-HANG-START", (0, 1, 2, 3)),
        ("healthy_ddp_4h", None, ()),
        ("healthy_fsdp_4h_detail", None, ()),
        ("healthy_pp_4h", None, ()),
        ("slownic_h2_50m", None, ()),
        ("transient_pause_r1", None, ()),
    ],
)
def test_recorded_job(name: str, code: str | None, ranks: tuple[int, ...], run: Run) -> None:
    folder = LAB / name
    run.read(sorted([*folder.glob("logs/*"), *folder.glob("flight_recorder/*"), *folder.glob("train.log")]))

    loud = run.loud()
    assert set(loud) == ({code} if code else set())
    if code is not None:
        assert loud[code].ranks == ranks
        assert loud[code].severity == "critical"


FR_HANG = SHARED / "traces" / "selfgen-gloo-torch2.13.0" / "fr_hang"


@pytest.mark.skipif(not FR_HANG.is_dir(), reason="the recorded hang is not beside the project")
@pytest.mark.parametrize("pattern", ["nccl_trace_rank_*", "fr_trace_rank_*.json", "*trace_rank*"])
def test_recorded_hang_names_the_rank_and_the_collective(pattern: str, run: Run) -> None:
    run.read(sorted(FR_HANG.glob(pattern)))

    (finding,) = run.loud().values()
    assert finding.code == "COM-HANG-BEHIND"
    assert finding.ranks == (2,)
    assert "all_reduce number 6" in finding.message
    assert "default_pg" in finding.message
