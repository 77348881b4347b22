"""What the verdict says of a job that stopped, and of losses that strike a few steps."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.analysis.summary import JobSummary
from diagnose.config import Config
from diagnose.findings.facts import Facts
from diagnose.findings.rules import RuleBook
from diagnose.findings.verdict import judge
from diagnose.model import Finding, Impact
from diagnose.units import glue_units

STEP_NS = 200_000_000


class NoTables:
    """A store in which nobody is slow."""

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        return pl.DataFrame({"value": ["gloo" if "backend" in sql else None]})

    def frame(self, name: str) -> pl.DataFrame:
        return pl.DataFrame()


FACTS = Facts(NoTables(), RuleBook(), Config(), 4, STEP_NS)


def summary() -> JobSummary:
    values = dict.fromkeys(JobSummary._fields)
    breakdown = {"compute_ns": 190_000_000, "exposed_comm_ns": 5_000_000, "exposed_wait_ns": 0}
    values |= {
        "step_ns": STEP_NS,
        "span_ns": STEP_NS,
        "steps_used": 5,
        "blocking_ns": 4_000_000,
        "breakdown": breakdown,
    }
    return JobSummary(**values)


FREE = Impact()


def finding(cause: str, impact: Impact = FREE, **more: object) -> Finding:
    base: dict[str, object] = {"code": "X", "title": "Something", "severity": "critical", "message": ""}
    return Finding(**(base | more), cause=cause, impact=impact)


@pytest.mark.parametrize(
    ("lost", "rare", "ratio"), [(50, False, 0.25), (50, True, 0.2), (1600, True, 0.8889), (600, False, 0.75)]
)
def test_no_loss_is_more_than_the_whole_step(lost: int, rare: bool, ratio: float) -> None:
    impact = FACTS.impact(lost * 1_000_000, rare=rare)

    assert impact.step_ratio == ratio
    assert impact.gpu_hours_per_day == pytest.approx(24 * 4 * ratio, abs=0.01)


def test_a_job_that_stopped_says_so_first() -> None:
    stop = finding("hang", title="A rank was killed", ranks=(2,), hosts=("node2",))

    verdict = judge(FACTS, summary(), [stop])

    assert verdict.bottleneck == "compute"
    assert verdict.text.startswith(
        "The job stopped: a rank was killed (rank 2 on node2). Until then: compute sets the pace"
    )


def test_a_pause_in_one_step_is_told_as_an_average() -> None:
    pause = finding(
        "gc_pause",
        FACTS.impact(1_600_000_000, rare=True),
        title="Pauses: rank 1",
        ranks=(1,),
        steps=(22,),
        persistence="transient",
    )

    verdict = judge(FACTS, summary(), [pause])

    assert verdict.bottleneck == "straggler"
    assert verdict.text.startswith("Pauses: rank 1: 1.60 s a step on average (89 %), in 1 of 5 steps.")


def test_units_stay_with_their_numbers() -> None:
    assert (
        glue_units("364 ms of 1.2 s (64 %), 5 steps at 3 GB/s, 2 x 4", "_")
        == "364_ms of 1.2_s (64_%), 5 steps at 3_GB/s, 2_x 4"
    )
