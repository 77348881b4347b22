"""Best sizes for a deadline or a budget, prices, and the words of thresholds and warnings."""

import math

import pytest

from diagnose.analysis.scaling.analyse import Goals, analyse
from diagnose.analysis.scaling.table import build_curve
from diagnose.ingest.scaling_table import ScalingRow

CURVE = {n: 100.0 * n / (1 + 0.05 * math.log2(n / 16)) for n in (16, 32, 64, 128)}


def rows(values):
    return [ScalingRow(place=f"row {n}", gpus=g, value=v) for n, (g, v) in enumerate(values.items(), 1)]


def curve(values, stated="weak", kind="throughput"):
    return build_curve(rows(values), unit="tokens/s", kind=kind, seconds=1.0, stated_type=stated)


def run(values, stated="weak", sizes=(), kind="throughput"):
    return analyse(curve(values, stated, kind), sizes=sizes)


def codes(result):
    return [warned.code for warned in result.warnings]


def test_targets_choose_the_cheapest_and_the_fastest():
    goals = Goals(cost_per_gpu_hour=2.0, deadline_hours=1.0, budget=1e9, work=CURVE[64] * 3600)
    deadline, budget = analyse(curve(CURVE), goals=goals).targets
    assert deadline.gpus == 64
    assert deadline.cost == pytest.approx(128, rel=0.01)
    assert budget.gpus == 256
    assert budget.extrapolated
    late = analyse(curve(CURVE), goals=goals._replace(deadline_hours=0.01)).targets[0]
    assert late.gpus is None
    assert "not reachable" in late.text


def test_targets_say_which_size_is_on_the_safe_side():
    """At exactly the deadline the slow end of the interval misses it, and a larger size does not."""
    goals = Goals(cost_per_gpu_hour=2.0, deadline_hours=1.0, work=CURVE[64] * 3600)
    (exact,) = analyse(curve(CURVE), goals=goals).targets
    assert exact.interval_hours[0] < 1 < exact.interval_hours[1]
    assert exact.sure_gpus > exact.gpus == 64
    assert f"{exact.sure_gpus} is on the safe side" in exact.text
    (easy,) = analyse(curve(CURVE), goals=goals._replace(deadline_hours=1.5)).targets
    assert easy.sure_gpus is not None
    assert easy.interval_hours[1] < 1.5 or easy.sure_gpus > easy.gpus


def test_a_price_of_nodes_is_said_to_be_one():
    priced = Goals(cost_per_gpu_hour=2.0)
    rows_of_nodes = rows(CURVE)
    nodes = build_curve(rows_of_nodes, unit="tokens/s", kind="throughput", seconds=1.0, scale="nodes")
    assert "price_per_node" in codes(analyse(nodes, goals=priced))
    assert "price_per_node" not in codes(analyse(nodes))
    assert "price_per_node" not in codes(analyse(curve(CURVE), goals=priced))


@pytest.mark.parametrize(
    ("single", "says"), [({8: 80.0}, "8 lies inside"), ({4: 40.0, 8: 80.0}, "4, 8 lie inside")], ids=["one", "two"]
)
def test_one_point_is_spoken_of_in_the_singular(single, says):
    result = run(single | {16: 158.0})
    text = next(warned.text for warned in result.warnings if warned.code == "tier_mixed")
    assert says in text
    assert "16 crosses the network" in text
    assert "there is only one multi-node point" in text


def test_a_level_stretch_does_not_fall_and_may_be_there_from_the_start():
    level = run({384: 144.0, 768: 88.0, 1536: 44.0}, "strong", kind="per_gpu", sizes=(3072,))
    assert "falling" not in codes(level)
    assert level.plateau.text.endswith("from the smallest size on, 384 GPUs")
    assert "falling" in codes(run({384: 144.0, 768: 88.0, 1536: 42.0}, "strong", kind="per_gpu"))
