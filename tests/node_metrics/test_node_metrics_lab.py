"""Recorded runs with real exporters: throttling, foreign traffic and retransmits as injected, healthy runs silent."""

from __future__ import annotations

import pytest
import yaml
from node_metrics_support import DATA, Ingested, file_source

from diagnose.analysis.node_metrics.correlate import evidence_for
from diagnose.analysis.node_metrics.load import host_aliases, run_window, summaries
from diagnose.ingest.node_metrics import FORMATS
from diagnose.ingest.training_log import FORMATS as LOGS
from diagnose.report.parts.nodes import nodes

LAB = DATA / "lab"
pytestmark = pytest.mark.skipif(not LAB.is_dir(), reason="the recorded runs are not here (../shared/data/lab)")
HEALTHY = ("healthy_ddp_4h", "healthy_fsdp_4h", "healthy_pp_4h", "healthy_tiny_fused")


def run(ingest: Ingested, name: str) -> Ingested:
    folder = LAB / name
    files = [*sorted(folder.glob("metrics/**/*.json")), *sorted(folder.glob("metrics/**/*.gz")), folder / "train.log"]
    return ingest.read([file_source(path) for path in files], formats=[*FORMATS, *LOGS])


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_blame_nobody(ingest, name):
    run(ingest, name)
    assert ingest.loud() == []
    for lines in evidence_for(ingest.store, ["node0", "node3"], None).values():
        assert "counters look normal" in lines[0].text


def test_instances_are_mapped_to_host_names(ingest):
    run(ingest, "healthy_ddp_4h")
    assert host_aliases(ingest.store)["10.78.0.12"] == "node2"
    found = {item["host"] for item in nodes(ingest.store)["hosts"]}
    assert found == {"node0", "node1", "node2", "node3"}


def test_cpu_quota(ingest):
    run(ingest, "cputhrottle_h1")
    (finding,) = (item for item in ingest.findings() if item.severity != "info")
    assert (finding.code, finding.hosts, finding.cause) == ("HOST-CPU-04", ("node1",), "throttling")
    assert "throttled periods 9" in evidence_for(ingest.store, ["node1"], None)["node1"][0].text
    section = nodes(ingest.store)
    assert [item["host"] for item in section["hosts"] if item["differs"]] == ["node1"]
    assert section["sparklines"][0]["host"] == "node1"


def test_storage_traffic(ingest):
    run(ingest, "storage_traffic_h1")
    (finding,) = (item for item in ingest.findings() if item.severity != "info")
    assert (finding.code, finding.hosts, finding.devices, finding.cause) == (
        "NIC-MIX-01",
        ("node1",),
        ("nic:eth0",),
        "traffic_mixing",
    )


def test_slow_storage_is_seen_on_all_hosts(ingest):
    run(ingest, "loader_slow_all")
    assert ingest.loud() == []
    assert "HOST-CPU-02" in {item.code for item in ingest.findings()}


@pytest.mark.parametrize("name", ["slownic_h3_50m", "storage_traffic_h1", "tiny_allreduce"])
def test_retransmits_are_the_recorded_ones(ingest, name):
    run(ingest, name)
    truth = yaml.safe_load((LAB / "truth" / name / "truth.yaml").read_text())["measured"]["retrans_segs_by_node"]
    window = run_window(ingest.store)
    rows = summaries(ingest.store, (window[0] - 5 * 10**9, window[1] + 5 * 10**9))
    found = {r["host"]: r["increase"] for r in rows.iter_rows(named=True) if r["metric"] == "node.tcp_retrans_total"}
    for host, count in truth.items():
        assert abs(found[host] - count) <= max(3, 0.05 * count), (host, found[host], count)
