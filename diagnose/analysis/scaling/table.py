"""The points of a scaling curve, checked: sizes, values, repeats, and whether scaling is weak or strong."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from diagnose.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ScalingType = Literal["weak", "strong", "unknown"]
Kind = Literal["throughput", "per_gpu", "step_time", "step_rate", "work_time", "time_to_train"]

GROWTH_TOLERANCE = 0.1
"""Work per step counts as constant (strong) or growing with the size (weak) within 10 %."""

MOSTLY = 0.7
"""Share of the points that must follow the rule: three of four, all of three."""

STEP_TIME_SLOPE = -0.5
"""Log step time against log size: 0 for ideal weak scaling, -1 for ideal strong scaling; the middle decides."""


class Row(Protocol):
    """What a reader of tables or stores delivers for one measurement."""

    @property
    def place(self) -> str: ...  # noqa: D102 - where it was read, for messages
    @property
    def gpus(self) -> int: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def repeat(self) -> str | None: ...  # noqa: D102
    @property
    def hosts(self) -> int | None: ...  # noqa: D102
    @property
    def model(self) -> str | None: ...  # noqa: D102
    @property
    def global_batch(self) -> float | None: ...  # noqa: D102
    @property
    def local_batch(self) -> float | None: ...  # noqa: D102
    @property
    def step_ns(self) -> float | None: ...  # noqa: D102
    @property
    def noise_ratio(self) -> float | None: ...  # noqa: D102
    @property
    def parts_ns(self) -> Mapping[str, float]: ...  # noqa: D102


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One size of the job.

    ``value`` is as measured, in the unit of the curve (geometric mean of ``repeats``); ``rate`` is work per second
    in any fixed unit, the larger the better. ``noise_ratio`` is the relative standard deviation between runs.
    """

    gpus: int
    value: float
    rate: float
    repeats: tuple[float, ...] = ()
    hosts: int | None = None
    model: str | None = None
    global_batch: float | None = None
    local_batch: float | None = None
    step_ns: float | None = None
    noise_ratio: float | None = None
    parts_ns: dict[str, float] = {}
    place: str = ""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Points in order of size, with the unit, what the numbers are, and the scaling type with its reason.

    Several configurations may stand in ``points`` (``select`` parts them); ``notes`` say what was assumed. ``seconds``
    is the time of the unit (1 for tokens/s, 86400 for tokens/day), null where the unit is no work per time.
    """

    points: tuple[Point, ...]
    unit: str
    kind: Kind
    seconds: float | None = None
    scale: Literal["gpus", "nodes"] = "gpus"
    type: ScalingType = "unknown"
    type_from: str = "not stated, and nothing in the data tells it"
    notes: tuple[str, ...] = ()


def build_curve(
    rows: Sequence[Row],
    *,
    unit: str,
    kind: Kind,
    seconds: float | None = None,
    scale: Literal["gpus", "nodes"] = "gpus",
    stated_type: ScalingType = "unknown",
    notes: Sequence[str] = (),
) -> Curve:
    """Check the measurements and make a curve of them; the order of rows does not matter.

    Raises:
        SourceError: no rows, a size below one, a value that is not a positive number, or one size measured twice
            without a word that these are repeats.
    """
    if not rows:
        raise SourceError("the table has no rows: give at least two sizes, one per line")
    for row in rows:
        _check(row, scale)
    groups: dict[tuple[int, str | None, float | None, float | None], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=_order):
        groups[row.gpus, row.model, row.global_batch, row.local_batch].append(row)
    for members in groups.values():
        _check_repeats(members, scale)
    scaling, reason = _scaling_type([members[0] for members in groups.values()], kind, stated_type)
    points = tuple(_point(members, kind, scaling) for members in groups.values())
    return Curve(
        points=points,
        unit=unit,
        kind=kind,
        seconds=seconds,
        scale=scale,
        type=scaling,
        type_from=reason,
        notes=tuple(notes),
    )


def to_rate(value: float, gpus: float, kind: Kind, scaling: ScalingType) -> float:
    """Work per second, up to a constant factor, from a value as measured."""
    if kind == "throughput":
        return value
    if kind == "per_gpu":
        return value * gpus
    if kind in ("work_time", "time_to_train"):
        return 1 / value
    steps_per_second = value if kind == "step_rate" else 1 / value
    return steps_per_second if scaling == "strong" else steps_per_second * gpus


def from_rate(rate: float, gpus: float, kind: Kind, scaling: ScalingType) -> float:
    """The inverse of ``to_rate``: a value in the unit of the curve."""
    if kind == "throughput":
        return rate
    if kind == "per_gpu":
        return rate / gpus
    if kind in ("work_time", "time_to_train"):
        return 1 / rate
    steps_per_second = rate if scaling == "strong" else rate / gpus
    return steps_per_second if kind == "step_rate" else 1 / steps_per_second


def _order(row: Row) -> tuple[int, str, float, float, float, str]:
    return (row.gpus, row.model or "", row.global_batch or 0.0, row.local_batch or 0.0, row.value, row.repeat or "")


def _check(row: Row, scale: str) -> None:
    if row.gpus < 1:
        raise SourceError(f"{row.place}: {scale} is {row.gpus}; a size is a whole number of at least 1")
    if not math.isfinite(row.value) or row.value <= 0:
        raise SourceError(
            f"{row.place}: the value is {row.value:g}; a throughput or step time is a positive number: correct "
            "the line "
            "or remove it (a failed run is no point of the curve)"
        )


def _check_repeats(members: list[Row], scale: str) -> None:
    if len(members) < 2:
        return
    labels = [member.repeat for member in members]
    places = " and ".join(sorted((member.place for member in members), key=_natural)[:2])
    if any(label is None for label in labels):
        raise SourceError(
            f"{scale} {members[0].gpus} appears {len(members)} times ({places}): if these are repeated "
            "measurements, number them "
            "in a column `repeat`; if they are different jobs, name them in a column `model`; otherwise keep one"
        )
    if len(set(labels)) < len(labels):
        raise SourceError(
            f"{scale} {members[0].gpus} has the same `repeat` twice ({places}): number each measurement "
            "differently, or keep one"
        )


def _natural(place: str) -> list[tuple[int, str]]:
    """Order of places as a reader counts: line 9 before line 10."""
    return [(int(word), "") if word.isdigit() else (0, word) for word in place.split()]


def _point(members: list[Row], kind: Kind, scaling: ScalingType) -> Point:
    first = members[0]
    values = tuple(member.value for member in members)
    value = geometric_mean(values) if len(values) > 1 else values[0]
    steps = [member.step_ns for member in members if member.step_ns is not None]
    parts = sorted({name for member in members for name in member.parts_ns})
    noises = [member.noise_ratio for member in members if member.noise_ratio is not None]
    return Point(
        gpus=first.gpus,
        value=value,
        rate=to_rate(value, first.gpus, kind, scaling),
        repeats=values if len(values) > 1 else (),
        hosts=first.hosts,
        model=first.model,
        global_batch=first.global_batch,
        local_batch=first.local_batch,
        step_ns=median(steps) if steps else None,
        noise_ratio=median(noises) if noises else None,
        parts_ns={name: median([m.parts_ns[name] for m in members if name in m.parts_ns]) for name in parts},
        place=first.place,
    )


def _scaling_type(rows: Sequence[Row], kind: Kind, stated: ScalingType) -> tuple[ScalingType, str]:
    if stated != "unknown":
        return stated, "stated"
    found = (
        _by_work(rows, [row.global_batch for row in rows], "the global batch")
        or _by_local_batch(rows)
        or _by_work(rows, _work_per_step(rows, kind), "the work per step (value times step time)")
        or _by_step_time(rows, kind)
    )
    return found or ("unknown", "not stated, and nothing in the data tells it")


def _work_per_step(rows: Sequence[Row], kind: Kind) -> list[float | None]:
    if kind not in ("throughput", "per_gpu"):
        return [None for _ in rows]
    return [None if r.step_ns is None else to_rate(r.value, r.gpus, kind, "unknown") * r.step_ns for r in rows]


def _by_work(rows: Sequence[Row], work: Sequence[float | None], name: str) -> tuple[ScalingType, str] | None:
    known = [(row.gpus, amount) for row, amount in zip(rows, work, strict=True) if amount]
    if len(known) < 2 or len(known) < len(rows) or len({gpus for gpus, _ in known}) < 2:
        return None
    if _mostly_equal([amount for _, amount in known]):
        return "strong", f"inferred: {name} is the same at every size"
    if _mostly_equal([amount / gpus for gpus, amount in known]):
        return "weak", f"inferred: {name} grows with the size"
    return None


def _by_local_batch(rows: Sequence[Row]) -> tuple[ScalingType, str] | None:
    known = [row.local_batch for row in rows if row.local_batch]
    if len(known) < len(rows) or len(known) < 2 or not _mostly_equal(known):
        return None
    return "weak", "inferred: the batch per GPU is the same at every size"


def _by_step_time(rows: Sequence[Row], kind: Kind) -> tuple[ScalingType, str] | None:
    if kind not in ("step_time", "step_rate"):
        return None
    sizes = sorted({row.gpus: row for row in rows}.values(), key=lambda row: row.gpus)
    if len(sizes) < 2:
        return None
    times = [row.value if kind == "step_time" else 1 / row.value for row in sizes]
    slopes = [
        math.log(late / early) / math.log(b.gpus / a.gpus)
        for (a, early), (b, late) in pairwise(zip(sizes, times, strict=True))
    ]
    slope = median(slopes)
    if slope > STEP_TIME_SLOPE:
        return (
            "weak",
            f"inferred: the step time hardly falls with the size (exponent {slope:.2f}); --type strong overrules",
        )
    return "strong", f"inferred: the step time falls with the size (exponent {slope:.2f}); --type weak overrules"


def _mostly_equal(values: Sequence[float]) -> bool:
    """Whether nearly all values are the same: one bad point must not hide the rule, so a fifth or so may differ."""
    middle = median(values)
    near = sum(abs(math.log(value / middle)) <= GROWTH_TOLERANCE for value in values)
    return near >= max(2, MOSTLY * len(values))
