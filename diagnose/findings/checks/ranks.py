"""Ranks that hold the others up: who, since when, why, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from diagnose.findings.job import job_summary
from diagnose.model import Evidence, NotChecked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, Persistence

_RULES = {
    "gpu_slow": "RANK-GPU", "gpu_memory_slow": "RANK-MEMORY", "host_slow": "RANK-HOST", "input_stall": "RANK-INPUT", "gc_pause": "RANK-GC",
    "allocator": "RANK-ALLOCATOR", "workload_imbalance": "RANK-WORKLOAD", "mixed_hardware": "RANK-HARDWARE", "intra_node_link": "RANK-COPY",
    "checkpoint": "RANK-CHECKPOINT", "moe_imbalance": "MOE-IMBALANCE",
}  # fmt: skip
_NODE_SHARE = 0.75
_ENOUGH_RANKS = 8
_ROTATING_RANKS = 3
_ROTATING_SHARE = 0.5


class Slow(NamedTuple):
    """Ranks with one cause and one way of being slow, judged together."""

    rows: pl.DataFrame
    cause: str
    persistence: Persistence
    hosts: tuple[str, ...]
    whole_host: bool


def check(facts: Facts) -> Iterator[Finding | NotChecked]:
    """Findings from rank_work; what could not be compared."""
    job = job_summary(facts)
    work = facts.tables.query(
        "SELECT w.*, r.host, r.local_rank FROM rank_work AS w JOIN rank AS r USING (rank) ORDER BY rank"
    )
    if job is None or work.is_empty():
        if job is not None:
            yield NotChecked(
                "Is one rank slower than its peers?", "traces of fewer than two ranks of the same job were given",
                "profile all ranks in the same steps and give the folder with all their traces",
            )  # fmt: skip
        return
    if _too_few(facts, len(work)):
        yield NotChecked(
            "Is one rank slower than its peers?", f"traces of {len(work)} of {facts.world_size} ranks were given: too few to say what is ordinary",
            "profile all ranks in the same steps and give the folder with all their traces",
        )  # fmt: skip
        return
    yield from _few_peers(facts, work)
    span = job.span_ns or 1
    slow = list(_grouped(facts, work.filter(pl.col("verdict") != "ordinary")))
    for cause, part, uneven in (
        ("input_stall", "idle_input_ns", None),
        ("moe_imbalance", "local_work_ns", _uneven(facts)),
    ):
        if any(one.cause == cause and one.persistence != "transient" for one in slow):
            continue
        changing = list(_changing(facts, job, cause, part, uneven))
        yield from changing
        slow = [one for one in slow if not (changing and one.cause == cause)]
    for one in slow:
        finding = _finding(facts, one, span)
        if finding is not None:
            yield finding


def _too_few(facts: Facts, seen: int) -> bool:
    """Half of the ranks, or enough of them for a spread, have to be there before one of them is called slow."""
    return facts.world_size is not None and seen < min(_ENOUGH_RANKS, facts.world_size / 2)


def _few_peers(facts: Facts, work: pl.DataFrame) -> Iterator[NotChecked]:
    alone = work.filter(pl.col("peers") == 0)
    if len(alone):
        yield NotChecked(
            "Is a pipeline stage slow because of its device or because of its layers?",
            f"{len(alone)} ranks have no peer that does the same work (one rank a stage)",
            "profile a job with at least two data-parallel replicas, or read the devices' clocks and throttle reasons during the run",
        )
    found = facts.tables.query("SELECT value FROM job_stat WHERE name = 'detectable_slowdown_ratio'")
    limit = found.item() if len(found) else None
    if limit is not None and 0.1 < limit < float("inf"):
        yield NotChecked(
            "Is a rank slower by a few percent?", f"work varies so much from step to step that less than {limit:.0%} cannot be told from noise",
            "profile more steps (schedule active=20)",
        )  # fmt: skip


def _changing(facts: Facts, job: JobSummary, cause: str, part: str, uneven: float | None) -> Iterator[Finding]:
    """In most steps some rank is late by this part, another one each time: no rank stands out, the job pays all the same.

    Args:
        facts: the run.
        job: its summary.
        cause: cause to name.
        part: part of the breakdown in which a rank exceeds the median.
        uneven: for experts, how unevenly all-to-all hands out bytes.
    """
    rule = facts.rules[_RULES[cause]]
    late = (pl.col(part) - pl.col(part).median().over("step")).alias("late")
    steps = job.parts.filter(pl.col("rank") >= 0).with_columns(late).group_by("step").agg(
        pl.col("late").max(), pl.col("rank").sort_by("late").last().alias("who"), pl.col("exposed_wait_ns").max().alias("waited")
    )  # fmt: skip
    lost = (
        steps.select(
            pl.min_horizontal("late", pl.col("waited").fill_null(pl.col("late"))).clip(lower_bound=0).median()
        ).item()
        or 0
    )
    share = lost / (job.span_ns or 1)
    severity = rule.judge(share=share) if uneven is None else rule.judge(share=share, ratio=uneven)
    count = steps.get_column("who").n_unique()
    if severity is None or count < _ROTATING_RANKS:
        return
    yield rule.finding(
        severity, fields={"who": f"In turn each of {count} ranks", "excess": lost, "when": "", "ratio": uneven or 0.0, "share": share}, persistence="rotating",
        impact=facts.impact(lost), confidence=0.85, title=f"{rule.title}, on changing ranks",
        evidence=[Evidence(f"median over the steps of the latest rank above the median one, in {part.removesuffix('_ns')}", round(lost), "ns", "breakdown")],
    )  # fmt: skip


def _grouped(facts: Facts, slow: pl.DataFrame) -> Iterator[Slow]:
    sizes = dict(
        facts.tables.query(
            "SELECT host, count(*) FROM rank WHERE host IS NOT NULL AND rank >= 0 GROUP BY host"
        ).iter_rows()
    )
    for (cause, verdict), rows in slow.group_by("cause", "verdict", maintain_order=True):
        persistence: Persistence = "persistent" if verdict == "persistent" else "transient"
        if persistence == "transient" and _rotates(rows):
            yield Slow(rows, str(cause), "rotating", (), whole_host=False)
            continue
        left = rows
        for (host,), members in rows.group_by("host", maintain_order=True):
            if host is not None and sizes.get(host, 0) > 1 and len(members) >= _NODE_SHARE * sizes[host]:
                left = left.filter(pl.col("host").ne_missing(host))
                yield Slow(members, str(cause), persistence, (str(host),), whole_host=True)
        for row in left.iter_slices(1):
            hosts = tuple(row.get_column("host").drop_nulls().to_list())
            yield Slow(row, str(cause), persistence, hosts, whole_host=False)


def _rotates(rows: pl.DataFrame) -> bool:
    """Many ranks, none of which carries most of it."""
    cost = rows.get_column("cost_ns").fill_null(0)
    total = cost.sum() or 1
    largest = float(cost.max() or 0)  # type: ignore[arg-type]
    return len(rows) >= _ROTATING_RANKS and largest <= _ROTATING_SHARE * float(total)


def _finding(facts: Facts, slow: Slow, span: int) -> Finding | None:
    cost = _cost(slow)
    rule = facts.rules[_RULES[slow.cause]]
    uneven = _uneven(facts) if slow.cause == "moe_imbalance" else None
    severity = rule.judge(share=cost / span) if uneven is None else rule.judge(share=cost / span, ratio=uneven)
    if severity is None:
        return None
    rows = slow.rows
    excess = (
        _median(rows, "burst_ns")
        if slow.persistence != "persistent"
        else _median(rows, "work_ns") - _median(rows, "reference_ns")
    )
    steps = sorted({step for steps in rows.get_column("slow_steps").to_list() for step in steps})
    fields = {
        "who": _who(slow), "when": _when(slow, steps), "excess": excess, "speed": _ratio(rows, "speed_ratio"), "memory": _ratio(rows, "memory_ratio"),
        "matrix": _ratio(rows, "matrix_ratio"), "volume": _ratio(rows, "volume_ratio"), "share": cost / span, "ratio": uneven or 0.0,
    }  # fmt: skip
    ranks = [] if slow.persistence == "rotating" else rows.get_column("rank").to_list()
    return rule.finding(
        severity, fields=fields, ranks=ranks, hosts=slow.hosts, devices=_devices(slow), steps=steps if slow.persistence != "persistent" else "all",
        persistence=slow.persistence, impact=facts.impact(cost, rare=slow.persistence == "transient"), confidence=_confidence(rows, slow), evidence=_evidence(facts, slow, excess),
        title=_title(rule.title, slow),
    )  # fmt: skip


def _uneven(facts: Facts) -> float:
    found = facts.tables.query("SELECT value FROM job_stat WHERE name = 'all_to_all_imbalance_ratio'")
    return float(found.item()) if len(found) else 0.0


def _cost(slow: Slow) -> int:
    """Ranks that are slow together are removed together; those that take turns add up."""
    cost = slow.rows.get_column("cost_ns").fill_null(0)
    return int(cost.sum() if slow.persistence == "rotating" else cost.max() or 0)  # type: ignore[arg-type]


def _title(title: str, slow: Slow) -> str:
    if slow.persistence == "rotating":
        return f"{title}, on changing ranks"
    where = (
        f"host {slow.hosts[0]}"
        if slow.whole_host
        else f"rank {slow.rows['rank'][0]}" + (f" on {slow.hosts[0]}" if slow.hosts else "")
    )
    return f"{title}: {where}"


def _who(slow: Slow) -> str:
    ranks = slow.rows.get_column("rank").to_list()
    if slow.persistence == "rotating":
        return f"In turn each of {len(ranks)} ranks"
    if slow.whole_host:
        return f"Host {slow.hosts[0]} (ranks {_listed(ranks)})"
    return f"Rank {ranks[0]}" + (f" on {slow.hosts[0]}" if slow.hosts else "")


def _when(slow: Slow, steps: Sequence[int]) -> str:
    if slow.persistence == "persistent":
        return ""
    return f" in {len(steps)} steps ({_listed(steps)})" if len(steps) > 1 else f" in step {steps[0]}" if steps else ""


def _listed(values: Sequence[int]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return shown if len(values) <= 8 else f"{shown}, and {len(values) - 8} more"


def _devices(slow: Slow) -> list[str]:
    if slow.persistence == "rotating" or slow.cause not in ("gpu_slow", "gpu_memory_slow", "intra_node_link"):
        return []
    return [
        f"{row['host']}:{row['local_rank']}"
        for row in slow.rows.iter_rows(named=True)
        if row["host"] is not None and row["local_rank"] is not None
    ]


def _confidence(rows: pl.DataFrame, slow: Slow) -> float:
    effect = rows.select((pl.col("slowdown_ratio") / pl.col("sigma_ratio")).max()).item() or 0.0
    if slow.persistence == "persistent":
        return 0.95 if effect >= 6 else 0.85
    return 0.85 if max(map(len, rows.get_column("slow_steps").to_list()), default=0) >= 2 else 0.7


def _evidence(facts: Facts, slow: Slow, excess: int) -> list[Evidence]:
    rows = slow.rows
    evidence = []
    if slow.persistence == "persistent":
        evidence.append(Evidence("local work per step", int(_median(rows, "work_ns")), "ns", "rank_work"))
        evidence.append(
            Evidence("the same for ranks with the same role", int(_median(rows, "reference_ns")), "ns", "rank_work")
        )
        evidence.append(
            Evidence("ordinary spread of that over the role", _ratio(rows, "sigma_ratio"), "ratio", "rank_work")
        )
    else:
        evidence.append(
            Evidence("mean excess in these steps over the rank's other steps", int(excess), "ns", "rank_work")
        )
    for column, text in (
        ("speed_ratio", "same kernels, same shapes: time over the peers', minus 1"),
        ("volume_ratio", "amount of work over the peers', minus 1"),
    ):
        if slow.persistence == "persistent" and rows.get_column(column).drop_nulls().len():
            evidence.append(Evidence(text, round(_ratio(rows, column), 4), "ratio", "rank_work"))
    ranks = rows.get_column("rank").to_list()
    waits = facts.tables.query(
        "SELECT sum(caused_wait_ns)::BIGINT AS caused FROM who_waits WHERE list_contains($ranks, rank)",
        {"ranks": ranks},
    )
    if (caused := waits.item()) and slow.persistence != "rotating":
        evidence.append(
            Evidence("waiting of all other ranks per step in collectives where it came last", caused, "ns", "who_waits")
        )
    return evidence


def _median(rows: pl.DataFrame, column: str) -> int:
    value = rows.get_column(column).median()
    return 0 if value is None else round(float(value))  # type: ignore[arg-type]


def _ratio(rows: pl.DataFrame, column: str) -> float:
    value = rows.get_column(column).median()
    return 0.0 if value is None else float(value)  # type: ignore[arg-type]
