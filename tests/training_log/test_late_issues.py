"""Slow steps that no profile covers, and the rank whose late collectives explain them."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.analysis.comm_audit.late_issues import late_ranks

MS = 1_000_000
STEPS = 40
START_NS = 1_700_000_000_000_000_000
SLOW = (12, 13, 30)


def run(
    slow: tuple[int, ...] = SLOW, late_ms: int = 300, longer_ms: int = 300, ranks: int = 4, culprit: int = 2
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Issues and log of steps of 200 ms with two collectives each; some last longer, a rank issuing late in them."""
    issues, log, now = [], [], START_NS
    for step in range(STEPS):
        late = late_ms if step in slow else 0
        for place in range(2):
            for rank in range(ranks):
                at = now + (50 + 60 * place + rank + (late if rank == culprit else 0)) * MS
                issues.append({"comm_group": "0", "seq": 2 * step + place, "rank": rank, "created_ns": at})
        length = 200 + (longer_ms if step in slow else 0)
        now += length * MS
        log.append({"step": step, "t_ns": now, "step_time_ns": length * MS})
    return pl.DataFrame(issues), pl.DataFrame(log)


def test_the_late_rank_is_named_with_its_steps() -> None:
    (found,) = late_ranks(*run(), [], ())

    assert (found.rank, found.steps, found.logged_steps) == (2, SLOW, STEPS)
    assert found.lost_ns == pytest.approx(3 * 299 * MS, abs=5 * MS)
    assert found.longest_ns == pytest.approx(299 * MS, abs=2 * MS)


def test_lateness_that_explains_little_of_the_step_accuses_nobody() -> None:
    """A slow link makes ranks late as well, and the step longer by far more."""
    assert late_ranks(*run(late_ms=100, longer_ms=800), [], ()) == []


def test_steps_that_are_judged_elsewhere_are_left_alone() -> None:
    issues, log = run()
    ends = dict(log.select("step", "t_ns").iter_rows())

    (found,) = late_ranks(issues, log, [(ends[8], ends[11] - MS)], ())
    assert found.steps == (13, 30)  # saving the trace falls into the step after the profile
    assert late_ranks(issues, log, [(ends[11] - MS, ends[13])], (30,)) == []


@pytest.mark.parametrize(
    "what", [{"slow": tuple(range(10, 40, 2))}, {"slow": (0, 1)}, {"ranks": 2, "culprit": 1}, {"culprit": 9}]
)
def test_nothing_is_said_of_how_the_job_always_runs_or_without_evidence(what: dict[str, object]) -> None:
    assert late_ranks(*run(**what), [], ()) == []  # type: ignore[arg-type]


def test_no_input_at_all() -> None:
    issues, log = run()
    assert late_ranks(issues.clear(), log, [], ()) == late_ranks(issues, pl.DataFrame(), [], ()) == []
