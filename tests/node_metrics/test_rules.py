"""What rules make of small clusters: one guilty host, its peers innocent, fleets and costless faults quiet."""

from __future__ import annotations

import polars as pl
import pytest
from node_metrics_support import text_source

HEADER = (
    "timestamp, index, uuid, pci.bus_id, clocks.sm [MHz], clocks.max.sm [MHz], power.draw [W], "
    "enforced.power.limit [W], "
    "temperature.gpu, utilization.gpu [%], clocks_event_reasons.active, "
    "clocks_event_reasons_counters.sw_power_cap [us], "
    "clocks_event_reasons_counters.hw_thermal_slowdown [us], pcie.link.gen.current, pcie.link.gen.max, "
    "pcie.link.width.current, pcie.link.width.max\n"
)


def gpu_csv(host, *, clock=1980, power=650, temp=60, util=100, mask="0x0", hot_us=0, gen=5, limit=700, polls=4):
    lines = [HEADER]
    for poll in range(polls):
        for gpu in range(2):
            hot = hot_us * poll if gpu == 0 else 0
            own = (clock, power, temp, mask, gen) if gpu == 0 else (1980, 650, 60, "0x0", 5)
            lines.append(
                f"2026/01/02 03:04:{poll * 5:02d}.000, {gpu}, GPU-{host[-1] * 8}-0000-4000-8000-00000000000{gpu},"
                f" 00000000:0{gpu + 1}:00.0, "
                f"{own[0]} MHz, 1980 MHz, {own[1]} W, {limit} W, {own[2]}, {util} %, {own[3]}, 0 us, {hot} us, "
                f"{own[4]}, 5, 16, 16\n"
            )
    return text_source("".join(lines), f"{host}/gpu.csv")


def cluster(ingest, **guilty):
    hosts = ["node0", "node1", "node2", "node3"]
    return ingest.read([gpu_csv(host, **(guilty if host == "node2" else {})) for host in hosts])


def loud(ingest, **options):
    return {item.code: item for item in ingest.findings(**options) if item.severity != "info"}


def test_healthy_cluster_blames_nobody(ingest):
    assert loud(cluster(ingest)) == {}


def test_throttled_gpu_is_named_with_its_device(ingest):
    found = loud(cluster(ingest, clock=990, temp=92, mask="0x0000000000000040", hot_us=4_000_000))
    assert set(found) == {"GPU-THERM-01", "GPU-CLK-01"}
    for finding in found.values():
        assert finding.severity == "critical"
        assert finding.hosts == ("node2",)
        assert finding.devices == ("gpu:GPU-22222222-0000-4000-8000-000000000000",)
    assert found["GPU-THERM-01"].cause == "throttling"
    assert "80 % of the window" in found["GPU-THERM-01"].message


def test_idle_gpus_are_not_judged(ingest):
    assert loud(cluster(ingest, clock=345, util=0, gen=1, power=70)) == {}


def test_pcie_below_its_maximum_under_load(ingest):
    found = loud(cluster(ingest, gen=3))
    assert found["GPU-PCIE-01"].severity == "critical"
    assert "gen 3 x16" in found["GPU-PCIE-01"].message


def test_lower_power_limit(ingest):
    assert set(loud(cluster(ingest, limit=500))) == {"GPU-PWR-01"}


def test_fleet_wide_values_are_a_design_limit(ingest):
    ingest.read([gpu_csv(f"node{n}", gen=4) for n in range(4)])
    finding = next(item for item in ingest.findings() if item.code == "GPU-PCIE-01")
    assert finding.severity == "info"
    assert "design limit" in finding.message


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_renaming_hosts_changes_only_names(tmp_path, order):
    from node_metrics_support import Ingested

    messages = []
    for place, names in enumerate((("node0", "node1", "node2", "node3"), tuple(f"node{5 + n}" for n in order))):
        folder = tmp_path / str(place)
        folder.mkdir()
        data = Ingested(folder).read(
            [gpu_csv(name, **({"clock": 990} if n == 2 else {})) for n, name in enumerate(names)]
        )
        found = loud(data)
        assert found["GPU-CLK-01"].hosts == (names[2],)
        messages.append(
            (found["GPU-CLK-01"].severity, found["GPU-CLK-01"].confidence, found["GPU-CLK-01"].evidence[0].value)
        )
    assert messages[0] == messages[1]


def breakdown(ingest, work_ns):
    hosts = [f"node{rank}" for rank in range(4)]
    ingest.insert("rank", pl.DataFrame({"rank": range(4), "host": hosts, "role": [0] * 4}))
    rows = [(rank, step) for rank in range(4) for step in range(3)]
    base = 1767323045 * 10**9
    ingest.insert(
        "step",
        pl.DataFrame(
            {
                "rank": [r for r, _ in rows],
                "step": [s for _, s in rows],
                "label": ["normal"] * len(rows),
                "host_start_ns": [base + s * 5 * 10**9 for _, s in rows],
                "end_ns": [base + (s + 1) * 5 * 10**9 for _, s in rows],
            }
        ),
    )
    work = [work_ns if r == 2 else 500_000_000 for r, _ in rows]
    frame = pl.DataFrame(
        {
            "rank": [r for r, _ in rows],
            "step": [s for _, s in rows],
            "local_work_ns": work,
            "exposed_transfer_ns": [0] * len(rows),
        }
    )
    return ingest.insert("breakdown", frame)


def test_a_fault_that_costs_nothing_is_info_and_says_so(ingest):
    breakdown(cluster(ingest, clock=1700), 500_000_000)
    found = {item.code: item for item in ingest.findings(step_ns=1_000_000_000, world_size=4)}
    assert found["GPU-CLK-01"].severity == "info"
    assert "costs nothing measurable" in found["GPU-CLK-01"].message


def test_a_fault_that_costs_is_priced(ingest):
    breakdown(cluster(ingest, clock=1300), 800_000_000)
    found = loud(ingest, step_ns=1_000_000_000, world_size=4)
    finding = found["GPU-CLK-01"]
    assert finding.impact.ns_per_step == 300_000_000
    assert finding.impact.step_ratio == 0.3
    assert finding.ranks == (2,)
    assert finding.confidence > 0.8


def test_overload_thresholds_come_from_the_rule(ingest):
    from diagnose.findings.rules import RuleBook

    book = RuleBook({"GPU-CLK-01": {"clock_ratio": {"warning": 0.99}}})
    assert book["GPU-CLK-01"].limit("clock_ratio") == 0.99


def test_every_rule_has_reasons_and_an_id_of_the_table():
    from diagnose.findings.rules import RuleBook

    rules = [rule for rule in RuleBook() if rule.code.split("-")[0] in ("GPU", "NIC", "HOST", "BENCH", "DQ", "NODE")]
    assert len(rules) >= 50
    for rule in rules:
        assert rule.actions, rule.code
        assert rule.meaning, rule.code
        assert all(len(threshold.why) > 20 for threshold in rule.thresholds.values()), rule.code


def test_dcgm_last_xid_is_no_event_by_itself(ingest):
    text = "".join(
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",Hostname="n0"}} {value} {1767323045000 + n * 1000}\n'
        for n, value in enumerate([79, 79, 79])
    )
    ingest.read([text_source(text, "a.prom")])
    assert ingest.loud() == []


def test_not_checked_names_the_commands(ingest):
    from diagnose.config import Config
    from diagnose.findings.checks.node_metrics import check
    from diagnose.findings.facts import Facts
    from diagnose.findings.rules import RuleBook

    (gap,) = check(Facts(ingest.store, RuleBook(), Config(), None, None))
    assert "nvidia-smi --query-gpu" in gap.collect
