from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from diagnose.analysis.compare.compare import Options, compare_runs, refusals
from diagnose.analysis.compare.facts import Work
from diagnose.findings.compare import changed_findings, compare_findings
from diagnose.findings.rules import RuleBook
from diagnose.model import Finding, Impact
from diagnose.report.compare_document import document, encode

if TYPE_CHECKING:
    from diagnose.analysis.compare.facts import RunFacts

Facts = "Callable[..., RunFacts]"


@pytest.fixture(scope="session")
def healthy(facts_of: Facts) -> list[RunFacts]:
    return [facts_of(f"base{seed}", seed=seed) for seed in range(3)]


def test_equal_runs_change_nothing(healthy: list[RunFacts], facts_of: Facts) -> None:
    found = compare_runs(healthy, [facts_of(f"again{seed}", seed=seed) for seed in (13, 14, 15)])
    assert found.outcome.change == "equivalent"
    assert found.outcome.text.startswith("No change beyond 2.0 %")
    assert found.attribution.part is None
    assert not any(item.changed for item in (*found.parts, *found.kernels, *found.collectives, *found.ranks))


def test_one_equal_run_is_no_regression_and_the_bound_is_stated(healthy: list[RunFacts], facts_of: Facts) -> None:
    found = compare_runs(healthy[:1], [facts_of("again10", seed=10)])
    assert found.outcome.change == "inconclusive"
    assert 0.02 < found.outcome.bound_ratio < 0.06
    assert "standard deviation of 1.0 % between runs is assumed" in found.outcome.detail


def test_slower_kernels_everywhere_are_compute(healthy: list[RunFacts], facts_of: Facts) -> None:
    found = compare_runs(healthy, [facts_of(f"slow{seed}", seed=seed, slow=1.15) for seed in (20, 21, 22)])
    assert found.outcome.change == "regression"
    assert 0.12 < found.outcome.effect_ratio < 0.16
    low, high = found.outcome.interval
    assert low < found.outcome.effect_ratio < high
    assert (found.attribution.part, found.attribution.ranks) == ("compute", ())
    kernel = found.kernels[0]
    assert (kernel.name, kernel.changed, kernel.count_base, kernel.count_new) == (
        "gemm_kernel<128, 64>",
        True,
        1.0,
        1.0,
    )
    assert kernel.ratio == pytest.approx(0.15, abs=0.02)


def test_one_slow_rank_is_named_and_the_others_wait(facts_of: Facts) -> None:
    base = [facts_of(f"four{seed}", seed=seed, ranks=4) for seed in range(2)]
    found = compare_runs(base, [facts_of(f"lame{seed}", seed=seed, ranks=4, slow=1.3, straggler=2) for seed in (5, 6)])
    assert found.outcome.change == "regression"
    assert found.attribution.part == "compute"
    assert found.attribution.ranks == (2,)
    assert found.attribution.others_wait
    assert "on rank 2" in found.attribution.text
    assert [item.rank for item in found.ranks if item.changed] == [2]
    waiting = next(item for item in found.parts if item.part == "exposed_wait" and item.view == "median")
    assert waiting.changed
    assert found.kernels[0].rank == 2


def test_faster_is_an_improvement(healthy: list[RunFacts], facts_of: Facts) -> None:
    found = compare_runs(healthy, [facts_of("fast", seed=4, slow=0.8)])
    assert found.outcome.change == "improvement"
    assert "less" in found.attribution.text
    assert compare_findings(found, RuleBook()) == []


def test_another_size_is_refused_with_the_reason(healthy: list[RunFacts], facts_of: Facts) -> None:
    assert refusals(healthy[:1], [facts_of("four0", seed=0, ranks=4)]) == [
        "four0 against base0: world size 2 against 4"
    ]


def test_other_kernels_are_another_model_unless_vouched_for(healthy: list[RunFacts]) -> None:
    other = healthy[1]._replace(
        kernels=healthy[1].kernels.with_columns(name=pl.lit("conv"), signature=pl.lit(7, pl.Int64))
    )
    (reason,) = refusals(healthy[:1], [other])
    assert "other kernel set" in reason
    assert refusals(healthy[:1], [other], Options(same_model=True)) == []


def test_same_names_with_other_grids_are_other_shapes(healthy: list[RunFacts]) -> None:
    other = healthy[1]._replace(kernels=healthy[1].kernels.with_columns(signature=pl.lit(7, pl.Int64)))
    assert "other shapes" in refusals(healthy[:1], [other])[0]


def test_other_traffic_is_refused(healthy: list[RunFacts]) -> None:
    assert "other traffic" in refusals(healthy[:1], [healthy[1]._replace(comm_bytes=1e6)])[0]


