"""Records of many runs to tables: who was found, why, what it costs, with Wilson intervals."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Record = dict[str, Any]
LOUD = ("warning", "critical")
RANK_CAUSES = frozenset(
    {"gpu_slow", "gpu_memory_slow", "host_slow", "input_stall", "gc_pause", "allocator", "workload_imbalance", "stage_imbalance", "moe_imbalance",
     "mixed_hardware", "throttling", "checkpoint"}
)  # fmt: skip
SMALL_EFFECT = 0.02
"""Faults that lengthen the step by less cannot be told from ordinary differences of runs and are listed apart."""

BASELINES = ("most often last", "least total wait", "late start", "score 0.75")


def wilson(good: int, total: int) -> tuple[float, float, float]:
    """Share with its 95 % interval."""
    if not total:
        return math.nan, math.nan, math.nan
    z, share = 1.96, good / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return share, max(middle - half, 0.0), min(middle + half, 1.0)


def shown(good: int, total: int) -> str:
    """``0.95 [0.90, 0.98] (95/100)``."""
    share, low, high = wilson(good, total)
    return "-" if not total else f"{share:.3f} [{low:.2f}, {high:.2f}] ({good}/{total})"


def healthy(record: Record) -> bool:
    """No fault at all."""
    return not record["true"]["faults"]


def effect(record: Record) -> float:
    """How much longer the mean step is than without the fault."""
    true = record["true"]
    return max(true["mean_ns"] / true["mean_without_ns"], true["step_ns"] / true["without_ns"]) - 1


def persistent_ranks(record: Record) -> set[int]:
    """Ranks that are at fault themselves, all the time, and whose fault is in their own work."""
    missing = set(record["true"]["missing"])
    return {
        rank
        for fault in record["true"]["faults"]
        if fault["cause"] in RANK_CAUSES and fault["persistence"] == "persistent"
        for rank in fault["ranks"]
    } - missing


def named_ranks(record: Record, *, loud: bool = False) -> set[int]:
    """Ranks that findings about persistent slowness of local work name; only the dear ones (from 3 % of the step) if loud."""
    return {
        rank for item in record["said"]["findings"]
        if item["cause"] in RANK_CAUSES and item["persistence"] == "persistent" and (item["severity"] in LOUD or not loud) for rank in item["ranks"]
    }  # fmt: skip


def rank_scores(
    records: Iterable[Record], names: Callable[[Record], set[int]], blames: Callable[[Record], set[int]] | None = None
) -> tuple[int, int, int]:
    """True positives, false positives, false negatives over ranks; ``blames`` are the names that count when they are wrong."""
    right = wrong = missed = 0
    for record in records:
        true = {
            rank for fault in record["true"]["faults"] if fault["cause"] in RANK_CAUSES for rank in fault["ranks"]
        } - set(record["true"]["missing"])
        said = names(record)
        right, wrong = right + len(true & said), wrong + len((blames or names)(record) - true)
        missed += len(persistent_ranks(record) - said)
    return right, wrong, missed


def loud_ranks(record: Record) -> set[int]:
    """Ranks that loud findings name."""
    return named_ranks(record, loud=True)


def f1(right: int, wrong: int, missed: int) -> str:
    """Precision, recall and F1 with intervals."""
    precision, recall = right / max(right + wrong, 1), right / max(right + missed, 1)
    both = 2 * precision * recall / max(precision + recall, 1e-9)
    return f"{shown(right, right + wrong)} | {shown(right, right + missed)} | {both:.3f}"


def causes(record: Record) -> list[tuple[str, str]]:
    """(true cause, said) of every fault that is large enough: the true one when a loud finding has it in the right place."""
    found = []
    info = {"checkpoint", "warm_up"}
    for fault in record["true"]["faults"]:
        if fault["cause"] == "data_quality":
            continue
        items = [item for item in record["said"]["findings"] if item["severity"] in LOUD or fault["cause"] in info]
        right = any(
            item["cause"] == fault["cause"]
            and (
                not fault["ranks"]
                or not fault["hosts"]
                or set(item["ranks"]) & set(fault["ranks"])
                or set(item["hosts"]) & set(fault["hosts"])
            )
            for item in items
        )
        found.append((fault["cause"], fault["cause"] if right else items[0]["cause"] if items else "nothing"))
    return found


def confusion(records: Iterable[Record]) -> tuple[Counter[tuple[str, str]], int, int]:
    """Counts of (true, said), right ones, all."""
    counts: Counter[tuple[str, str]] = Counter()
    for record in records:
        counts.update(causes(record))
    right = sum(count for (true, said), count in counts.items() if true == said)
    return counts, right, sum(counts.values())


def located(record: Record) -> tuple[bool, bool, int] | None:
    """For a slow or lossy link: whether the best suspect is right, whether the ambiguity set holds it, its size."""
    faults = [
        fault for fault in record["true"]["faults"] if fault["cause"] in ("nic_slow", "link_errors", "intra_node_link")
    ]
    if not faults:
        return None
    hosts = {host for fault in faults for host in fault["hosts"]}
    suspects = [item for item in record["said"]["suspects"] if item["score"] > 0]
    near = [item for item in suspects if item["ambiguous"]] or suspects[:1]
    return (
        bool(suspects) and suspects[0]["host"] in hosts,
        any(item["host"] in hosts for item in near),
        len({item["host"] for item in near}),
    )


def quantile(values: list[float], share: float) -> float:
    """Of absolute values."""
    ordered = sorted(abs(value) for value in values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else math.nan


def what_if_errors(records: Iterable[Record]) -> list[float]:
    """Predicted over true mean step without the fault, minus 1, for faults in local work."""
    errors = []
    for record in records:
        kinds = {fault["cause"] for fault in record["true"]["faults"]}
        name = (
            "no_gc" if kinds == {"gc_pause"} else "no_input_stall" if kinds == {"input_stall"} else "straggler_removed"
        )
        if not kinds or not kinds <= {
            "gpu_slow",
            "gpu_memory_slow",
            "host_slow",
            "input_stall",
            "gc_pause",
            "allocator",
            "mixed_hardware",
            "data_quality",
        }:
            continue
        said, true = record["said"]["what_if"], record["true"]
        if name in said and record["said"]["step_ns"] and effect(record) >= SMALL_EFFECT:
            errors.append(said[name] / record["said"]["step_ns"] / (true["mean_without_ns"] / true["mean_ns"]) - 1)
    return errors


def bandwidth_errors(records: Iterable[Record]) -> list[float | None]:
    """Predicted over simulated mean step with links of twice the bandwidth, minus 1; None where no number was given."""
    errors: list[float | None] = []
    for record in records:
        said, true = record["said"], record["true"]
        if "mean_twice_ns" not in true or not said["what_if"] or not said["step_ns"]:
            continue
        step = said["what_if"].get("bandwidth_x2")
        errors.append(None if step is None else step / said["step_ns"] / (true["mean_twice_ns"] / true["mean_ns"]) - 1)
    return errors


def by_group(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records of each class."""
    result: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        result[record["group"]].append(record)
    return result
