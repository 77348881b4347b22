"""Kernels of the same signature and collectives of the same kind and size: how long each takes now and then."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import polars as pl

from diagnose.analysis.compare.result import CollectiveItem, KernelItem
from diagnose.analysis.compare.stats import ALPHA, PRIOR_SD, Effect, Sample, difference, holm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from diagnose.analysis.compare.facts import RunFacts
    from diagnose.analysis.compare.parts import Context

_T = TypeVar("_T")

MOST = 200
SMALLEST_STEP_RATIO = 0.002
COLLECTIVE_SD = 0.05
"""Equal runs place their ranks and share their fabric differently: transfers repeat less well than kernels."""


class _Row(NamedTuple):
    """A thing in one run: time per step, error of its logarithm, what else is known of it."""

    time_ns: float
    error: float
    extra: dict[str, Any]


Rows = dict[tuple[Any, ...], _Row]


def compare_kernels(context: Context, rank: int | None = None) -> tuple[KernelItem, ...]:
    """Signatures by the time they cost more; of the median rank that runs them, or of one rank."""
    sides = [[_kernel_rows(run, rank) for run in runs] for runs in (context.base, context.new)]

    def build(
        key: tuple[Any, ...],
        state: str,
        ratio: float | None,
        base: _Row | None,
        new: _Row | None,
        fields: dict[str, Any],
    ) -> KernelItem:
        known = new or base
        return KernelItem(
            name=str(known.extra["name"] if known else ""), signature=f"{int(key[0]) & (2**64 - 1):016x}", state=state, ratio=ratio, rank=rank,  # type: ignore[arg-type]
            count_base=None if base is None else base.extra["count"], count_new=None if new is None else new.extra["count"], **fields,
        )  # fmt: skip

    return tuple(_compare(context, sides[0], sides[1], PRIOR_SD, build))


def compare_collectives(context: Context) -> tuple[CollectiveItem, ...]:
    """Transfer of one call, by what it costs more a step."""
    sides = [[_collective_rows(run) for run in runs] for runs in (context.base, context.new)]

    def build(
        key: tuple[Any, ...],
        state: str,
        ratio: float | None,
        base: _Row | None,
        new: _Row | None,
        fields: dict[str, Any],
    ) -> CollectiveItem:
        return CollectiveItem(
            collective=str(key[0]), group_size=key[1], tier=key[2], msg_bytes=key[3], state=state, ratio=ratio,  # type: ignore[arg-type]
            calls_base=None if base is None else base.extra["calls"], calls_new=None if new is None else new.extra["calls"],
            wait_base_ns=None if base is None else base.extra["wait_ns"], wait_new_ns=None if new is None else new.extra["wait_ns"], **fields,
        )  # fmt: skip

    return tuple(_compare(context, sides[0], sides[1], COLLECTIVE_SD, build))


def _kernel_rows(run: RunFacts, rank: int | None) -> Rows:
    frame = run.kernels if rank is None else run.kernels.filter(pl.col("rank") == rank)
    error = (
        pl.when(pl.col("steps") >= 3)
        .then(1.86 * pl.col("mad_ns") / pl.col("total_ns") / pl.col("steps").sqrt())
        .otherwise(0.0)
    )
    grouped = (
        frame.filter(pl.col("total_ns") > 0).group_by("signature")
        .agg(pl.col("name").sort().first(), pl.col("total_ns").median(), pl.col("count").median(), error.median().alias("error"))
    )  # fmt: skip
    return {
        (row["signature"],): _Row(
            row["total_ns"] * run.scale, row["error"], {"name": row["name"], "count": row["count"]}
        )
        for row in grouped.iter_rows(named=True)
    }


def _collective_rows(run: RunFacts) -> Rows:
    rows: Rows = {}
    for row in run.collectives.iter_rows(named=True):
        if row["transfer_ns"] is None or row["transfer_ns"] <= 0:
            continue
        error = (
            1.86 * row["mad_ns"] / row["transfer_ns"] / math.sqrt(row["seen"]) if row["seen"] >= 3 else COLLECTIVE_SD
        )
        key = (row["collective"], row["group_size"], row["tier"], row["msg_bytes"])
        rows[key] = _Row(
            row["transfer_ns"] * run.scale, error, {"calls": row["calls"] or 1.0, "wait_ns": row["wait_ns"]}
        )
    return rows


def _compare(
    context: Context, base: Sequence[Rows], new: Sequence[Rows], prior_sd: float, build: Callable[..., _T]
) -> list[_T]:
    """Items for keys of at least a small share of the step, what grew most first."""
    keys = sorted({key for rows in (*base, *new) for key in rows}, key=repr)
    common, lonely = [], []
    for key in keys:
        found = [[rows[key] for rows in side if key in rows] for side in (base, new)]
        if max((_cost(row) for side in found for row in side), default=0.0) < SMALLEST_STEP_RATIO * context.step:
            continue
        if found[0] and found[1]:
            common.append((key, found[0], found[1], difference(_logs(found[0]), _logs(found[1]), prior_sd=prior_sd)))
        elif len(found[0]) == len(base) or len(found[1]) == len(new):  # on a whole side and never on the other
            lonely.append((key, found[0], found[1]))
    corrected = holm([effect.p_value if effect else 1.0 for *_, effect in common])
    items: list[tuple[float, _T]] = []
    for (key, before, after, effect), p in zip(common, corrected, strict=True):
        first, second = _mean(before), _mean(after)
        fields = _fields(context, first, second, effect, p)
        items.append(
            (fields["change_ns"], build(key, "both", second.time_ns / first.time_ns - 1, first, second, fields))
        )
    for key, before, after in lonely:
        old, now = (_mean(before) if before else None), (_mean(after) if after else None)
        change = (_cost(now) if now else 0.0) - (_cost(old) if old else 0.0)
        fields = {
            "base_ns": old.time_ns if old else None, "new_ns": now.time_ns if now else None, "change_ns": change,
            "step_ratio": change / context.step, "changed": True,
        }  # fmt: skip
        items.append((change, build(key, "appeared" if now else "vanished", None, old, now, fields)))
    items.sort(key=lambda item: -item[0])
    return [item for _, item in (items if len(items) <= MOST else [*items[: MOST // 2], *items[-MOST // 2 :]])]


def _fields(context: Context, before: _Row, after: _Row, effect: Effect | None, corrected: float) -> dict[str, Any]:
    change = _cost(after) - _cost(before)
    interval = None
    if effect is not None:
        low, high = (before.time_ns * before.extra.get("calls", 1.0) * math.expm1(end) for end in effect.interval)
        interval = (low, high)
    return {
        "base_ns": before.time_ns, "new_ns": after.time_ns, "change_ns": change, "step_ratio": change / context.step, "interval_ns": interval,
        "p_value": None if effect is None else effect.p_value, "p_corrected": corrected,
        "changed": corrected < ALPHA and abs(change) >= SMALLEST_STEP_RATIO * context.step,
    }  # fmt: skip


def _cost(row: _Row) -> float:
    """Time a step: kernels carry it, a collective's call counts as often as it is made."""
    return float(row.time_ns * row.extra.get("calls", 1.0))


def _logs(rows: Iterable[_Row]) -> Sample:
    listed = list(rows)
    return Sample(tuple(math.log(row.time_ns) for row in listed), tuple(row.error for row in listed))


def _mean(rows: Sequence[_Row]) -> _Row:
    """Geometric mean of the times, arithmetic of the rest."""
    extra = dict(rows[0].extra)
    for key in ("count", "calls", "wait_ns"):
        if key in extra:
            known = [row.extra[key] for row in rows if row.extra[key] is not None]
            extra[key] = sum(known) / len(known) if known else None
    return _Row(math.exp(sum(math.log(row.time_ns) for row in rows) / len(rows)), 0.0, extra)
