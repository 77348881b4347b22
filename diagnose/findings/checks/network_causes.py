"""Transfers that block for a reason with a name: a slow NIC or link, a lossy port, uplinks, a protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from diagnose.analysis.cross.exposed import blocking_comm
from diagnose.model import Evidence
from diagnose.units import format_longer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_CPU_BACKENDS = ("gloo", "mpi")
_RINGS = ("all_reduce", "all_gather", "reduce_scatter")
"""Kinds that reach the same bus bandwidth with the same algorithm."""

_LARGE_BYTES = 1_000_000
_NAMED_HOSTS = 8


class Blocking(NamedTuple):
    """Transfers that block, per step: the median, the mean (which rare slow transfers move), and the step's window."""

    median_ns: float
    mean_ns: float
    span_ns: int


def blocking_mean(job: JobSummary) -> float:
    """Mean over the steps of what blocks the critical rank."""
    return float(blocking_comm(job.parts).get_column("blocking_comm_ns").mean() or 0.0)  # type: ignore[arg-type]


def known_causes(facts: Facts, tiers: pl.DataFrame, blocked: Blocking) -> Iterator[Finding]:
    """Findings whose cost is the part of the blocking transfers that the cause explains."""
    blocking, span = blocked.median_ns, blocked.span_ns
    weights = _weights(tiers)
    suspects = facts.tables.query("SELECT * FROM network_suspect WHERE score > 0 ORDER BY score DESC, kind, name")
    tails = pl.col("kind").str.ends_with("tail")
    inside, outside = (
        suspects.filter(pl.col("tier") == "intra-node"),
        suspects.filter((pl.col("tier") != "intra-node") & ~tails),
    )
    over = list(_oversubscription(facts, tiers, blocking, span))
    yield from over
    if not over:
        yield from _slow(facts, "NET-SLOW-NIC", outside, blocking * weights.get("inter", 0.0), blocking / span)
    yield from _slow(facts, "NET-SLOW-LINK", inside, blocking * weights.get("intra", 0.0), blocking / span)
    if outside.is_empty():
        yield from _lossy(facts, tiers, suspects.filter(tails), max(blocked.mean_ns, blocking), span)
    yield from _protocol(facts, tiers, blocking, span)


def _weights(tiers: pl.DataFrame) -> dict[str, float]:
    """Share of exposed transfer inside nodes and between them."""
    total = float(tiers.get_column("exposed_transfer_ns").sum() or 1)
    inside = float(tiers.filter(pl.col("tier") == "intra-node").get_column("exposed_transfer_ns").sum() or 0)
    return {"intra": inside / total, "inter": 1 - inside / total}


def _slow(facts: Facts, code: str, suspects: pl.DataFrame, blocking: float, share: float) -> Iterator[Finding]:
    """The best suspect and those that the evidence fits as well."""
    rule = facts.rules[code]
    if suspects.is_empty():
        return
    top = suspects.row(0, named=True)
    slowdown = top["slowdown_ratio"] or 0.0
    lost = blocking * slowdown / (1 + slowdown)
    severity = rule.judge(share=share, gain=lost / (facts.step_ns or 1))
    if severity is None:
        return
    near = suspects.filter(pl.col("ambiguous")) if top["ambiguous"] else suspects.head(1)
    names, hosts = near.get_column("name").to_list(), near.get_column("host").drop_nulls().unique().sort().to_list()
    yield rule.finding(
        severity, fields={"who": _who(top), "slowdown": format_longer(slowdown), "ambiguity": _ambiguity(names), "share": share},
        hosts=hosts if len(hosts) <= _NAMED_HOSTS else [], ranks=top["ranks"] if len(names) == 1 else [], impact=facts.impact(lost),
        persistence="persistent", confidence=0.9 if len(names) == 1 else 0.6, evidence=_scores(near, "score against comparable groups"),
    )  # fmt: skip


