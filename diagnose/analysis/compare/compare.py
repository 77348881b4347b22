"""One call: two groups of runs to a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.compare.attribute import attribute
from diagnose.analysis.compare.comparable import why_not
from diagnose.analysis.compare.outcome import judge
from diagnose.analysis.compare.parts import Context, compare_hosts, compare_parts, compare_ranks
from diagnose.analysis.compare.result import Comparison, Side
from diagnose.analysis.compare.settings import compare_settings, compare_transports
from diagnose.analysis.compare.stats import PRIOR_SD
from diagnose.analysis.compare.work import compare_collectives, compare_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.compare.facts import RunFacts

MARGIN = 0.02


class Options(NamedTuple):
    """``margin``: changes within it do not matter. ``prior_sd``: how much equal runs differ, when too few say it."""

    margin: float = MARGIN
    prior_sd: float = PRIOR_SD
    per_work: bool = False
    same_model: bool = False


def refusals(base: Sequence[RunFacts], new: Sequence[RunFacts], options: Options = Options()) -> list[str]:  # noqa: B008 - a frozen tuple
    """Why these runs cannot be compared, one reason a line, each with the run it is about; empty when they can."""
    first = base[0]
    reasons = []
    for run in (*base[1:], *new):
        for reason in why_not(first, run, per_work=options.per_work, same_model=options.same_model):
            reasons.append(f"{run.name} against {first.name}: {reason}")  # noqa: PERF401 - two levels read better than one line
    return reasons


def compare_runs(base: Sequence[RunFacts], new: Sequence[RunFacts], options: Options = Options()) -> Comparison:  # noqa: B008 - a frozen tuple
    """Compare runs that `refusals` let pass.

    Args:
        base: at least one run to compare with.
        new: at least one run in question.
        options: margin, prior, unit.
    """
    if options.per_work:
        base = [run.per_unit(run.work.unit if run.work else "work") for run in base]
        new = [run.per_unit(run.work.unit if run.work else "work") for run in new]
    step = sum(run.time for run in base) / len(base)
    context = Context(tuple(base), tuple(new), step, options.prior_sd)
    outcome = judge(context, options.margin)
    parts = (*compare_parts(context, "median"), *compare_parts(context, "critical"))
    ranks = compare_ranks(context)
    hosts = compare_hosts(context, ranks)
    found = attribute(outcome, parts, ranks, hosts)
    culprit = found.ranks[0] if found.ranks and found.others_wait else None
    return Comparison(
        base=tuple(_side(run) for run in base), new=tuple(_side(run) for run in new), outcome=outcome, attribution=found, parts=parts, ranks=ranks,
        hosts=hosts, kernels=compare_kernels(context, culprit), collectives=compare_collectives(context), transports=compare_transports(base, new),
        configuration=compare_settings(base, new), not_compared=tuple(_gaps(context, parts)),
    )  # fmt: skip


def _side(run: RunFacts) -> Side:
    return Side(
        name=run.name, store=run.store, step_ns=run.step_ns or 0.0, steps_used=run.steps_used, error_ratio=run.error, world_size=run.world_size,
        work_per_step=None if run.work is None else run.work.per_step, start_ns=run.start_ns,
    )  # fmt: skip


def _gaps(context: Context, parts: Sequence[object]) -> list[str]:
    """What could not be looked at, and what would be needed."""
    runs = (*context.base, *context.new)
    gaps = []
    if not parts:
        gaps.append("Parts of the step: not every run has traces with steps.")
    elif not all(len(run.critical) for run in runs):
        gaps.append(
            "Waiting against transfer: collectives of some ranks are missing in at least one run, so only their sum is compared."
        )
    if any(run.kernels.is_empty() for run in runs):
        gaps.append("Kernels: at least one run has none.")
    if not all(run.transports for run in runs):
        gaps.append("Transports and environment: not every run has communication logs (NCCL_DEBUG=INFO).")
    if len({run.ranks_seen for run in runs}) > 1:
        gaps.append("Ranks: not all runs have the same ranks; the common ones are compared.")
    return gaps
