"""Injected faults: who is found, why, and what it costs, beside published rules on the same files.

Usage: python benchmarks/faults.py [--seeds 5000-5004] [--only TEXT] [--quick] [--large] [--records FILE]

Runs are simulated (sample_traces/simulator), one a class and seed; the analysis sees what reading the traces gives.
--quick: one seed of every class of up to 16 ranks. --large: 512 and 2048 ranks. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fault_scores as fs
from fault_cases import SCORING_SEEDS, case, groups, large_cases
from fault_run import record


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default=f"{SCORING_SEEDS.start}-{SCORING_SEEDS.start + 4}", help="first-last")
    parser.add_argument("--only", default="", help="classes that contain this text")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--records", type=Path, help="JSON lines of every run; runs already in it are not repeated")
    return parser.parse_args(arguments)


def run(chosen: argparse.Namespace) -> list[fs.Record]:
    first, last = (int(part) for part in chosen.seeds.split("-")) if "-" in chosen.seeds else (int(chosen.seeds),) * 2
    known = {}
    if chosen.records is not None and chosen.records.exists():
        for line in chosen.records.read_text().splitlines():
            item = json.loads(line)
            known[item["group"], item["scenario"], item["seed"]] = item
    cases = [case(group, seed) for seed in range(first, last + 1) for group in groups() if chosen.only in group]
    if chosen.quick:
        cases = [item for item in cases if int(item.job.get("ranks", 16)) <= 16 and item.seed == first]
    if chosen.large:
        cases = [item for seed in range(first, last + 1) for item in large_cases(seed) if chosen.only in item.group]
    records = []
    for item in cases:
        key = (item.group, item.scenario, item.seed)
        if key not in known:
            started = time.perf_counter()
            known[key] = record(item, wires=not (chosen.quick or chosen.large)) | {
                "seconds": time.perf_counter() - started
            }
            if chosen.records is not None:
                with chosen.records.open("a") as handle:
                    handle.write(json.dumps(known[key]) + "\n")
            print(f"{item.group}, seed {item.seed}: {known[key]['seconds']:.1f} s", file=sys.stderr)
        records.append(known[key])
    return records


def report(records: list[fs.Record]) -> str:
    """The tables as Markdown."""
    faulty = [item for item in records if not fs.healthy(item)]
    large = [
        item for item in faulty if fs.effect(item) >= fs.SMALL_EFFECT or item["scenario"] in ("checkpoint", "warm_up")
    ]
    strong = [
        item
        for item in records
        if fs.healthy(item) or (fs.persistent_ranks(item) and fs.effect(item) >= fs.SMALL_EFFECT)
    ]
    lines = [
        f"{len(records)} runs, {len(records) - len(faulty)} without a fault, {len(faulty) - len(large)} with a fault that lengthens the step by less than {fs.SMALL_EFFECT:.0%}.",
        "",
    ]
    lines += [
        "| rule | precision of ranks | recall of ranks | F1 |",
        "|---|---|---|---|",
        f"| this analysis | {fs.f1(*fs.rank_scores(strong, fs.named_ranks, fs.loud_ranks))} |",
    ]
    lines += [
        f"| {name} | {fs.f1(*fs.rank_scores(strong, lambda item, name=name: set(item['said']['baselines'][name])))} |"
        for name in fs.BASELINES
    ]
    quiet = [item for item in records if fs.healthy(item)]
    flagged = [
        item
        for item in quiet
        if any(one["severity"] in fs.LOUD and (one["ranks"] or one["hosts"]) for one in item["said"]["findings"])
    ]
    counts, right, total = fs.confusion(large)
    bound = [item for item in records if item["true"]["expected"]["network_bound"] is not None]
    no = [item for item in bound if item["true"]["expected"]["network_bound"] is False]
    yes = [item for item in bound if item["true"]["expected"]["network_bound"] is True]
    lines += [
        "",
        "| measure | value |",
        "|---|---|",
        f"| runs without a fault in which a rank or host is blamed | {fs.shown(len(flagged), len(quiet))} |",
    ]
    lines += [f"| cause named, in the right place | {fs.shown(right, total)} |"]
    lines += [
        f"| network is not the bottleneck, and said so | {fs.shown(sum(item['said']['network_bound'] is False for item in no), len(no))} |"
    ]
    lines += [
        f"| network is the bottleneck, and said so | {fs.shown(sum(item['said']['network_bound'] is True for item in yes), len(yes))} |"
    ]
    found = [place for item in large if (place := fs.located(item)) is not None]
    lines += [f"| slow or lossy link: best suspect is right | {fs.shown(sum(item[0] for item in found), len(found))} |"]
    lines += [
        f"| the same, in the ambiguity set | {fs.shown(sum(item[1] for item in found), len(found))}, {sum(item[2] for item in found) / max(len(found), 1):.1f} hosts |"
    ]
    speeds = [one["found"] / one["true"] - 1 for item in records for one in item["said"]["bandwidth"]]
    clocks = [one / 1e3 for item in records for one in item["said"]["clock_error_ns"]]
    gains = fs.what_if_errors(records)
    lines += [
        f"| bandwidth error, median / p90 ({len(speeds)} classes of collectives) | {fs.quantile(speeds, 0.5):.1%} / {fs.quantile(speeds, 0.9):.1%} |"
    ]
    lines += [
        f"| clock error, median / p95 ({len(clocks)} hosts) | {fs.quantile(clocks, 0.5):.1f} / {fs.quantile(clocks, 0.95):.1f} us |"
    ]
    lines += [
        f"| what-if error, fault removed, median / p90 ({len(gains)} runs) | {fs.quantile(gains, 0.5):.1%} / {fs.quantile(gains, 0.9):.1%} |"
    ]
    wires = fs.bandwidth_errors(records)
    priced = [one for one in wires if one is not None]
    if wires:
        lines += [
            f"| what-if error, twice the bandwidth, median / p90 ({len(priced)} runs; {len(wires) - len(priced)} without a number) | {fs.quantile(priced, 0.5):.1%} / {fs.quantile(priced, 0.9):.1%} |"
        ]
    replays = [
        value - 1 for item in records if (value := item["said"]["stat"].get("replay_explained_ratio")) is not None
    ]
    lines += [
        f"| replay of the unmodified run, median / p90 | {fs.quantile(replays, 0.5):.2%} / {fs.quantile(replays, 0.9):.2%} |"
    ]
    lines += ["", "| true cause | said |", "|---|---|"]
    for true in sorted({key[0] for key in counts}):
        said = sorted(((count, name) for (one, name), count in counts.items() if one == true), reverse=True)
        lines.append(f"| {true} | {', '.join(f'{name} {count}' for count, name in said)} |")
    return "\n".join([*lines, "", *_classes(records)]) + "\n"


def _classes(records: list[fs.Record]) -> list[str]:
    lines = [
        "| class | runs | cause right | ranks: right, wrong, missed | network verdict right | step longer by (median) |",
        "|---|---|---|---|---|---|",
    ]
    for group, items in fs.by_group(records).items():
        pairs = [pair for item in items for pair in fs.causes(item)]
        right, wrong, missed = fs.rank_scores(items, fs.named_ranks, fs.loud_ranks)
        known = [item for item in items if item["true"]["expected"]["network_bound"] is not None]
        agreed = sum(item["said"]["network_bound"] is item["true"]["expected"]["network_bound"] for item in known)
        longer = sorted(fs.effect(item) for item in items)[len(items) // 2]
        cause = f"{sum(true == said for true, said in pairs)}/{len(pairs)}" if pairs else "-"
        lines.append(
            f"| {group} | {len(items)} | {cause} | {right}, {wrong}, {missed} | {agreed}/{len(known)} | {longer:.0%} |"
        )
    return lines


def main() -> int:
    chosen = options()
    print(report(run(chosen)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
