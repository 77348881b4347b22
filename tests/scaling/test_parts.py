"""What bends the curve: parts of the step by size, the model from one run, findings."""

import math
import re

import pytest

from diagnose.analysis.scaling.analyse import analyse
from diagnose.analysis.scaling.one_run import NetworkPart, OneRun, estimate
from diagnose.analysis.scaling.parts import bend, expected_maximum
from diagnose.analysis.scaling.table import build_curve
from diagnose.findings.rules import RuleBook
from diagnose.findings.scaling import curve_regression, scaling_findings
from diagnose.ingest.scaling_table import ScalingRow
from diagnose.model import CAUSES

SIZES = (16, 32, 64, 128, 256)


def result(wait, transfer, stated="weak", compute=lambda n: 100e6, idle=lambda n: 5e6):
    rows = []
    for n in SIZES:
        parts = {"compute": compute(n), "exposed_wait": wait(n), "exposed_transfer": transfer(n), "idle": idle(n)}
        step = sum(parts.values())
        rows.append(
            ScalingRow(
                place=str(n), gpus=n, value=(1 if stated == "strong" else n) / step * 1e9, step_ns=step, parts_ns=parts
            )
        )
    return analyse(build_curve(rows, unit="samples/s", kind="throughput", stated_type=stated))


def test_waiting_is_told_from_moving_data():
    waiting = result(lambda n: 10e6 * expected_maximum(n), lambda n: 8e6).bend
    assert waiting.culprit == "exposed_wait"
    assert waiting.parts[0].shape == "as the maximum over more ranks"
    moving = result(lambda n: 4e6, lambda n: 0.2e6 * (n - 1)).bend
    assert moving.culprit == "exposed_transfer"
    assert moving.parts[0].shape == "with hops or ranks, N-1"
    assert "hops" in moving.text


def test_tree_and_ring_have_their_shapes():
    assert result(lambda n: 4e6, lambda n: 5e6 * math.log2(n)).bend.parts[0].shape == "with the depth of a tree, log2 N"
    rows = [(n, 300e6 * (n - 1) / n) for n in (2, 4, 8, 16, 32)]
    points = [
        ScalingRow(place=str(n), gpus=n, value=float(n), parts_ns={"compute": 100e6, "exposed_transfer": t})
        for n, t in rows
    ]
    curve = build_curve(points, unit="samples/s", kind="throughput", stated_type="weak")
    assert bend(curve.points, "weak").parts[0].shape == "as a ring limited by bandwidth, (N-1)/N"


def test_strong_scaling_compares_work_not_steps():
    """Compute halves with every doubling: per unit of work it is flat, and the fixed transfer is the loss."""
    found = result(lambda n: 0.0, lambda n: 10e6, "strong", compute=lambda n: 1600e6 / n, idle=lambda n: 0.0).bend
    assert found.culprit == "exposed_transfer"
    assert found.parts[0].share == pytest.approx(1)


def test_flat_parts_have_no_culprit():
    found = result(lambda n: 1e6, lambda n: 1e6).bend
    assert found.culprit is None
    assert "nothing visible" in found.text


def one_run(latency=0.1, **more):
    network = (
        NetworkPart("inter-node", "all_reduce", 64, 90e6, latency),
        NetworkPart("intra-node", "all_gather", 8, 10e6, 0.5),
    )
    return OneRun(
        gpus=64, hosts=8, step_ns=200e6, exposed_wait_ns=5e6, exposed_transfer_ns=40e6, spread_ns=2e6, network=network
    )._replace(**more)


def test_one_run_model_is_marked_and_assumes():
    found = estimate(one_run())
    assert found.gpus == 128
    low, high = found.interval_ns
    assert low < 200e6 < found.step_ns < high
    assert found.text.startswith("model, not measured")
    assert "weak scaling" in found.assumptions[0]
    assert estimate(one_run(gpus=1)) is None


def test_one_run_model_grows_what_crosses_nodes():
    """Overlapping classes count double: their shares matter, and those inside a node do not grow."""
    ring, tree, hops = (127 / 128) / (63 / 64) - 1, 7 / 6 - 1, 127 / 63 - 1
    found = estimate(one_run(spread_ns=0.0))
    assert found.added_ns["transfer"] == pytest.approx(36e6 * (0.9 * ring + 0.1 * tree))
    noise = 1.645 * 0.01 * 200e6
    assert found.interval_ns[1] == pytest.approx(200e6 + 36e6 * (0.9 * ring + 0.1 * hops) + noise)
    unknown = estimate(one_run(latency=None, spread_ns=0.0, network=()))
    assert unknown.interval_ns[1] == pytest.approx(200e6 + 40e6 * tree + noise)
    assert estimate(one_run()).added_ns["wait"] > 0


