"""Where the time went: parts of the step, ranks, hosts; each a family of its own under Holm's correction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.compare.facts import LOCAL_PARTS, PARTS, RunFacts
from diagnose.analysis.compare.result import HostItem, PartItem, RankItem
from diagnose.analysis.compare.stats import ALPHA, PRIOR_SD, Effect, Sample, difference, holm, median_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal

    from numpy.typing import NDArray

SMALLEST_STEP_RATIO = 0.002
"""A part below this share of the step on both sides is not tested, and a smaller change not called one."""
SMALLEST_RANK_RATIO = 0.01
"""A rank that fell behind the others by less holds nobody up."""

REFERENCE = 0.25


class Context(NamedTuple):
    """Both sides and the scale of everything: the mean time of the base side."""

    base: tuple[RunFacts, ...]
    new: tuple[RunFacts, ...]
    step: float
    prior_sd: float = PRIOR_SD


def compare_parts(context: Context, view: Literal["median", "critical"]) -> tuple[PartItem, ...]:
    """Every part both sides know, largest change first."""
    columns = _known(context, view)
    samples = {
        part: (_sample(context, context.base, part, view), _sample(context, context.new, part, view))
        for part in columns
    }
    tested = {
        part: effect
        for part, (base, new) in samples.items()
        if (effect := _tested(base, new, context.prior_sd)) is not None
    }
    corrected = dict(zip(tested, holm([effect.p_value for effect in tested.values()]), strict=True))
    items = []
    for part, (base, new) in samples.items():
        fields = item_fields(context, base, new, tested.get(part), corrected.get(part), smallest=SMALLEST_STEP_RATIO)
        items.append(PartItem(part=part.removesuffix("_ns"), view=view, **fields))
    return tuple(sorted(items, key=lambda item: (-abs(item.change_ns or 0), item.part)))


def item_fields(
    context: Context, base: Sample, new: Sample, effect: Effect | None, corrected: float | None, *, smallest: float
) -> dict[str, Any]:
    """The common fields of an item, from samples in shares of the step."""
    before = float(np.mean(base.values)) * context.step if base.values else None
    after = float(np.mean(new.values)) * context.step if new.values else None
    change = None if before is None or after is None else (after - before) / context.step
    return {
        "base_ns": before, "new_ns": after, "change_ns": None if change is None else change * context.step, "step_ratio": change,
        "interval_ns": None if effect is None else (effect.interval[0] * context.step, effect.interval[1] * context.step),
        "p_value": None if effect is None else effect.p_value, "p_corrected": corrected,
        "changed": corrected is not None and corrected < ALPHA and change is not None and abs(change) >= smallest,
    }  # fmt: skip


def _known(context: Context, view: str) -> list[str]:
    """Wait and transfer where every run knows them, else their sum."""
    frames = [run.parts if view == "median" else run.critical for run in (*context.base, *context.new)]
    if any(frame.is_empty() for frame in frames):
        return []
    known = [part for part in PARTS if all(frame.get_column(part).null_count() * 2 <= len(frame) for frame in frames)]
    split = "exposed_wait_ns" in known and "exposed_transfer_ns" in known
    return [
        part
        for part in known
        if part not in (("exposed_comm_ns",) if split else ("exposed_wait_ns", "exposed_transfer_ns"))
    ]


def _sample(context: Context, runs: Iterable[RunFacts], part: str, view: str) -> Sample:
    frames = [(run.parts if view == "median" else run.critical, run.scale) for run in runs]
    return share_sample(
        context.step, [frame.get_column(part).drop_nulls().to_numpy() * scale for frame, scale in frames]
    )


def share_sample(step: float, series: Sequence[NDArray[Any]]) -> Sample:
    """Medians of per-step times as shares of the step, each with its error."""
    values, errors = [], []
    for times in series:
        if not len(times):
            continue
        values.append(float(np.median(times)) / step)
        error = median_error(times)
        errors.append(values[-1] * error if error is not None else 0.0)
    return Sample(tuple(values), tuple(errors))


def _tested(base: Sample, new: Sample, prior_sd: float) -> Effect | None:
    """The effect, unless the part is too small on both sides to matter."""
    if not base.values or not new.values or max(np.mean(base.values), np.mean(new.values)) < SMALLEST_STEP_RATIO:
        return None
    return difference(base, new, prior_sd=prior_sd)


def compare_ranks(context: Context) -> tuple[RankItem, ...]:
    """Work of each common rank that waits for nobody, beyond the reference rank's; most fallen behind first.

    The reference is the rank below which a quarter lies: it stays when half of the ranks, one of two hosts, get slow.
    """
    tables = [_local(run) for run in (*context.base, *context.new)]
    common = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    if len(common) < 2 or any(run.scale != 1.0 for run in (*context.base, *context.new)):
        return ()
    split = len(context.base)
    own = [_beyond_reference(table, common) for table in tables]
    samples = {
        rank: (_rank_sample(context, own[:split], rank), _rank_sample(context, own[split:], rank)) for rank in common
    }
    effects = {rank: difference(*pair, prior_sd=context.prior_sd) for rank, pair in samples.items()}
    adjusted = dict(zip(effects, holm([effect.p_value if effect else 1.0 for effect in effects.values()]), strict=True))
    hosts, grown = _hosts(context.new), _grown_parts(context)
    items = [
        RankItem(
            rank=rank, host=hosts.get(rank), part=grown.get(rank),
            **item_fields(context, *samples[rank], effects[rank], adjusted[rank], smallest=SMALLEST_RANK_RATIO),
        )
        for rank in common
    ]  # fmt: skip
    return tuple(sorted(items, key=lambda item: (-(item.change_ns or 0), item.rank)))


def _local(run: RunFacts) -> dict[int, NDArray[Any]]:
    """Local work per step of each rank that has it."""
    frame = run.ranks.filter((pl.col("rank") >= 0) & pl.col("local_work_ns").is_not_null())
    grouped = frame.group_by("rank", maintain_order=True).agg(pl.col("local_work_ns"))
    return {int(rank): np.asarray(times, float) for rank, times in grouped.iter_rows()}


def _beyond_reference(table: Mapping[int, NDArray[Any]], common: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Median local work of each rank above that of the reference rank, with its error, ns."""
    medians = {rank: float(np.median(table[rank])) for rank in common}
    reference = float(np.quantile(list(medians.values()), REFERENCE))
    return {rank: (value - reference, value * (median_error(table[rank]) or 0.0)) for rank, value in medians.items()}


