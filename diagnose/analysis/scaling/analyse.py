"""The whole analysis of a curve: select, fit, predict, answer. Pure: no files, no printing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from diagnose.analysis.scaling import answers, parts, predict, targets
from diagnose.analysis.scaling.classics import Classic, classics
from diagnose.analysis.scaling.ensemble import Curved, choose
from diagnose.analysis.scaling.interval import Noise, between_run_noise
from diagnose.analysis.scaling.select import Selection, Warned, select
from diagnose.analysis.scaling.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.one_run import Estimate
    from diagnose.analysis.scaling.table import Curve

LARGE_RESIDUAL = 0.05
"""A point the curve misses by more than 5 % is named: re-measure."""

LARGE_SPREAD = 0.1
"""Repeats that differ by more than 10 % are named: equal runs differ by about 1 %."""


class Goals(NamedTuple):
    """What the user wants beyond the curve. ``work`` is in units of work: tokens or samples, steps for step times."""

    cost_per_gpu_hour: float | None = None
    deadline_hours: float | None = None
    budget: float | None = None
    work: float | None = None


NO_GOALS = Goals()


class ScalingResult(NamedTuple):
    """Everything the reports show. Answers are null where the points on the curve are fewer than they need."""

    curve: Curve
    selection: Selection
    curved: Curved | None
    classics: tuple[Classic, ...]
    measured: tuple[answers.Measured, ...]
    predictions: tuple[predict.Prediction, ...]
    efficiency_floor: answers.Threshold | None
    plateau: answers.Threshold | None
    peak: answers.Threshold | None
    targets: tuple[targets.Target, ...]
    bend: parts.Bend | None
    noise: Noise
    warnings: tuple[Warned, ...]
    model_estimate: Estimate | None = None


def analyse(
    curve: Curve, *, sizes: Sequence[int] = (), goals: Goals = NO_GOALS, model_estimate: Estimate | None = None
) -> ScalingResult:
    """Analyse a curve. ``sizes`` are to be predicted; without any, twice the largest size is, unless there is one only."""
    selection = select(curve)
    used = selection.used
    warnings = list(selection.warnings)
    if selection.refused or not used:
        refusals = [
            predict.Prediction(size, None, None, "none", selection.refused or "no comparable points")
            for size in sorted(set(sizes))
        ]
        return ScalingResult(
            curve,
            selection,
            None,
            (),
            _measured_anyway(curve),
            tuple(refusals),
            None,
            None,
            None,
            (),
            None,
            between_run_noise(curve.points),
            tuple(warnings),
            model_estimate,
        )
    curved = choose(used, curve.type)
    warnings += _about_fit(curve, curved)
    if goals.cost_per_gpu_hour is not None and curve.scale == "nodes":
        text = "price: sizes are nodes, so the price is taken for one node and hour, not for one GPU"
        warnings.append(Warned("price_per_node", text, doubt=False))
    doubt = any(warned.doubt for warned in warnings)
    wanted = list(sizes) or ([used[-1].gpus * 2] if len(used) > 1 else [])
    return ScalingResult(
        curve=curve,
        selection=selection,
        curved=curved,
        classics=tuple(classics(used)),
        measured=tuple(answers.measured(used, seconds=curve.seconds, cost_per_gpu_hour=goals.cost_per_gpu_hour)),
        predictions=tuple(predict.predict(curve, curved, wanted, doubt=doubt)),
        efficiency_floor=answers.efficiency_floor(curved, curve.scale),
        plateau=answers.plateau(curved, curve.scale),
        peak=answers.peak(curved, curve.scale),
        targets=tuple(_targets(curve, curved, goals)),
        bend=parts.bend(used, curve.type),
        noise=between_run_noise(used),
        warnings=tuple(warnings),
        model_estimate=model_estimate,
    )


def _measured_anyway(curve: Curve) -> tuple[answers.Measured, ...]:
    """Speed-ups of a refused curve: they were measured, whatever they mean."""
    by_size = {point.gpus: point for point in sorted(curve.points, key=lambda point: point.rate)}
    return tuple(answers.measured([by_size[size] for size in sorted(by_size)], seconds=None, cost_per_gpu_hour=None))


def _about_fit(curve: Curve, curved: Curved) -> list[Warned]:
    warnings = []
    if len(curved.points) == 1:
        warnings.append(
            Warned(
                "one_point",
                f"one comparable point only ({curved.points[0].gpus}): no curve and no efficiency; measure two "
                "more sizes",
            )
        )
    if len(curved.points) == 2:
        low, high = curved.points
        kept = (high.rate / high.gpus) / (low.rate / low.gpus)
        warnings.append(
            Warned(
                "two_points",
                f"two points only ({low.gpus} and {high.gpus}): no curve can be fitted, only the efficiency "
                f"{percent(kept, 1)} between them is known; "
                "a prediction within twice the larger is an estimate from it; measure a third size",
            )
        )
    for point in curved.points:
        if point.repeats and (spread := max(point.repeats) / min(point.repeats) - 1) > LARGE_SPREAD:
            text = f"repeats: the measurements of {point.gpus} differ by {percent(spread)}: are they the same job?"
            warnings.append(Warned("repeats_differ", text))
    gpus, residual = curved.largest_residual
    if abs(residual) > LARGE_RESIDUAL and len(curved.points) > 2:
        warnings.append(
            Warned(
                "residual",
                f"outlier: the curve misses {gpus} by {percent(abs(residual), 1)}; re-measure it, or check that its "
                "configuration is the same",
            )
        )
    if curve.type == "unknown" and len(curved.points) > 2:
        warnings.append(
            Warned(
                "type_unknown",
                "weak or strong scaling is not stated: both forms are fitted and weighted by how well they fit; "
                "say --type weak or --type strong",
                doubt=False,
            )
        )
    return warnings


def _targets(curve: Curve, curved: Curved, goals: Goals) -> list[targets.Target]:
    found: list[targets.Target] = []
    price = goals.cost_per_gpu_hour
    if goals.work is None or curve.seconds is None or len(curved.points) < 2:
        return found
    if goals.deadline_hours is not None:
        found.append(targets.deadline_target(curve, curved, hours=goals.deadline_hours, work=goals.work, price=price))
    if goals.budget is not None and price is not None:
        found.append(targets.budget_target(curve, curved, budget=goals.budget, work=goals.work, price=price))
    return found