def test_one_host_tells_nothing_of_the_network():
    found = estimate(one_run(hosts=1))
    assert (found.step_ns, found.interval_ns, found.efficiency) == (None, None, None)
    assert "measure two hosts" in found.text


def test_rules_are_listed_and_their_thresholds_obeyed():
    growing = result(lambda n: 4e6, lambda n: 0.6e6 * (n - 1))
    book = RuleBook({"SCALE-PLATEAU": {"efficiency": {"info": 0.3, "warning": 0.2, "critical": 0.1}}})
    assert {rule.code for rule in book if rule.code.startswith("SCALE-")} == {
        "SCALE-PLATEAU",
        "SCALE-CLIFF",
        "SCALE-REGRESSION",
        "SCALE-DATA",
    }
    levels = [finding.severity for finding in scaling_findings(growing, book) if finding.code == "SCALE-PLATEAU"]
    assert levels == ["warning"]  # its marginal efficiency is below one half all the same


def test_plateau_finding_names_the_cause_and_an_action():
    found = scaling_findings(result(lambda n: 4e6, lambda n: 0.6e6 * (n - 1)))
    plateau = next(finding for finding in found if finding.code == "SCALE-PLATEAU")
    assert plateau.severity == "critical"
    assert re.search(r"Exposed transfer makes \d+ % of the loss", plateau.message)
    assert plateau.cause == "scaling_plateau"
    assert "bus bandwidth" in plateau.actions[0]
    assert all(finding.cause in CAUSES for finding in found)


def test_cliff_and_bad_points_are_findings():
    rows = [
        ScalingRow(place=str(n), gpus=n, value=v) for n, v in ((8, 800.0), (16, 1100.0), (32, 2190.0), (64, 4370.0))
    ]
    found = {
        finding.code for finding in scaling_findings(analyse(build_curve(rows, unit="samples/s", kind="throughput")))
    }
    assert "SCALE-CLIFF" in found


def test_regression_between_curves():
    def scaled(factor):
        rows = [ScalingRow(place=str(n), gpus=n, value=10.0 * n * factor(n)) for n in SIZES]
        return analyse(build_curve(rows, unit="samples/s", kind="throughput", stated_type="weak"))

    base = scaled(lambda n: 1.0)
    (same_everywhere,) = curve_regression(base, scaled(lambda n: 0.9))
    assert same_everywhere.cause == "regression"
    assert "same at every size" in same_everywhere.message
    (growing,) = curve_regression(base, scaled(lambda n: 1 - 0.03 * math.log2(n / 16)))
    assert "grows with the size" in growing.message
    assert curve_regression(base, scaled(lambda n: 0.99)) == []
    assert curve_regression(base, scaled(lambda n: 1.1)) == []


def test_repeats_of_different_jobs_are_named():
    rows = [
        ScalingRow(place=f"{n}/{r}", gpus=n, repeat=str(r), value=n * (1.3 if r and n == 256 else 1))
        for n in SIZES
        for r in (0, 1)
    ]
    found = analyse(build_curve(rows, unit="tokens/s", kind="throughput", stated_type="weak"))
    assert "the measurements of 256 differ by 30 %" in "; ".join(warned.text for warned in found.warnings)


def test_usl_peak_only_when_the_data_carry_it():
    sizes = (16, 32, 64, 128, 256, 512)

    def peak(slowdown):
        rows = [ScalingRow(place=str(n), gpus=n, value=100 * n / slowdown(n / 16)) for n in sizes]
        curve = build_curve(rows, unit="tokens/s", kind="throughput", stated_type="strong")
        return next(law.peak_gpus for law in analyse(curve).classics if law.name == "USL")

    assert peak(lambda n: 1 + 0.02 * (n - 1) + 0.002 * n * (n - 1)) == pytest.approx(
        16 * math.sqrt(0.98 / 0.002), rel=0.05
    )
    assert peak(lambda n: 1 + 0.03 * math.log2(n)) is None
