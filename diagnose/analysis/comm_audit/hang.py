"""Why a job stopped: which rank died, fell behind or never came, told from the ranks that only waited for it.

Precedence: a rank that was killed or raised an error of its own; a log that just stops while others report broken
connections; a rank behind in the collectives of a group (flight recorder, then watchdog); a rank that alone reports
nothing. Every other rank is a victim, however loud its log is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.flight import Stall, stalls
from diagnose.analysis.comm_audit.records import where
from diagnose.analysis.comm_audit.reports import (
    NETWORK_ECHOES,
    WATCHDOGS,
    Clue,
    Reports,
    Stop,
    hosts_of,
    numbers,
    peers,
    who,
)
from diagnose.analysis.comm_audit.waiting import timeouts, watchdog

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from diagnose.analysis.comm_audit.records import Queries

KILLED = {9: "SIGKILL", 11: "SIGSEGV", 6: "SIGABRT", 7: "SIGBUS", 4: "SIGILL", 8: "SIGFPE"}
_SHELL_SIGNALS = 128
_TERM = 15


def reports(tables: Queries, events: pl.DataFrame, world: int | None) -> Reports:
    """The reports of a run."""
    logs = tables.query("SELECT * FROM rank_log ORDER BY rank, path")
    sizes = [size for size in logs["world_size"].to_list() if size is not None]
    return Reports(events, logs, stalls(tables), world or max(sizes, default=None))


def stop(data: Reports) -> Stop | None:
    """The one verdict on the end of the job, None when nothing stopped."""
    stalled = next((item for item in data.stalls if item.kind != "undumped"), None)
    verdict = (
        _exits(data)
        or _broken_logs(data)
        or _from_stall(data, stalled)
        or watchdog(data)
        or timeouts(data)
        or _at_start(data)
    )
    if verdict is None:
        return None
    return _with_context(data, verdict, stalled)


def signal_name(status: int | None, detail: str | None) -> str | None:
    """The signal of an exit status or a launcher's word; None for an ordinary exit or the launcher's SIGTERM."""
    if detail in {"Killed", "SIGKILL"}:
        return "SIGKILL"
    if detail in {"Segmentation fault", "SIGSEGV"}:
        return "SIGSEGV"
    if status is None:
        return detail if detail in set(KILLED.values()) else None
    number = (
        -status
        if status < 0
        else status - _SHELL_SIGNALS
        if status > _SHELL_SIGNALS
        else status
        if status in KILLED
        else 0
    )
    return None if number == _TERM else KILLED.get(number)


def _exits(data: Reports) -> Stop | None:
    """Ranks with an exit of their own: killed first, then an error that no other rank caused."""
    killed = []
    for row in data.events.iter_rows(named=True):
        if row["code"] in {"process_exit", "segfault"}:
            name = signal_name(row["status"], row["detail"])
            if name is not None:
                killed.append((row, name))
        elif row["code"] == "oom_killed":
            killed.append((row, "the kernel's out-of-memory killer"))
    raised = [row for row in data.logs.iter_rows(named=True) if row["ended"] == "exception"]
    if killed:
        rows = [row for row, _ in killed]
        clues = tuple(Clue(f"{who(row)} ended by {name}", where(row["path"], row["line"])) for row, name in killed[:4])
        return _stop("died", rows, data, 0.95, clues, killed[0][1])
    if not raised:
        return _raised_in_stream(data)
    first = min(raised, key=lambda row: (row["last_t_ns"] is None, row["last_t_ns"] or 0))
    all_raised = len(raised) == data.logs.height and data.logs.height > 1
    culprit = [first] if all_raised else raised
    text = _exception_text(data, first)
    clues = (Clue(f"rank {first['rank']}: {text}", where(first["path"], first["last_line"])),)
    return _stop("exception", culprit, data, 0.9 if len(culprit) == 1 else 0.7, clues, text)


def _raised_in_stream(data: Reports) -> Stop | None:
    """An error of its own of one rank in a stream of several, among broken connections of the others."""
    events = data.events
    if events.is_empty() or not events["code"].is_in([*NETWORK_ECHOES, *WATCHDOGS]).any():
        return None
    rows = [
        row
        for row in events.iter_rows(named=True)
        if row["code"] == "exception" and row["role"] == "cause" and row["rank"] is not None
    ]
    if not rows or any(row["path"] in set(data.logs["path"].to_list()) for row in rows):
        return None
    first = min(rows, key=lambda row: (row["t_ns"] or 0, row["line"]))
    text = f"{first['subject']}: {first['detail']}"[:200]
    clues = (Clue(f"rank {first['rank']}: {text}", where(first["path"], first["line"])),)
    return _stop("exception", [first], data, 0.8, clues, text)


def _exception_text(data: Reports, log: dict[str, Any]) -> str:
    rows = [
        row
        for row in data.events.iter_rows(named=True)
        if row["path"] == log["path"] and row["code"] in {"exception", "cuda_error", "cuda_oom"}
    ]
    row = rows[-1] if rows else None
    return f"{row['subject']}: {row['detail']}"[:200] if row else str(log["text"])


def _broken_logs(data: Reports) -> Stop | None:
    """Logs that just stop while others report broken connections: a killed process prints nothing."""
    logs = list(data.logs.iter_rows(named=True))
    victims = [row for row in logs if row["ended"] == "network_error"]
    silent = [row for row in logs if row["ended"] == "open" and not _finished(row)]
    if not victims or not silent:
        return None
    steps = [row["last_step"] for row in victims if row["last_step"] is not None]
    clues = [
        Clue(
            f"rank {row['rank']}'s log stops without a message"
            + (f" after step {row['last_step']}" if row["last_step"] is not None else ""),
            where(row["path"], row["last_line"]),
        )
        for row in silent[:3]
    ]
    clues += peers(data)
    detail = "its log stops without a message while the others report broken connections"
    confidence = 0.9 if len(silent) < len(victims) or steps else 0.7
    return _stop("died", silent, data, confidence, tuple(clues), detail)


def _from_stall(data: Reports, stall: Stall | None) -> Stop | None:
    if stall is None:
        return None
    operation = f"{stall.op or 'collective'} number {stall.seq} of group {_group(stall)}"
    seconds = (stall.late_ns or 0) / 1e9
    texts = {
        "behind": f"has not issued {operation}",
        "late": f"issued {operation} {seconds:.1f} s after the first",
        "mismatch": f"is in another operation or size at {operation}, sizes {stall.sizes}",
    }
    failing = stall.pending or _failing(data)
    confidence = {"behind": 0.95, "mismatch": 0.85, "late": 0.8}[stall.kind] if failing else 0.5
    clue = Clue(f"flight recorder: rank {numbers(stall.culprits)} {texts[stall.kind]}", stall.source)
    return Stop(
        stall.kind, stall.culprits, stall.waiting, hosts_of(data, stall.culprits), stall.op, stall.seq, _group(stall),
        confidence, (clue,), texts[stall.kind],
    )  # fmt: skip


def _group(stall: Stall) -> str:
    return stall.description if stall.description not in {None, "", "undefined"} else stall.group


def _at_start(data: Reports) -> Stop | None:
    """All logs stop between the reducer and the end of DDP's constructor: a crash that printed nothing."""
    logs = list(data.logs.iter_rows(named=True))
    if not logs or any(row["ended"] != "open" or row["stage"] != "reducer" for row in logs):
        return None
    clues = tuple(
        Clue(
            f"rank {row['rank']}'s log ends in DDP's constructor, without a message: {row['text'][:120]}",
            where(row["path"], row["last_line"]),
        )
        for row in logs[:3]
    )
    ranks = tuple(sorted({row["rank"] for row in logs}))
    text = (
        "the logs end while DistributedDataParallel is being constructed, before any step: "
        "the processes crashed (a segmentation fault prints nothing)"
    )
    return Stop("crashed_at_start", ranks, (), hosts_of(data, ranks), None, None, None, 0.75, clues, text)