def _rank_sample(context: Context, runs: Sequence[Mapping[int, tuple[float, float]]], rank: int) -> Sample:
    return Sample(
        tuple(run[rank][0] / context.step for run in runs), tuple(run[rank][1] / context.step for run in runs)
    )


def _grown_parts(context: Context) -> dict[int, str]:
    """The part of each rank's own work that grew most."""
    told = [run.ranks.columns for run in (*context.base, *context.new)]
    parts = [part for part in LOCAL_PARTS if all(part in columns for columns in told)]
    before, after = _part_means(context.base, parts), _part_means(context.new, parts)
    found = {}
    for rank in before.keys() & after.keys():
        pairs = {part: (before[rank][part], after[rank][part]) for part in parts}
        changes = {part: new - old for part, (old, new) in pairs.items() if old is not None and new is not None}
        if changes:
            found[rank] = max(sorted(changes), key=changes.__getitem__).removesuffix("_ns")
    return found


def _part_means(runs: Sequence[RunFacts], parts: Sequence[str]) -> dict[int, dict[str, float | None]]:
    """Medians over the steps of each rank, averaged over the runs that know them."""
    medians = [run.ranks.group_by("rank").agg(pl.col(part).median() for part in parts) for run in runs]
    means = pl.concat(medians, how="vertical_relaxed").group_by("rank").agg(pl.col(part).mean() for part in parts)
    return {int(row["rank"]): row for row in means.iter_rows(named=True)}


def _hosts(runs: Sequence[RunFacts]) -> dict[int, str]:
    """Host of each rank, where every run of the side agrees."""
    places: dict[int, set[str | None]] = {}
    for run in runs:
        for rank, host in run.ranks.select("rank", "host").unique().iter_rows():
            places.setdefault(int(rank), set()).add(host)
    return {rank: next(iter(hosts)) for rank, hosts in places.items() if len(hosts) == 1 and None not in hosts}  # type: ignore[misc]


def compare_hosts(context: Context, ranks: Sequence[RankItem]) -> tuple[HostItem, ...]:
    """The mean of a host's ranks, for hosts with the same ranks on both sides; changed when most of its ranks are."""
    before, after = _hosts(context.base), _hosts(context.new)
    grouped: dict[str, list[RankItem]] = {}
    for item in ranks:
        if item.host is not None and before.get(item.rank) == after.get(item.rank) == item.host:
            grouped.setdefault(item.host, []).append(item)
    hosts = [_host(host, items) for host, items in grouped.items()] if len(grouped) > 1 else []
    return tuple(sorted(hosts, key=lambda item: (-(item.change_ns or 0), item.host)))


def _host(host: str, items: Sequence[RankItem]) -> HostItem:
    def mean(get: Callable[[RankItem], float | None]) -> float | None:
        values = [value for item in items if (value := get(item)) is not None]
        return sum(values) / len(values) if values else None

    return HostItem(
        host=host, ranks=tuple(sorted(item.rank for item in items)), base_ns=mean(lambda item: item.base_ns), new_ns=mean(lambda item: item.new_ns),
        change_ns=mean(lambda item: item.change_ns), step_ratio=mean(lambda item: item.step_ratio),
        p_corrected=max((item.p_corrected for item in items if item.p_corrected is not None), default=None),
        changed=sum(item.changed for item in items) * 2 > len(items),
    )  # fmt: skip
