"""Whole simulated runs with traces, logs and metrics: the first finding names the physical cause, seen from both sides."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "sample_traces"))

from simulator.config import Model
from simulator.output import write_run
from simulator.simulation import simulate

from diagnose.config import Config
from diagnose.findings.evaluate import evaluate
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.report.document import FindingEntry
from diagnose.report.view import fold
from diagnose.store.reader import Store

if TYPE_CHECKING:
    from diagnose.model import Finding

COARSE = Model(detail="coarse")
HSDP = {"layout": "hsdp", "ranks": 16, "shard": 8}


class Answer(NamedTuple):
    """What the product says and what was done."""

    findings: list[Finding]
    host: str
    lost_ns: float

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def facts(self) -> str:
        return "\n".join(item.text for item in self.first.evidence)

    def folded(self) -> list[list[str]]:
        """Codes of loud findings as reports show them: each with those under it."""
        loud = [item for item in self.findings if item.severity != "info"]
        entries = [
            FindingEntry(
                code=item.code, title=item.title, severity=item.severity, cause=item.cause, hosts=item.hosts,
                explains=item.explains,
            )
            for item in loud
        ]  # fmt: skip
        return [[item.finding.code, *(other.code for other in item.explained)] for item in fold(entries)]


def answer(folder: Path, scenario: str, seed: int, parameters: dict[str, float] | None = None, **job: object) -> Answer:
    made = simulate(
        scenario, seed=seed, parameters=parameters, counterfactuals=False, model=COARSE, steps=5, job_steps=60, **job
    )
    write_run(made, folder / "run", truth=folder / "truth.yaml", metrics="openmetrics", level=1)
    options = RunOptions(name="run", jobs=1, keep="kernels")
    store = build_run([str(folder / "run")], folder / "run.duckdb", Config(), options)
    with Store(store) as tables:
        findings = evaluate(tables, Config()).findings
    (host,) = {host for truth in made.truths for host in truth.hosts}
    return Answer(findings, host, made.timeline.median_step_ns() - made.without_fault_ns)


def test_one_host_on_sockets(tmp_path):
    found = answer(tmp_path, "socket_host", 31)
    assert (found.first.code, found.first.cause, found.first.severity) == (
        "COM-SOCKET-SOME",
        "partial_rdma",
        "critical",
    )
    assert found.first.hosts == (found.host,)
    assert found.first.ranks == (8, 9, 10, 11)
    through, without = (item.value for item in found.first.evidence if item.unit == "bytes/s")
    assert through < 0.1 * without
    assert "No device found" in found.first.message
    assert "in like groups without" in found.first.message
    assert "traces: Groups through host" in found.facts
    assert found.first.impact.ns_per_step == pytest.approx(found.lost_ns, rel=0.15)
    assert found.folded()[0][0] == "COM-SOCKET-SOME"
    assert len(found.folded()) == 1


def test_one_host_without_rdma_puts_a_job_of_one_group_on_sockets(tmp_path):
    found = answer(tmp_path, "socket_host", 42, layout="fsdp", shard=0)
    assert found.first.code == "COM-SOCKET-ALL"
    assert found.first.hosts == (found.host,)
    assert f"{found.host}: No device found" in found.first.message
    assert found.first.impact.ns_per_step == pytest.approx(found.lost_ns, rel=0.15)


def test_throttled_gpu(tmp_path):
    found = answer(tmp_path, "slow_gpu", 21, **HSDP)
    assert found.first.cause == "throttling"
    assert found.first.hosts == (found.host,)
    assert found.first.ranks == (13,)
    assert [device.split(":")[0] for device in found.first.devices] == ["gpu"]
    assert "traces: Rank 13" in found.facts
    assert "thermal violation" in found.facts
    assert "SM clock" in found.facts
    assert found.first.impact.ns_per_step == pytest.approx(found.lost_ns, rel=0.25)
    assert found.folded()[0][1:] == ["RANK-GPU", "GPU-CLK-01"]


def test_port_with_symbol_errors(tmp_path):
    found = answer(tmp_path, "lossy_link", 22, {"probability": 0.15}, **HSDP)
    assert (found.first.code, found.first.cause) == ("NIC-ERR-01", "link_errors")
    assert found.first.hosts == (found.host,)
    assert found.first.devices == ("nic:mlx5_1/1",)
    assert "symbol errors" in found.first.message
    assert "mean transfer of groups through it" in found.facts
    assert 0.4 * found.lost_ns < found.first.impact.ns_per_step < 1.2 * found.lost_ns


def test_storage_traffic_on_the_training_ports(tmp_path):
    found = answer(tmp_path, "storage_traffic", 41)
    assert (found.first.code, found.first.cause) == ("NIC-MIX-01", "traffic_mixing")
    assert found.first.hosts == (found.host,)
    assert len(found.first.devices) == 4
    assert "received" in found.first.message
    assert "traces: Groups through host" in found.facts
    assert "bus bandwidth of like groups without it" in found.facts
    assert found.first.impact.ns_per_step == pytest.approx(found.lost_ns, rel=0.25)
    assert found.folded() == [["NIC-MIX-01", "NET-SLOW-NIC"]]


def test_a_slow_gpu_without_a_cause_says_that_its_counters_look_normal(tmp_path):
    found = answer(tmp_path, "slow_memory", 5, {"factor": 6.0}, **HSDP)
    assert found.first.code in {"RANK-GPU", "RANK-MEMORY"}
    assert "counters look normal" in found.facts
