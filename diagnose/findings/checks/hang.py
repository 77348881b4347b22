"""Hangs and deaths: one verdict on why the job stopped, and initialisations that do not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.comm_audit.hang import reports, stop
from diagnose.analysis.comm_audit.inits import StuckInit, stuck_init
from diagnose.analysis.comm_audit.view import View, line_evidence, names, view
from diagnose.model import Evidence, NotChecked
from diagnose.units import opening

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diagnose.analysis.comm_audit.reports import Stop
    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_RULES = {
    "died": "COM-HANG-DIED",
    "crashed_at_start": "COM-HANG-START",
    "exception": "COM-HANG-EXCEPTION",
    "behind": "COM-HANG-BEHIND",
    "late": "COM-HANG-LATE",
    "mismatch": "COM-HANG-MISMATCH",
    "silent": "COM-HANG-SILENT",
    "stuck": "COM-HANG-STUCK",
}
_LIBRARY_CAUSES = frozenset(
    {"cuda_error", "cuda_oom", "nvls_bind_failed", "duplicate_gpu", "shm_full", "ib_retry_exceeded"}
)
_CERTAIN = 0.6
_OPENS = frozenset({"mismatch", "silent", "stuck", "crashed_at_start"})
"""Kinds whose message begins with the detail."""


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """The verdict on a stop, with culprit, operation and evidence; then initialisations."""
    seen = view(facts.tables)
    world = facts.world_size or seen.ranks.world
    verdict = stop(reports(facts.tables, seen.records.events, world))
    if verdict is not None and not _told_by_library(seen, verdict):
        yield _finding(facts, verdict)
        if verdict.kind in {"silent", "stuck"}:
            yield NotChecked(
                "Which rank does the hung collective wait for?",
                "no flight recorder dump was given",
                "TORCH_FR_BUFFER_SIZE=2000 (TORCH_NCCL_TRACE_BUFFER_SIZE before torch 2.8), "
                "TORCH_NCCL_DUMP_ON_TIMEOUT=1, TORCH_FR_DUMP_TEMP_FILE=/logs/nccl_trace_rank_; "
                "give the dumps of all ranks",
            )
    stuck = stuck_init(seen.records, facts.tables)
    if stuck is not None:
        yield _init(facts, seen, stuck)


def _told_by_library(seen: View, verdict: Stop) -> bool:
    """A stop without a culprit says nothing new where the library's own error names the first cause."""
    return not verdict.culprits and bool(set(seen.records.events["code"].to_list()) & _LIBRARY_CAUSES)


def _finding(facts: Facts, verdict: Stop) -> Finding:
    hosts = set(verdict.hosts) | _hosts(facts, verdict.culprits)
    where = ""
    if verdict.op is not None or verdict.seq is not None:
        end = "The others end at" if verdict.kind == "died" else "Hung:"
        group = f" of group {verdict.group}" if verdict.group else ""
        where = f" {end} {verdict.op or 'collective'} number {verdict.seq}{group}."
    victims = f"Ranks {names(verdict.victims, most=8)} only wait for it or report its end." if verdict.victims else ""
    named = names(verdict.culprits, most=8) if verdict.culprits else "of unknown number"
    if hosts and verdict.culprits:
        named += f" on {names(sorted(hosts))}"
    return facts.rules[_RULES[verdict.kind]].finding(
        "critical" if verdict.confidence >= _CERTAIN or verdict.kind in {"silent", "stuck"} else "warning",
        fields={
            "ranks": named,
            "detail": opening(verdict.detail) if verdict.kind in _OPENS else verdict.detail,
            "victims": f"{victims}{where}".strip(),
        },
        ranks=verdict.culprits,
        hosts=hosts,
        devices=[],
        confidence=verdict.confidence,
        evidence=[Evidence(clue.text, source=clue.source) for clue in verdict.clues],
    )


def _hosts(facts: Facts, ranks: Iterable[int]) -> set[str]:
    """Hosts of ranks as the traces know them."""
    wanted = set(ranks)
    rows = facts.tables.query("SELECT rank, host FROM rank WHERE host IS NOT NULL")
    return {row["host"] for row in rows.iter_rows(named=True) if row["rank"] in wanted}


def _init(facts: Facts, seen: View, stuck: StuckInit) -> Finding:
    ranks = sorted({row["comm_rank"] for row in stuck.rows if row["comm_rank"] is not None})
    nranks = stuck.rows[0]["nranks"]
    missing = sorted(set(range(nranks)) - set(ranks)) if nranks and not stuck.partly and len(ranks) < nranks else []
    text = f"rank {names(ranks, most=8)} of {nranks} started and did not complete"
    if stuck.partly:
        text += ", others of the same communicator did"
    elif missing and len(seen.scale.hosts) > 1:
        text += f"; no line of rank {names(missing, most=8)}"
    every = nranks is not None and len(ranks) == nranks
    severe = stuck.partly or every or len(stuck.rows) > 1
    return facts.rules["COM-HANG-INIT"].finding(
        "critical" if severe and not stuck.completed else "warning",
        fields={"text": text},
        hosts=sorted({row["host"] for row in stuck.rows if row["host"]}),
        ranks=seen.ranks.of(stuck.rows),
        confidence=0.7 if severe else 0.5,
        evidence=line_evidence(stuck.rows, "rank {comm_rank} of {nranks}: Init START, no COMPLETE"),
    )