def _lossy(facts: Facts, tiers: pl.DataFrame, suspects: pl.DataFrame, blocking: float, span: int) -> Iterator[Finding]:
    rule = facts.rules["NET-LOSSY"]
    if suspects.is_empty():
        return
    total = float(tiers.get_column("exposed_transfer_ns").sum() or 1)
    tail = (
        float(
            (tiers.get_column("tail_ratio").fill_null(0.0) * tiers.get_column("exposed_transfer_ns").fill_null(0)).sum()
        )
        / total
    )
    severity = rule.judge(share=blocking / span, tail=tail)
    if severity is None:
        return
    top = suspects.row(0, named=True)
    names, hosts = (
        suspects.get_column("name").to_list(),
        suspects.get_column("host").drop_nulls().unique().sort().to_list(),
    )
    yield rule.finding(
        severity, fields={"who": _who(top), "tail": tail, "slowdown": top["slowdown_ratio"] or 0.0, "ambiguity": _ambiguity(names), "share": blocking / span},
        hosts=hosts if len(hosts) <= _NAMED_HOSTS else [], ranks=top["ranks"] if len(names) == 1 and top["kind"] == "rank tail" else [],
        impact=facts.impact(blocking * tail), persistence="transient", confidence=0.8 if len(names) == 1 else 0.6,
        evidence=_scores(suspects, "log-likelihood that its groups have more outliers than others"),
    )  # fmt: skip


def _oversubscription(facts: Facts, tiers: pl.DataFrame, blocking: float, span: int) -> Iterator[Finding]:
    found = dict(facts.tables.query("SELECT name, value FROM job_stat WHERE name LIKE 'oversubscription%'").iter_rows())
    ratio, low = found.get("oversubscription_ratio"), found.get("oversubscription_low")
    if ratio is None or low is None:
        return
    total = float(tiers.get_column("exposed_transfer_ns").sum() or 1)
    crossing = float(tiers.filter(pl.col("tier") == "cross-leaf").get_column("exposed_transfer_ns").sum() or 0) / total
    rule = facts.rules["NET-OVERSUBSCRIPTION"]
    severity = rule.judge(share=blocking / span, ratio=ratio, low=low)
    if severity is not None:
        yield rule.finding(
            severity, fields={"ratio": ratio, "share": blocking / span}, impact=facts.impact(blocking * crossing * (1 - 1 / ratio)), confidence=0.85,
            evidence=[
                Evidence("bandwidth inside a leaf over bandwidth across leaves, at least", round(ratio, 3), "ratio", "job_stat"),
                Evidence("its 95 % interval", f"{low:.2f} to {found.get('oversubscription_high', ratio):.2f}", None, "job_stat"),
            ],
        )  # fmt: skip


def _protocol(facts: Facts, tiers: pl.DataFrame, blocking: float, span: int) -> Iterator[Finding]:
    """One kind of collective far below the others of the same groups."""
    if facts.tables.query("SELECT backend FROM run").item() in _CPU_BACKENDS:
        return
    sizes = facts.tables.query(
        "SELECT collective, members AS group_size, median(msg_bytes) AS size FROM collective GROUP BY ALL"
    )
    rows = tiers.join(sizes, on=["collective", "group_size"]).filter(
        pl.col("collective").is_in(list(_RINGS))
        & (pl.col("size") >= _LARGE_BYTES)
        & (pl.col("busbw_bytes_per_s") > 0)
        & (pl.col("group_size") > 2)
    )
    total = float(tiers.get_column("exposed_transfer_ns").sum() or 1)
    rule = facts.rules["NET-PROTOCOL"]
    for _, same in rows.group_by("tier", "group_size", maintain_order=True):
        ordered = same.sort("busbw_bytes_per_s")
        worst, best = ordered.row(0, named=True), ordered.row(-1, named=True)
        kept = worst["busbw_bytes_per_s"] / best["busbw_bytes_per_s"]
        weight = (worst["exposed_transfer_ns"] or 0) / total
        severity = rule.judge(share=blocking * weight / span, kept=kept)
        if severity is not None:
            yield rule.finding(
                severity, fields={"collective": worst["collective"], "other": best["collective"], "kept": kept, "busbw": worst["busbw_bytes_per_s"],
                                  "reach": best["busbw_bytes_per_s"], "members": worst["group_size"], "share": blocking * weight / span},
                impact=facts.impact(blocking * weight * (1 - kept)), confidence=0.7,
                evidence=[Evidence(f"bus bandwidth of {row['collective']}", row["busbw_bytes_per_s"], "bytes/s", "network_tier") for row in (worst, best)],
            )  # fmt: skip


def _who(top: dict[str, Any]) -> str:
    return f"host {top['name']}" if top["kind"].startswith("node") else f"{top['name']} on {top['host']}"


def _ambiguity(names: list[str]) -> str:
    return f" (the evidence fits each of {', '.join(names[:6])} equally well)" if len(names) > 1 else ""


def _scores(near: pl.DataFrame, text: str) -> list[Evidence]:
    return [
        Evidence(f"{row['kind'].split()[0]} {row['name']}: {text}", round(row["score"], 1), None, "network_suspect")
        for row in near.head(4).iter_rows(named=True)
    ]
