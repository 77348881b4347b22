"""The replayed schedule: calls that queue on a stream, pauses that communication hides, and what is priced."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from cross_support import CALL_SCHEMA

from diagnose.analysis.cross import replay as replay_module
from diagnose.analysis.cross.removals import gap_removal
from diagnose.analysis.cross.replay import levels_of, replay
from diagnose.analysis.cross.schedule import build_schedule
from diagnose.analysis.cross.what_if import Inputs, what_if

MS = 1_000_000
PAUSE = 1000


def call(rank, number, start, end, ready, exposed=None):
    low, high = exposed or (0, 0)
    return {
        "rank": rank, "call": number, "step": 0, "stream": 9, "start_ns": start * MS, "dur_ns": (end - start) * MS, "ready_ns": ready * MS,
        "collective": "all_reduce", "is_p2p": False, "exposed_from_ns": [low * MS] if exposed else [], "exposed_to_ns": [high * MS] if exposed else [],
        "exposed_late_ns": [low * MS] if exposed else [],
    }  # fmt: skip


@pytest.fixture
def paused():
    """Two ranks of 100 ms of compute and two gradient buckets of 10 ms behind it; rank 0 stands still for a second first.

    Rank 1 has long posted both buckets: the first waits for rank 0, the second queues behind it.
    """
    rows = [
        call(0, 0, 1040, 1050, 1040), call(0, 1, 1080, 1090, 1080),
        call(1, 0, 40, 1050, 40, (60, 1010)), call(1, 1, 1050, 1090, 80, (0, 40)),
    ]  # fmt: skip
    calls = pl.DataFrame(rows, schema=CALL_SCHEMA | {"ready_ns": pl.Int64})
    members = pl.DataFrame(
        {"instance": [0, 0, 1, 1], "rank": [0, 1, 0, 1], "call": [0, 0, 1, 1], "start_ns": [t * MS for t in (1040, 40, 1080, 1050)]},
        schema_overrides={"rank": pl.Int32},
    )  # fmt: skip
    collective = pl.DataFrame(
        {"instance": [0, 1], "transfer_ns": [10 * MS] * 2, "msg_bytes": [10**7] * 2, "alpha_ns": [None] * 2, "fixed_ns": [1e6] * 2,
         "median_ns": [1e7] * 2},
        schema_overrides={"alpha_ns": pl.Float64},
    )  # fmt: skip
    steps = pl.DataFrame(
        {"rank": [0, 1], "step": [0, 0], "start_ns": [0, 0], "end_ns": [1100 * MS, 1090 * MS]},
        schema_overrides={"rank": pl.Int32},
    )
    return build_schedule(calls, members, collective, steps)


@pytest.fixture
def gaps():
    return pl.DataFrame(
        {
            "rank": [0],
            "step": [0],
            "start_ns": [20 * MS],
            "dur_ns": [PAUSE * MS],
            "cause": ["host"],
            "detail": ["gc"],
            "cause_ns": [PAUSE * MS],
        },
        schema_overrides={"rank": pl.Int32},
    )


@pytest.fixture
def parts():
    """Communication hid the pause from the idle time of the rank."""
    idle = {name: [0, 0] for name in ("idle_input_ns", "idle_host_ns", "idle_gc_ns", "idle_allocator_ns")}
    work = {"rank": [0, 1], "step": [0, 0], "local_work_ns": [1100 * MS, 100 * MS], "compute_ns": [100 * MS] * 2}
    return pl.DataFrame(work | idle, schema_overrides={"rank": pl.Int32})


@pytest.mark.parametrize("wide", [0, 64])
def test_without_the_pause_the_queued_bucket_runs_behind_the_compute(paused, parts, gaps, wide, monkeypatch):
    monkeypatch.setattr(replay_module, "_WIDE", wide)
    levels = levels_of(paused)
    assert (levels is None) == (wide > 0)

    assert replay(paused, None, levels) == pytest.approx(1100 * MS)
    assert replay(paused, gap_removal(paused, parts, gaps, "idle_gc_ns"), levels) == pytest.approx(100 * MS)


def inputs(schedule, parts, gaps, alpha, fixed):
    count = len(schedule.transfer_ns)
    ranks = pl.DataFrame(
        schema={"rank": pl.Int32, "role": pl.Int32, "verdict": pl.String, "cause": pl.String, "slow_steps": pl.List(pl.Int64),
                "reference_ns": pl.Int64, "work_ns": pl.Int64}
    )  # fmt: skip
    typical = pl.DataFrame(
        {"rank": [0], "step": [0], "typical_ns": [1.0], "actual_ns": [1.0]}, schema_overrides={"rank": pl.Int32}
    )
    return Inputs(
        parts, typical, ranks, gaps, np.full(count, alpha), np.full(count, fixed), schedule.median_ns, 1100 * MS
    )


@pytest.mark.parametrize(
    ("alpha", "fixed", "priced"),
    [
        (np.nan, 1e6, {"bandwidth_x2"}),
        (np.nan, 6e6, set()),
        (2e6, 2e6, {"bandwidth_x2", "latency_zero"}),
        (8e6, 8e6, {"bandwidth_x2", "latency_zero"}),
    ],
)
def test_fixed_cost_and_bandwidth_are_priced_where_they_can_be_told_apart(paused, parts, gaps, alpha, fixed, priced):
    rows, explained = what_if(paused, inputs(paused, parts, gaps, alpha, fixed))

    assert explained == pytest.approx(1.0, abs=1e-6)
    assert set(rows.get_column("scenario")) & {"bandwidth_x2", "latency_zero"} == priced


def test_a_replay_that_misses_the_step_prices_nothing(paused, parts, gaps):
    off = paused._replace(observed_ns=paused.observed_ns * 1.06)

    rows, explained = what_if(off, inputs(off, parts, gaps, 1e6, 1e6))

    assert rows.is_empty()
    assert explained == pytest.approx(1 / 1.06)
