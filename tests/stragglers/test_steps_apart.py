"""Steps laid on top of one another are told apart by times alone."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from known_jobs import JOBS
from pipeline_job import simulate

from diagnose.analysis.cross.clocks import fit_clocks
from diagnose.analysis.cross.hidden_waits import Kernels, as_collectives, hidden_waits, without_hidden
from diagnose.analysis.cross.schedule_parts import causal_order, gained, pauses_before
from diagnose.analysis.rank.step_joins import tell_apart
from diagnose.analysis.rank.step_tracks import Work

MS = 1_000_000


def overlaid(steps):
    """All steps of one rank from one zero: the work in order of start, the step of each, the windows."""
    rows = [(one.start, one.end, one.name, one.stream, step) for step, done in enumerate(steps) for one in done]
    rows.sort(key=lambda row: (row[0], row[1]))
    kinds = {kind: code for code, kind in enumerate(sorted({(row[2], row[3]) for row in rows}))}
    streams = {stream: code for code, stream in enumerate(sorted({row[3] for row in rows}))}
    start, end = (np.array([round(row[place] * 1000) for row in rows]) for place in (0, 1))
    work = Work(
        start, end, np.array([kinds[row[2], row[3]] for row in rows]), np.array([streams[row[3]] for row in rows])
    )
    truth = np.array([row[4] for row in rows])
    opens = np.array([start[truth == step].min() - 50_000 for step in range(len(steps))])
    closes = np.array([end[truth == step].max() - 10_000 for step in range(len(steps))])
    order = np.argsort(opens)
    return work, np.argsort(order)[truth], opens[order].tolist(), closes[order].tolist()


@pytest.mark.parametrize("name", ["uneven", "uneven_even_stages"])
def test_steps_of_uneven_data_come_out_as_they_were(name):
    for steps in simulate(JOBS[name]).values():
        work, truth, opens, closes = overlaid(steps)
        found = tell_apart(work, opens, closes)
        assert found is not None
        assert np.mean(found == truth) >= 0.85


@pytest.mark.parametrize("name", sorted(JOBS))
def test_every_step_fills_its_window_and_runs_one_thing_at_a_time_on_a_stream(name):
    for steps in simulate(JOBS[name]).values():
        work, _, opens, closes = overlaid(steps)
        found = tell_apart(work, opens, closes)
        assert found is not None
        for step, (opened, closed) in enumerate(zip(opens, closes, strict=True)):
            mine = found == step
            span = work.end_ns[mine].max() - work.start_ns[mine].min()
            assert span == pytest.approx(closed - opened, rel=0.02)
            for stream in np.unique(work.stream):
                here = mine & (work.stream == stream)
                assert (work.start_ns[here][1:] >= work.end_ns[here][:-1] - 10_000).all()
            assert np.bincount(work.kind[mine]).tolist() == (np.bincount(work.kind) / len(opens)).tolist()


def test_steps_with_different_programs_are_left_alone():
    work, _, opens, closes = overlaid(simulate(JOBS["even"])[0])
    fewer = Work(*(column[1:] for column in work))
    assert tell_apart(fewer, opens, closes) is None


def kernels(ends_together: bool) -> pl.DataFrame:
    rows = []
    for step in range(4):
        for rank in range(4):
            start, late = step * 1000 * MS, 50 * rank * MS
            end = start + 300 * MS if ends_together else start + late + (100 + 7 * rank) * MS
            rows.append((rank, step, 7, "gemm", start - 200 * MS, (200 + 50 * rank) * MS))
            rows.append((rank, step, 7, "norm", start + late, end - start - late))
    return pl.DataFrame(rows, schema=["rank", "step", "stream", "name", "start_ns", "dur_ns"], orient="row")


def whole(frame: pl.DataFrame) -> Kernels:
    return Kernels(frame, sorted(frame["rank"].unique().to_list()), float(frame["dur_ns"].sum()))


def test_kernels_that_end_together_are_waits():
    hidden = hidden_waits(whole(kernels(ends_together=True)), {}, [[0, 1], [2, 3]])
    assert hidden.get_column("name").unique().to_list() == ["norm"]
    assert hidden.group_by("instance").len().get_column("len").to_list() == [4] * 4
    assert hidden.filter(pl.col("rank") == 0).get_column("wait_ns").to_list() == [150 * MS] * 4
    assert hidden.filter(pl.col("rank") == 3).get_column("wait_ns").to_list() == [0] * 4
    more = as_collectives(hidden)
    assert len(more.members) == 16
    assert more.collective.get_column("median_ns").to_list() == [150 * MS] * 4


def test_kernels_that_end_when_they_are_done_are_work():
    assert hidden_waits(whole(kernels(ends_together=False)), {}, []).is_empty()
    assert hidden_waits(whole(kernels(ends_together=True).clear()), {}, []).is_empty()


def test_kernels_that_end_together_on_half_of_the_ranks():
    table = kernels(ends_together=True).with_columns(
        pl.col("start_ns") + pl.when(pl.col("rank") > 1).then(80 * MS).otherwise(0)
    )
    hidden = hidden_waits(whole(table), {}, [[0, 1], [2, 3]])
    assert hidden.group_by("instance").len().get_column("len").to_list() == [2] * 8
    shifted = hidden_waits(whole(table), {2: -80 * MS, 3: -80 * MS}, [])
    assert shifted.group_by("instance").len().get_column("len").to_list() == [4] * 4


def test_hidden_waits_move_from_compute_to_waiting():
    hidden = hidden_waits(whole(kernels(ends_together=True)), {}, [])
    names = ("compute_ns", "local_work_ns", "exposed_comm_ns", "exposed_wait_ns", "comm_ns")
    parts = pl.DataFrame(
        [
            {"rank": 0, "step": 1, **dict.fromkeys(names, 400 * MS)},
            {"rank": 9, "step": 1, **dict.fromkeys(names, 400 * MS)},
        ]
    )
    after = without_hidden(parts, hidden)
    assert after.row(0, named=True) == {
        "rank": 0,
        "step": 1,
        **dict.fromkeys(names[:2], 250 * MS),
        **dict.fromkeys(names[2:], 550 * MS),
    }
    assert after.row(1) == parts.row(1)


def test_a_block_comes_after_the_arrivals_that_it_waits_for():
    # rank 0: arrives in 0, blocks on 0; rank 1: arrives in 0 late, by its clock after rank 0's block
    rank, instance = np.array([0, 0, 1]), np.array([0, 0, 0])
    arrives, blocks = np.array([True, False, True]), np.array([False, True, False])
    assert causal_order(np.array([0, 1, 2]), arrives, blocks, rank, instance).tolist() == [0, 2, 1]


def test_ranks_that_wait_for_each_other_go_on():
    rank, instance = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    blocks = np.array([True, False, True, False])
    order = causal_order(np.array([0, 2, 1, 3]), ~blocks, blocks, rank, instance)
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert order.tolist().index(0) < order.tolist().index(1)


def test_time_between_steps_is_taken_out():
    steps = pl.DataFrame(
        {"rank": [0, 1, 0, 1], "step": [9, 9, 3, 3], "start_ns": [0, 5, 1000, 1010], "end_ns": [90, 100, 1090, 1100]}
    )
    assert pauses_before(steps).rows() == [(9, 0), (3, 900)]


def test_typical_kernels_change_progress_in_proportion():
    start, end, typical = np.array([100, 150]), np.array([200, 250]), np.array([50.0, 200.0])
    # the second counts where the first has ended: from 200 to 250, twice as long
    assert gained(start, end, typical, np.array([0, 100, 150, 200, 225, 250, 400])).tolist() == [
        0,
        0,
        -25,
        -50,
        -25,
        0,
        0,
    ]
    assert gained(start[:0], end[:0], typical[:0], np.array([400])).tolist() == [0]


def test_clocks_that_nothing_ties_together_stay_as_they_are():
    rows = [
        {"instance": 10 * group + turn, "rank": rank, "start_ns": turn * 3_000 * MS + 700 * MS * group + (rank % 2) * 40_000, "dur_ns": 20_000, "collective": "all_reduce", "size": 2}
        for group in range(3) for turn in range(9) for rank in (2 * group, 2 * group + 1)
    ]  # fmt: skip
    clocks = fit_clocks(pl.DataFrame(rows), {rank: f"rank{rank}" for rank in range(6)})
    offsets = dict(clocks.table.select("host", "offset_ns").iter_rows())
    assert [offsets[f"rank{rank}"] for rank in (0, 2, 4)] == [0, 0, 0]
    assert [offsets[f"rank{rank}"] for rank in (1, 3, 5)] == [pytest.approx(40_000, abs=500)] * 3