def test_another_batch_is_refused_and_compared_per_unit_of_work(healthy: list[RunFacts]) -> None:
    base, new = (
        run._replace(work=Work(tokens, "tokens")) for run, tokens in zip(healthy, (1000.0, 2000.0), strict=False)
    )
    assert "other batch" in refusals([base], [new])[0]
    assert refusals([base], [new], Options(per_work=True)) == []
    found = compare_runs([base], [new], Options(per_work=True))
    assert found.outcome.change == "improvement"
    assert found.outcome.effect_ratio == pytest.approx(-0.5, abs=0.01)
    assert found.outcome.unit == "tokens"
    assert found.outcome.base_ns == pytest.approx((base.step_ns or 0) * 2 / 1000)


def test_work_that_nobody_logged_is_asked_for(healthy: list[RunFacts]) -> None:
    reasons = refusals(healthy[:1], healthy[1:2], Options(per_work=True))
    assert all("does not say how much work" in reason for reason in reasons)


def test_a_run_without_steps_is_refused(healthy: list[RunFacts]) -> None:
    assert "has no step time" in refusals(healthy[:1], [healthy[1]._replace(step_ns=None)])[0]


def test_settings_and_transports_that_differ_are_told(healthy: list[RunFacts]) -> None:
    before = healthy[0]._replace(
        settings={"NCCL version": "2.21", "env NCCL_ALGO": "Ring", "hosts": "a, b"},
        transports={"NET/IB/GDR": 8.0, "P2P": 8.0},
    )
    after = healthy[1]._replace(
        settings={"NCCL version": "2.27", "env NCCL_DEBUG": "INFO", "hosts": "a, b"},
        transports={"NET/Socket": 8.0, "P2P": 8.0},
    )
    found = compare_runs([before], [after])
    told = {item.what: (item.base, item.new) for item in found.configuration}
    assert told["NCCL version"] == ("2.21", "2.27")
    assert told["env NCCL_ALGO"] == ("Ring", "not set")
    assert "hosts" not in told
    assert {item.transport for item in found.transports if item.changed} == {"NET/IB/GDR", "NET/Socket"}
    codes = [finding.code for finding in compare_findings(found, RuleBook())]
    assert codes == ["COMPARE-TRANSPORT", "COMPARE-SETTING"]
    back = compare_findings(compare_runs([after], [before]), RuleBook())
    assert [finding.code for finding in back] == ["COMPARE-SETTING"]


def test_missing_ranks_leave_the_common_ones(facts_of: Facts) -> None:
    whole = facts_of("four0", seed=0, ranks=4)
    lost = whole._replace(
        ranks_seen=(0, 1, 3), ranks=whole.ranks.filter(pl.col("rank") != 2), critical=whole.critical.clear(),
        parts=whole.parts.with_columns(exposed_wait_ns=None, exposed_transfer_ns=None),
    )  # fmt: skip
    found = compare_runs([whole], [lost])
    assert {item.rank for item in found.ranks} == {0, 1, 3}
    assert any(item.part == "exposed_comm" for item in found.parts)
    assert any(gap.startswith("Ranks:") for gap in found.not_compared)


def test_the_same_runs_give_the_same_bytes(healthy: list[RunFacts], facts_of: Facts) -> None:
    new = [facts_of("slow20", seed=20, slow=1.15)]
    rules = RuleBook()
    assert encode(document(compare_runs(healthy, new), rules)) == encode(document(compare_runs(healthy, new), rules))


def finding(code: str, severity: str = "warning", ratio: float | None = 0.1, ranks: tuple[int, ...] = (1,)) -> Finding:
    return Finding(
        code=code,
        title=code.title(),
        severity=severity,
        cause="nic_slow",
        message="x",
        ranks=ranks,
        impact=Impact(1, ratio),
    )


def test_findings_are_new_worse_or_resolved_by_their_subject() -> None:
    before = [finding("A"), finding("B"), finding("C", ratio=0.05), finding("I", "info")]
    after = [finding("A"), finding("B", ranks=(2,)), finding("C", ratio=0.20), finding("J", "info")]
    changes = changed_findings([before], [after])
    assert [(item.code, item.ranks) for item in changes.new] == [("B", (2,))]
    assert [item.code for item in changes.worse] == ["C"]
    assert [(item.code, item.ranks) for item in changes.resolved] == [("B", (1,))]
    assert not changed_findings([before], [before])


def test_of_several_runs_a_finding_counts_when_all_have_it() -> None:
    assert not changed_findings([[finding("A")], []], [[finding("A")]])
    assert [item.code for item in changed_findings([[], []], [[finding("A")], [finding("A")]]).new] == ["A"]
    assert not changed_findings([[]], [[finding("A")], []]).new