def _with_context(data: Reports, verdict: Stop, stall: Stall | None) -> Stop:
    """Add what other sources say of the same ranks."""
    clues = list(verdict.clues)
    if (
        stall is not None
        and verdict.seq is None
        and (not verdict.culprits or set(stall.culprits) & set(verdict.culprits))
    ):
        verdict = verdict._replace(op=stall.op, seq=stall.seq, group=_group(stall))
        clues.append(
            Clue(
                f"flight recorder: rank {numbers(stall.culprits)} behind at {stall.op} number {stall.seq}", stall.source
            )
        )
    undumped = next((item for item in data.stalls if item.kind == "undumped"), None)
    if undumped is not None and set(undumped.culprits) & set(verdict.culprits):
        missing = numbers(undumped.culprits)
        text = f"flight recorder: no dump from rank {missing}; the others end at {undumped.op} number {undumped.seq}"
        clues.append(Clue(text, undumped.source))
        verdict = verdict._replace(
            op=verdict.op or undumped.op, seq=verdict.seq or undumped.seq, group=verdict.group or _group(undumped)
        )
    return verdict._replace(clues=tuple(clues[:8]))


def _stop(
    kind: str, rows: Iterable[dict[str, Any]], data: Reports, confidence: float, clues: tuple[Clue, ...], detail: str
) -> Stop:
    rows = list(rows)
    culprits = tuple(sorted({row["rank"] for row in rows if row["rank"] is not None}))
    hosts = tuple(sorted({row["host"] for row in rows if row["host"]} | set(hosts_of(data, culprits))))
    victims = tuple(sorted({row["rank"] for row in data.logs.iter_rows(named=True)} - set(culprits)))
    return Stop(kind, culprits, victims, hosts, None, None, None, confidence, clues, detail)


def _failing(data: Reports) -> bool:
    return not data.events.is_empty() and data.events["code"].is_in([*NETWORK_ECHOES, *WATCHDOGS]).any()


def _finished(row: dict[str, Any]) -> bool:
    return (
        row["total_steps"] is not None and row["last_step"] is not None and row["last_step"] >= row["total_steps"] - 1
    )
