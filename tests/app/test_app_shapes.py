"""What charts and tables are given: few enough marks, nothing that stands out is lost, names that fit."""

from __future__ import annotations

import re

import catalog
import data
import polars as pl
import pytest
import shape
from split_bar import split_bar
from synthetic_store import write_store
from text import KERNEL_CHARACTERS, collect, short_kernels

from diagnose.report import view
from diagnose.units import format_ns, format_value


def cells(ranks, steps, **fields):
    """Values of all ranks and steps, all nearly nought but rank 7 in step 3."""
    rows = [(rank, step) for rank in range(ranks) for step in range(steps)]
    return pl.DataFrame({
        "rank": [rank for rank, _ in rows], "step": [step for _, step in rows], "host": [f"host{rank // 8:03d}" for rank, _ in rows],
        "value_ns": [-9e6 if (rank, step) == (7, 3) else float(rank % 5) for rank, step in rows], **fields,
    })  # fmt: skip


@pytest.mark.parametrize(("ranks", "steps"), [(8, 6), (72, 400), (1024, 20), (1024, 300), (4096, 50)])
def test_a_heat_map_keeps_the_extreme_and_stays_small(ranks, steps):
    shown = shape.heat(cells(ranks, steps), None)
    assert len(shown.rows) <= shape.MAX_CELLS + shape.MAX_HOST_ROWS
    assert shown.rows.get_column("column").n_unique() <= shape.MAX_COLUMNS
    worst = shown.rows.sort(pl.col("value_ns").abs()).row(-1, named=True)
    assert (worst["value_ns"], worst["rank"], worst["host"]) == (-9e6, 7, "host000")
    first, _, last = worst["column"].partition("–")
    assert int(first) <= 3 <= int(last or first)
    assert ("grouped by host" in shown.note) == (ranks > shape.MAX_ROWS)
    assert ("steps in groups" in shown.note) == (shown.rows.get_column("column").n_unique() < steps)


def test_a_host_shows_all_its_ranks():
    shown = shape.heat(cells(1024, 20), "host000")
    assert shown.rows.get_column("row").unique().sort().to_list() == [f"rank {rank}" for rank in range(8)]


def test_points_over_many_ranks_keep_the_furthest_and_the_chosen():
    frame = cells(9000, 4).filter(pl.col("step") == 3)
    shown = shape.thinned(frame, "value_ns", keep=8_123)
    assert len(shown.rows) <= shape.MAX_POINTS
    assert {7, 8_123} <= set(shown.rows.get_column("rank"))
    assert shape.thinned(frame.head(100), "value_ns").rows.equals(frame.head(100))


def test_kernel_names_fit_and_stay_different():
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, {}ul> >(int, X, Y)"
    names = ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", long.format(3), "gemm", "Memcpy HtoD (Pinned -> Device)"]  # fmt: skip
    short = short_kernels(names)
    assert short[0] == "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    assert short[1].startswith("at::native::vectorized")
    assert max(len(name) for name in short) <= KERNEL_CHARACTERS
    assert short[2:] == names[2:]
    twins = short_kernels(["f(int)", "f(float)"])
    assert twins == ["f(int)", "f(float)"]


def test_commands_keep_their_dashes():
    assert collect("sadf -d -- -A > x.csv") == "``sadf -d -- -A > x.csv``"
    assert "`" not in collect("traces of every rank")


@pytest.mark.parametrize(
    ("value", "unit", "words"), [(1e11, "bit/s", "100 Gbit/s"), (1.47e9, "Hz", "1.47 GHz"), (50, "Hz", "50 Hz"), (90.0, "degC", "90 degC")]
)  # fmt: skip
def test_large_rates_have_prefixes(value, unit, words):
    assert format_value(value, unit) == words


def test_the_bar_says_what_the_report_says(stores, monkeypatch):
    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(stores))
    parts = data.document(catalog.open_run(catalog.discover(stores), "slow_nic")).step_time.breakdown
    bar = split_bar(parts)
    for item in view.slices(parts):
        assert f"{item.part.label} <b>{format_ns(item.ns)}</b>" in bar
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar)]
    assert sum(widths) == pytest.approx(100, abs=0.1)


def test_many_ranks_are_typed_and_linked(tmp_path, open_app):
    write_store(tmp_path / "big.duckdb", ranks=300, steps=3, slow_rank=70, collectives=2)
    session = open_app(root=tmp_path, run="big")
    session.query_params["rank"] = "211"
    session.switch_page("app_pages/ranks.py").run()
    box = next(item for item in session.number_input if item.label.startswith("Rank"))
    assert box.value == 211
    box.set_value(4).run()
    assert session.query_params["rank"] == "4"
    assert not session.exception
    session.switch_page("app_pages/steps.py")
    session.query_params["rank"] = "4"
    session.run()
    assert next(item for item in session.number_input if item.label.startswith("Rank")).value == 4
