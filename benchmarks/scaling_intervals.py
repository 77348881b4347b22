"""How wide the intervals of predictions must be: chosen on all families of tables but one, tried on that one.

Usage: python benchmarks/scaling_intervals.py [TABLES.yaml ...]     (default: ../shared/data/scaling/tables.yaml)

Every start of at least two comparable points predicts every later point within four times its largest size, without and
with the scaling type stated. A candidate is four numbers: the shares of the way to the farthest mechanism, and the noise,
below and above. Cost is the interval score (Gneiting and Raftery, JASA 2007) over the width that the candidate in use
gives the same case, averaged within a family first, so that tables of many sizes and steep ones weigh no more than others.
Prints Markdown; about a minute.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scaling import DEFAULT, is_clean, stated_type, tables

from diagnose.analysis.scaling.ensemble import choose
from diagnose.analysis.scaling.interval import TABLE_WIDTH, Side, Width, between_run_noise, log_ends
from diagnose.analysis.scaling.predict import INTERVAL_RANGE
from diagnose.analysis.scaling.select import select
from diagnose.analysis.scaling.table import build_curve
from diagnose.ingest.scaling_columns import read_unit
from diagnose.ingest.scaling_table import ScalingRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.scaling.ensemble import Curved

NOISE = (0.004, 0.006, 0.008, 0.01, 0.0125, 0.015)
NOISE_ABOVE = (0.0, 0.001, 0.002, 0.005)
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
OUTSIDE = 20.0
"""Penalty of the 90 % interval score, 2 / 0.1, per unit by which the truth lies outside."""

CLASSES = {
    "weak_near_linear": "weak, near linear",
    "weak_visible_loss": "weak, visible loss",
    "strong": "strong",
    "tier_cliff": "one step over a tier",
}


class Case(NamedTuple):
    """One size predicted: where the measured value lies, relative to the prediction, in log rate."""

    family: str
    kind: str
    largest: bool
    curved: Curved
    gpus: int
    measured: float


def cases(paths: list[Path]) -> Iterator[Case]:
    for table in filter(is_clean, tables(paths)):
        split, unit = table["leave_last_out"], read_unit(table["unit"])
        values = {p["gpus"]: float(p["value"]) for p in table["points"]}
        sizes = [*split["train_gpus"], split["test_gpus"]]
        for count in range(2, len(sizes)):
            rows = [ScalingRow(place=str(n), gpus=n, value=values[n]) for n in sizes[:count]]
            for stated in sorted({"unknown", stated_type(table)}):
                curve = build_curve(rows, unit=unit.label, kind=unit.kind, seconds=unit.seconds, stated_type=stated)
                used = select(curve).used
                if len(used) < 2:
                    continue
                curved = choose(used, curve.type)
                for gpus in sizes[count:]:
                    if gpus <= INTERVAL_RANGE * used[-1].gpus:
                        off = math.log(values[gpus] / curved.rate(gpus))
                        yield Case(table["family"], table["class"], count == len(sizes) - 1, curved, gpus, off)


def ends(found: list[Case], width: Width) -> np.ndarray:
    return np.array([log_ends(c.curved, c.gpus, between_run_noise(c.curved.points), width=width) for c in found])


def inside(found: list[Case], at: np.ndarray) -> np.ndarray:
    measured = np.array([c.measured for c in found])
    return (at[:, 0] <= measured) & (measured <= at[:, 1])


def costs(found: list[Case], at: np.ndarray, scale: np.ndarray) -> np.ndarray:
    measured = np.array([c.measured for c in found])
    missed = np.maximum(at[:, 0] - measured, 0) + np.maximum(measured - at[:, 1], 0)
    return (at[:, 1] - at[:, 0] + OUTSIDE * missed) / scale


def line(name: str, found: list[Case], hit: np.ndarray, held: np.ndarray, half: np.ndarray, chosen: np.ndarray) -> str:
    share = f"{hit[chosen].mean():.0%} | {held[chosen].mean():.0%}"
    return f"| {name} | {chosen.sum()} | {share} | {np.median(half[chosen]):.1%} |"


def main() -> None:
    found = list(cases([Path(argument) for argument in sys.argv[1:]] or [DEFAULT]))
    families = np.array([c.family for c in found])
    weight = np.array([1 / np.sum(families == name) for name in families])
    used = ends(found, TABLE_WIDTH)
    scale = used[:, 1] - used[:, 0]
    widths = [
        Width(Side(down, low), Side(up, high))
        for down, low, up, high in product(SHARES, NOISE, SHARES[2:], NOISE_ABOVE)
    ]
    at = [ends(found, width) for width in widths]
    cost = np.array([costs(found, one, scale) * weight for one in at])
    held = np.zeros(len(found), bool)
    picked: Counter[Width] = Counter()
    for family in sorted(set(families)):
        best = int(np.argmin(cost[:, families != family].sum(axis=1)))
        picked[widths[best]] += 1
        mine = families == family
        held[mine] = inside(found, at[best])[mine]
    hit, half = inside(found, used), scale / 2
    kinds, largest = np.array([c.kind for c in found]), np.array([c.largest for c in found])
    total = cost.sum(axis=1).min()
    print(f"In use {TABLE_WIDTH}: cost {(costs(found, used, scale) * weight).sum() / total:.3f} of the least.\n")
    print("| chosen without one family: share below, noise below, share above, noise above | families |\n|---|---|")
    for width, count in picked.most_common():
        print(
            f"| {width.below.share:g}, {width.below.noise:g}, {width.above.share:g}, {width.above.noise:g} | {count} |"
        )
    print("\n| largest size of a table | n | in use covers | chosen without the family covers | median half width |")
    print("|---|---|---|---|---|")
    for kind, name in CLASSES.items():
        print(line(name, found, hit, held, half, largest & (kinds == kind)))
    print(line("all", found, hit, held, half, largest))
    print(line("every later size from every start", found, hit, held, half, np.ones(len(found), bool)))


if __name__ == "__main__":
    main()
