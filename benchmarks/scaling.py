"""Leave-last-out prediction on published scaling tables, ours beside other laws, and what the trap tables get told.

Usage: python benchmarks/scaling.py [TABLES.yaml ...]     (default: ../shared/data/scaling/tables.yaml)

Each table's points named in `leave_last_out.train_gpus` predict the one at `test_gpus`. Prints Markdown.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import yaml

from diagnose.analysis.scaling.analyse import ScalingResult, analyse
from diagnose.analysis.scaling.table import ScalingType, build_curve
from diagnose.ingest.scaling_columns import read_unit
from diagnose.ingest.scaling_table import ScalingRow

DEFAULT = Path(__file__).parents[2] / "shared/data/scaling/tables.yaml"
NO_PREDICTION = ("time_to_train", "two_points")
GROUPS = {
    "all clean families": lambda c: c != "tier_cliff",
    "weak, near linear": lambda c: c == "weak_near_linear",
    "weak, visible loss": lambda c: c == "weak_visible_loss",
    "strong": lambda c: c == "strong",
    "visible loss and strong": lambda c: c in ("weak_visible_loss", "strong"),
    "one step over a tier": lambda c: c == "tier_cliff",
    "every table": lambda _: True,
}
MUST_SAY = {
    "trap_superlinear": ("super_linear",),
    "trap_non_monotone": ("non_monotone", "outlier"),
    "trap_outlier": ("outlier",),
    "trap_data_quality": ("data_quality",),
    "tier_cliff": ("tier_mixed", "tier_cliff"),
    "two_points": ("two_points",),
    "time_to_train": ("time_to_train",),
}
"""One of these warnings is right for the class; where the source names comparable sizes, exactly those must be used."""

LAWS = ("ours", "persist", "Amdahl", "USL", "power law")


class Case(NamedTuple):
    """One table predicted: relative errors by law, whether the interval held the truth, its half width."""

    id: str
    kind: str
    errors: dict[str, float]
    inside: bool
    half_width: float


def tables(paths: list[Path]) -> list[dict]:
    return [table for path in paths for table in yaml.safe_load(path.read_text())["tables"]]


def result_of(table: dict, gpus: list[int] | None, stated: ScalingType, sizes: tuple[int, ...] = ()) -> ScalingResult:
    unit = read_unit(table["unit"])
    points = [p for p in table["points"] if gpus is None or p["gpus"] in gpus]
    rows = [ScalingRow(place=f"point {n}", gpus=p["gpus"], value=float(p["value"])) for n, p in enumerate(points, 1)]
    return analyse(
        build_curve(rows, unit=unit.label, kind=unit.kind, seconds=unit.seconds, stated_type=stated), sizes=sizes
    )


def stated_type(table: dict) -> ScalingType:
    word = str(table.get("scaling", ""))
    return "strong" if word.startswith("strong") else "weak" if word.startswith("weak") else "unknown"


def is_clean(table: dict) -> bool:
    return (
        bool(table.get("leave_last_out"))
        and not table["class"].startswith("trap")
        and table["class"] not in NO_PREDICTION
    )


def case(table: dict, stated: ScalingType) -> Case:
    split = table["leave_last_out"]
    test = split["test_gpus"]
    truth = next(float(p["value"]) for p in table["points"] if p["gpus"] == test)
    result = result_of(table, split["train_gpus"], stated, (test,))
    prediction = next(p for p in result.predictions if p.gpus == test)
    if prediction.value is None or prediction.interval is None:
        raise ValueError(f"{table['id']}: no prediction")
    train = result.curve.points
    errors = {"ours": prediction.value / truth - 1, "persist": train[-1].rate * test / train[-1].gpus / truth - 1}
    errors |= {law.name: law.rate(test) / truth - 1 for law in result.classics}
    low, high = prediction.interval
    return Case(table["id"], table["class"], errors, low <= truth <= high, math.log(high / low) / 2)


def line(cases: list[Case], law: str) -> str:
    errors = sorted(abs(c.errors[law]) * 100 for c in cases if law in c.errors)
    if not errors:
        return "- |"
    p90 = errors[int(0.9 * (len(errors) - 1))]
    return f"{statistics.median(errors):.2f} / {statistics.fmean(errors):.2f} / {p90:.2f} / {errors[-1]:.1f} |"


def print_errors(cases: list[Case], title: str) -> None:
    print(f"\n{title}: error in percent, median / mean / p90 / max\n")
    print(f"| set | n | {' | '.join(LAWS)} | interval covers | median half width |")
    print(f"|---|---|{'---|' * len(LAWS)}---|---|")
    for name, belongs in GROUPS.items():
        chosen = [c for c in cases if belongs(c.kind)]
        if chosen:
            cover = sum(c.inside for c in chosen) / len(chosen)
            half = statistics.median(c.half_width for c in chosen)
            print(
                f"| {name} | {len(chosen)} | {' '.join(line(chosen, law) for law in LAWS)} {cover:.0%} | {half:.1%} |"
            )


def is_right(table: dict, said: list[str], used: list[int]) -> bool:
    """Whether the class's warning is given, and only the sizes that the source calls comparable are used."""
    expected = MUST_SAY.get(table["class"], ())
    comparable = table["comparable_gpus"]
    return (not expected or any(code in said for code in expected)) and (comparable == "all" or used == comparable)


def print_traps(found: list[dict]) -> None:
    good: list[bool] = []
    print(
        "\nTrap tables, all points given: what is said\n\n| table | class | right | codes | points used | first warnings "
        "|\n|---|---|---|---|---|---|"
    )
    for table in found:
        result = result_of(table, None, stated_type(table))
        said = [w.code for w in result.warnings]
        codes = ", ".join(said) or "none"
        good.append(is_right(table, said, [p.gpus for p in result.selection.used]))
        used = ", ".join(str(p.gpus) for p in result.selection.used) or "none"
        first = "; ".join(w.text for w in result.warnings[:2])
        print(f"| {table['id']} | {table['class']} | {'yes' if good[-1] else 'NO'} | {codes} | {used} | {first} |")
    print(f"\n{sum(good)} of {len(good)} right.")


def main() -> None:
    found = tables([Path(argument) for argument in sys.argv[1:]] or [DEFAULT])
    clean = [table for table in found if is_clean(table)]
    print_errors([case(table, "unknown") for table in clean], "Scaling type not stated")
    print_errors([case(table, stated_type(table)) for table in clean], "Scaling type as each table states it")
    print_traps(
        [table for table in found if not is_clean(table) or table["class"] == "tier_cliff" or table.get("warn")]
    )


if __name__ == "__main__":
    main()
