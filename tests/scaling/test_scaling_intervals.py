"""Intervals: which way they lean, what bounds them, what measured noise does, and how many tables they hold."""

import math
from pathlib import Path

import pytest
import yaml

from diagnose.analysis.scaling.analyse import analyse
from diagnose.analysis.scaling.ensemble import choose
from diagnose.analysis.scaling.interval import TABLE_WIDTH, Noise, between_run_noise, log_ends
from diagnose.analysis.scaling.predict import band
from diagnose.analysis.scaling.table import build_curve
from diagnose.ingest.scaling_columns import read_unit
from diagnose.ingest.scaling_table import ScalingRow

TABLES = Path(__file__).parents[3] / "shared/data/scaling/tables.yaml"
LOSSY = {16: 160.0, 32: 310.0, 64: 590.0, 128: 1110.0}


def curve(values, stated="weak", **more):
    rows = [ScalingRow(place=f"row {n}", gpus=n, value=v, **more) for n, v in values.items()]
    return build_curve(rows, unit="tokens/s", kind="throughput", seconds=1.0, stated_type=stated)


def curved(values, stated="weak", **more):
    made = curve(values, stated, **more)
    return choose(made.points, made.type)


def ends(values, gpus, stated="weak", **more):
    made = curved(values, stated, **more)
    return log_ends(made, gpus, between_run_noise(made.points))


def test_more_room_below_than_above_where_nothing_is_lost_yet():
    low, high = ends({16: 160.0, 32: 320.0, 64: 640.0}, 128)
    assert -low > 5 * high > 0


def test_persistence_nearly_bounds_it_from_above_and_the_steepest_form_pulls_it_down():
    made = curved(LOSSY, "unknown")
    low, high = log_ends(made, 256, between_run_noise(made.points))
    middle = math.log(made.rate(256))
    persist = math.log(made.persist(256)) - middle
    steepest = min(math.log(fit.rate(256)) for fit in made.two_term) - middle
    assert TABLE_WIDTH.above.share * persist < high < persist + 0.02
    assert low < TABLE_WIDTH.below.share * steepest - 0.02


def test_a_plateau_is_not_promised_a_full_doubling():
    """T = A/N + C far beyond the knee: each step bought less than 25 %, so the next does not buy 100 %."""
    values = {n: 1 / (16 / n + 1) for n in (16, 32, 64, 128)}
    made = curved({n: v * 1e3 for n, v in values.items()}, "strong")
    low, high = log_ends(made, 256, between_run_noise(made.points))
    middle = math.log(made.rate(256))
    assert middle + high < math.log(made.points[-1].rate) + 0.7 * math.log(2)
    assert middle + low < math.log(1e3 / (16 / 256 + 1)) < middle + high


def test_it_widens_with_the_reach_and_with_residuals():
    widths = [high - low for low, high in (ends(LOSSY, size) for size in (128, 192, 256, 512))]
    assert widths == sorted(widths)
    ragged = {n: v * (1.02 if i % 2 else 0.98) for i, (n, v) in enumerate(LOSSY.items())}
    assert ends(ragged, 256)[1] > ends(LOSSY, 256)[1] + 0.01


@pytest.mark.parametrize("gpus", [96, 8])
def test_inside_and_below_the_data_the_noise_is_the_same_on_both_sides(gpus):
    low, high = ends({16: 160.0, 32: 320.0, 64: 640.0, 128: 1280.0}, gpus)
    assert -low == pytest.approx(high, rel=1e-3)


def test_measured_noise_replaces_that_of_tables_on_both_sides():
    quiet, loud = (ends(LOSSY, 256, noise_ratio=ratio) for ratio in (0.002, 0.04))
    assert quiet[0] > ends(LOSSY, 256)[0]
    assert loud[1] > ends(LOSSY, 256)[1] + 0.04
    assert loud[0] < quiet[0] - 0.04


def test_the_band_of_the_chart_ends_in_the_interval_of_the_prediction():
    for more in ({}, {"noise_ratio": 0.01}):
        made = curve(LOSSY, **more)
        result = analyse(made, sizes=(256,))
        value, low, high = band(made, result.curved, 256)
        assert (value, (low, high)) == (result.predictions[0].value, result.predictions[0].interval)


def test_prior_is_said_to_be_one():
    assert between_run_noise(curved(LOSSY).points) == Noise(0.01, "default for tables", measured=False)


@pytest.fixture(scope="module")
def clean_tables():
    if not TABLES.is_file():
        pytest.skip(f"no published tables at {TABLES}")
    found = [t for t in yaml.safe_load(TABLES.read_text())["tables"] if t.get("leave_last_out")]
    return [t for t in found if not t["class"].startswith("trap") and t["class"] not in ("time_to_train", "two_points")]


@pytest.mark.parametrize(
    "classes", [("weak_near_linear",), ("weak_visible_loss", "strong"), ("tier_cliff",)], ids=lambda c: c[0]
)
def test_largest_sizes_of_published_tables_lie_within(clean_tables, classes):
    errors, held, half = [], [], []
    for table in (t for t in clean_tables if t["class"] in classes):
        split, unit = table["leave_last_out"], read_unit(table["unit"])
        values = {p["gpus"]: float(p["value"]) for p in table["points"]}
        rows = [ScalingRow(place=str(n), gpus=n, value=values[n]) for n in split["train_gpus"]]
        made = build_curve(rows, unit=unit.label, kind=unit.kind, seconds=unit.seconds)
        (found,) = analyse(made, sizes=(split["test_gpus"],)).predictions
        truth = values[split["test_gpus"]]
        errors.append(abs(found.value / truth - 1))
        held.append(found.interval[0] <= truth <= found.interval[1])
        half.append(math.log(found.interval[1] / found.interval[0]) / 2)
    assert sum(held) / len(held) >= 0.85
    assert sorted(half)[len(half) // 2] <= (0.1 if classes == ("tier_cliff",) else 0.04)
    if classes != ("tier_cliff",):
        assert sorted(errors)[len(errors) // 2] <= 0.025
