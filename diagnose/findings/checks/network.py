"""Transfers that block: what bounds them, and who makes them slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from diagnose.analysis.cross.exposed import HANDSHAKE_BYTES, mark_handshakes
from diagnose.analysis.cross.network import LATENCY, TAIL
from diagnose.findings.accelerator import accelerator
from diagnose.findings.checks.network_causes import Blocking, blocking_mean, known_causes
from diagnose.findings.job import job_summary
from diagnose.model import Evidence, NotChecked
from diagnose.units import format_rate, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.summary import JobSummary
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_CODES = {
    "latency": "NET-LATENCY",
    "tail": "NET-TAIL",
    "bandwidth": "NET-BANDWIDTH",
    "wire": "NET-BANDWIDTH",
    "unknown": "NET-BANDWIDTH",
    "contention": "NET-TAIL",
}
_SHARE_OF_CLASS = 0.25
_IPERF = "iperf3 -c <other host> -P 8 -t 20 between two hosts"
_NCCL_TESTS = "mpirun -N <gpus per node> all_reduce_perf -b 1M -e 1G -f 2 -g 1 > nccl-tests.log, and give the file with the traces"


def check(facts: Facts) -> Iterator[Finding | NotChecked]:
    """Findings of the dearest classes of collectives, the suspects, and what could not be asked."""
    job = job_summary(facts)
    tiers = facts.tables.query(
        "SELECT * FROM network_tier ORDER BY exposed_transfer_ns DESC NULLS LAST, tier, collective"
    )
    if job is None:
        return
    yield from _open_questions(tiers, cpu=accelerator(facts.tables) == "cpu")
    yield from _debug(facts, job)
    blocking, span = job.blocking_ns, job.span_ns or 1
    if blocking is None or tiers.is_empty():
        return
    mean = blocking_mean(job)
    known = list(known_causes(facts, tiers, Blocking(blocking, mean, span)))
    yield from (item for item in known if item is not None)
    explained = sum(item.impact.ns_per_step or 0 for item in known)
    rest = max(blocking - explained, 0.0)
    hidden = (
        facts.tables.query("SELECT host FROM network_suspect WHERE score = 0 ORDER BY host")
        .get_column("host")
        .to_list()
    )
    classes = _classes(tiers)
    for place, (code, rows, weight) in enumerate(classes):
        # Classes that are small each and too much together: the dearest speaks for all.
        judged = rest if place == 0 and not known else rest * weight
        if code == "NET-TAIL":  # rare slow transfers move the mean step, not the median one
            judged = max(judged, (mean - explained) * weight)
        finding = _class_finding(facts, code, rows, rest * weight, judged / span, hidden)
        if finding is not None:
            yield finding


def _classes(tiers: pl.DataFrame) -> list[tuple[str, pl.DataFrame, float]]:
    """Classes with one and the same problem on one tier, dearest first: code, their rows, their share of the exposed transfer."""
    exposed = float(tiers.get_column("exposed_transfer_ns").sum() or 1)
    codes = [_code(row) for row in tiers.iter_rows(named=True)]
    coded = tiers.with_columns(pl.Series("code", codes, dtype=pl.String))
    found = [
        (str(key[0]), rows, float(rows.get_column("exposed_transfer_ns").sum() or 0) / exposed)
        for key, rows in coded.group_by("code", "tier", maintain_order=True)
    ]
    return sorted((item for item in found if item[2] >= _SHARE_OF_CLASS), key=lambda item: -item[2])


def _code(row: dict[str, Any]) -> str:
    """What bounds the transfers of a class; of one that mostly waits, what bounds the rest."""
    bound = row["bound"] or "unknown"
    if bound == "wait":
        bound = (
            "latency"
            if (row["latency_ratio"] or 0.0) > LATENCY
            else "tail"
            if (row["tail_ratio"] or 0.0) > TAIL
            else "unknown"
        )
    code = _CODES[bound]
    return "NET-INTRA-NODE" if code == "NET-BANDWIDTH" and row["tier"] == "intra-node" else code


def _debug(facts: Facts, job: JobSummary) -> Iterator[Finding]:
    """Hand-shakes of the debug wrapper, by the same rule as the division of exposed communication."""
    calls = facts.tables.query(
        "SELECT c.rank, c.step, c.is_p2p, c.peer, c.msg_bytes, c.collective, c.exposed_ns FROM comm_call AS c JOIN step AS s USING (rank, step) "
        f"WHERE s.label = 'normal' AND c.rank >= 0 AND c.msg_bytes <= {HANDSHAKE_BYTES}"
    )
    mine = mark_handshakes(calls).filter("handshake")
    if mine.is_empty():
        return
    per = mine.group_by("rank", "step").agg(pl.col("exposed_ns").sum(), pl.len().alias("count"))
    lost, count = (float(per.get_column(name).median() or 0) for name in ("exposed_ns", "count"))  # type: ignore[arg-type]
    rule = facts.rules["NET-DEBUG"]
    share = lost / (job.span_ns or 1)
    severity = rule.judge(share=share)
    if severity is not None:
        yield rule.finding(
            severity, fields={"share": share, "lost": lost, "count": count}, impact=facts.impact(lost), confidence=0.9,
            evidence=[Evidence("median exposed time of hand-shakes per rank and step", round(lost), "ns", "comm_call")],
        )  # fmt: skip


def _open_questions(tiers: pl.DataFrame, *, cpu: bool) -> Iterator[NotChecked]:
    own = tiers.filter((pl.col("reference_from") == "best decile of this run") & (pl.col("tier") != "intra-node"))
    if len(own):
        yield NotChecked(
            "Does the fabric reach its wire speed?",
            "nothing here says what it should reach",
            f"run {_IPERF}, and state the rate under `hardware` in diagnose.yaml"
            if cpu
            else f"run {_NCCL_TESTS}; or state it under `hardware` in diagnose.yaml",
        )
    if len(tiers.filter(pl.col("tier").is_null())):
        yield NotChecked(
            "Is the slow part inside the nodes or between them?",
            "the traces do not say on which host a rank ran",
            "give --host-map, or traces of torch 2.13 and newer, which carry host_name",
        )


def _class_finding(
    facts: Facts, code: str, rows: pl.DataFrame, lost: float, share: float, hidden: list[str]
) -> Finding | None:
    row = rows.row(0, named=True)
    rule = facts.rules[code]
    severity = rule.judge(share=share)
    if severity is None:
        return None
    sizes = facts.tables.query(
        "SELECT count(*) / greatest(count(DISTINCT step), 1) AS count, median(msg_bytes) AS size, sum(transfer_ns) / greatest(count(DISTINCT step), 1) AS transfer "
        "FROM collective WHERE collective = $kind AND members = $members AND step IS NOT NULL AND transfer_ns IS NOT NULL",
        {"kind": row["collective"], "members": row["group_size"]},
    ).row(0, named=True)
    tier = row["tier"] or "unknown tier"
    fields = {
        "collective": row["collective"], "members": row["group_size"], "tier": tier, "busbw": row["busbw_bytes_per_s"] or 0.0, "against": _against(row),
        "share": share, "count": sizes["count"], "size": sizes["size"] or 0, "transfer": sizes["transfer"] or 0, "latency": row["latency_ratio"] or 0.0,
        "tail": row["tail_ratio"] or 0.0,
    }  # fmt: skip
    return rule.finding(
        severity, fields=fields, impact=facts.impact(lost), confidence=0.85 if row["instances"] >= 20 else 0.7,
        evidence=[*_evidence(row, hidden if code == "NET-BANDWIDTH" else []), *_others(rows)],
    )  # fmt: skip


def _others(rows: pl.DataFrame) -> list[Evidence]:
    """The further kinds of collectives with the same problem."""
    return [
        Evidence(f"{row['collective']} over {row['group_size']} ranks, exposed transfer per step", row["exposed_transfer_ns"], "ns", "network_tier")
        for row in rows.slice(1, 3).iter_rows(named=True)
    ]  # fmt: skip


def _against(row: dict[str, Any]) -> str:
    reference, source = row["reference_bytes_per_s"], row["reference_from"]
    if not reference or source == "best decile of this run":
        return "with nothing to compare it with"
    return f"{format_ratio((row['busbw_bytes_per_s'] or 0.0) / reference)} of {format_rate(reference)} ({source})"


def _evidence(row: dict[str, Any], hidden: list[str]) -> list[Evidence]:
    evidence = [
        Evidence(
            f"{row['instances']} collectives in {row['groups']} group(s), exposed transfer per step",
            row["exposed_transfer_ns"],
            "ns",
            "network_tier",
        )
    ]
    if row["busbw_bytes_per_s"]:
        evidence.append(
            Evidence("bus bandwidth (median instances)", row["busbw_bytes_per_s"], "bytes/s", "network_tier")
        )
    if row["busbw_low"] is not None and row["busbw_high"] is not None:
        evidence.append(
            Evidence(
                "its 95 % interval",
                f"{format_rate(row['busbw_low'])} to {format_rate(row['busbw_high'])}",
                None,
                "network_tier",
            )
        )
    if row["alpha_ns"] is not None:
        evidence.append(Evidence("fixed cost of one collective", row["alpha_ns"], "ns", "network_tier"))
    evidence.append(
        Evidence("share of kernel time spent waiting", round(row["wait_ratio"], 4), "ratio", "network_tier")
    )
    if hidden:
        evidence.append(
            Evidence(
                f"one group holds all hosts, so any of them may be the slow one: {', '.join(hidden[:8])}",
                None,
                None,
                "network_suspect",
            )
        )
    return evidence
