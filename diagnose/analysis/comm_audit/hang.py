"""Why a job stopped: which rank died, fell behind or never came, told from the ranks that only waited for it.

Precedence: a rank that was killed or raised an error of its own; a log that just stops while others report broken
connections; a rank behind in the collectives of a group (flight recorder, then watchdog); a rank that alone reports
nothing. Every other rank is a victim, however loud its log is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.comm_audit.flight import Stall, stalls
from diagnose.analysis.comm_audit.records import where

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from diagnose.analysis.comm_audit.records import Queries

KILLED = {9: "SIGKILL", 11: "SIGSEGV", 6: "SIGABRT", 7: "SIGBUS", 4: "SIGILL", 8: "SIGFPE"}
_SHELL_SIGNALS = 128
_TERM = 15

NETWORK_ECHOES = ("gloo_peer_closed", "gloo_timeout", "network_exception", "peer_closed", "torch_abort")
WATCHDOGS = ("watchdog_timeout", "watchdog_status")


class Clue(NamedTuple):
    """One sentence of evidence with its source."""

    text: str
    source: str


class Stop(NamedTuple):
    """The verdict on one stop. ``kind``: died, crashed_at_start, exception, behind, late, mismatch, silent or stuck."""

    kind: str
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    hosts: tuple[str, ...]
    op: str | None
    seq: int | None
    group: str | None
    confidence: float
    clues: tuple[Clue, ...]
    detail: str


class Reports(NamedTuple):
    """What a stop is judged from."""

    events: pl.DataFrame
    logs: pl.DataFrame
    stalls: list[Stall]
    world: int | None


def reports(tables: Queries, events: pl.DataFrame, world: int | None) -> Reports:
    """The reports of a run."""
    logs = tables.query("SELECT * FROM rank_log ORDER BY rank, path")
    sizes = [size for size in logs["world_size"].to_list() if size is not None]
    return Reports(events, logs, stalls(tables), world or max(sizes, default=None))


def stop(data: Reports) -> Stop | None:
    """The one verdict on the end of the job, None when nothing stopped."""
    stalled = next((item for item in data.stalls if item.kind != "undumped"), None)
    verdict = (
        _exits(data) or _broken_logs(data) or _from_stall(data, stalled) or _watchdog(data) or _timeouts(data) or _at_start(data)
    )
    if verdict is None:
        return None
    return _with_context(data, verdict, stalled)


def signal_name(status: int | None, detail: str | None) -> str | None:
    """The signal that an exit status or a launcher's word means; None for an ordinary exit or the launcher's own SIGTERM."""
    if detail in {"Killed", "SIGKILL"}:
        return "SIGKILL"
    if detail in {"Segmentation fault", "SIGSEGV"}:
        return "SIGSEGV"
    if status is None:
        return detail if detail in set(KILLED.values()) else None
    number = -status if status < 0 else status - _SHELL_SIGNALS if status > _SHELL_SIGNALS else status if status in KILLED else 0
    return None if number == _TERM else KILLED.get(number)


def _exits(data: Reports) -> Stop | None:
    """Ranks with an exit of their own: killed first, then an error that no other rank caused."""
    killed, raised = [], []
    for row in data.events.iter_rows(named=True):
        if row["code"] in {"process_exit", "segfault"}:
            name = signal_name(row["status"], row["detail"])
            if name is not None:
                killed.append((row, name))
        elif row["code"] == "oom_killed":
            killed.append((row, "the kernel's out-of-memory killer"))
    for row in data.logs.iter_rows(named=True):
        if row["ended"] == "exception":
            raised.append(row)
    if killed:
        rows = [row for row, _ in killed]
        clues = tuple(Clue(f"{_who(row)} ended by {name}", where(row["path"], row["line"])) for row, name in killed[:4])
        return _stop("died", rows, data, 0.95, clues, killed[0][1])
    if not raised:
        return None
    first = min(raised, key=lambda row: (row["last_t_ns"] is None, row["last_t_ns"] or 0))
    if len(raised) == data.logs.height and data.logs.height > 1:
        culprit = [first]
    else:
        culprit = raised
    text = _exception_text(data, first)
    clues = (Clue(f"rank {first['rank']}: {text}", where(first["path"], first["last_line"])),)
    return _stop("exception", culprit, data, 0.9 if len(culprit) == 1 else 0.7, clues, text)


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
    clues += _peers(data)
    detail = "its log stops without a message while the others report broken connections"
    confidence = 0.9 if len(silent) < len(victims) or steps else 0.7
    return _stop("died", silent, data, confidence, tuple(clues), detail)


def _from_stall(data: Reports, stall: Stall | None) -> Stop | None:
    if stall is None:
        return None
    texts = {
        "behind": f"has not issued {stall.op or 'collective'} number {stall.seq} of group {_group(stall)}",
        "late": f"issued {stall.op or 'collective'} number {stall.seq} of group {_group(stall)} {(stall.late_ns or 0) / 1e9:.1f} s after the first",
        "mismatch": f"is in another operation or size at number {stall.seq} of group {_group(stall)}: {stall.op} {stall.sizes}",
    }
    failing = stall.pending or _failing(data)
    confidence = {"behind": 0.95, "mismatch": 0.85, "late": 0.8}[stall.kind] if failing else 0.5
    clue = Clue(f"flight recorder: rank {_list(stall.culprits)} {texts[stall.kind]}", stall.source)
    return Stop(
        stall.kind, stall.culprits, stall.waiting, _hosts(data, stall.culprits), stall.op, stall.seq, _group(stall),
        confidence, (clue,), texts[stall.kind],
    )  # fmt: skip


def _group(stall: Stall) -> str:
    return stall.description if stall.description not in {None, "", "undefined"} else stall.group  # type: ignore[return-value]


def _watchdog(data: Reports) -> Stop | None:
    """PyTorch's watchdog: the rank whose last enqueued work is below the one that hangs, else the ranks that say nothing."""
    rows = [row for row in data.events.iter_rows(named=True) if row["code"] in WATCHDOGS and row["rank"] is not None]
    timeouts = [row for row in rows if row["code"] == "watchdog_timeout"]
    if not rows:
        return None
    stuck = min((row["seq"] for row in timeouts if row["seq"] is not None), default=None)
    enqueued: dict[int, int] = {}
    for row in rows:
        if row["enqueued"] is not None:
            enqueued[row["rank"]] = max(enqueued.get(row["rank"], -1), row["enqueued"])
    reporting = tuple(sorted({row["rank"] for row in rows}))
    op = next((row["op"] for row in timeouts if row["op"]), None)
    group = next((row["comm_group"] for row in rows if row["comm_group"]), None)
    clues = tuple(Clue(row["message"][:220], where(row["path"], row["line"])) for row in (timeouts or rows)[:2])
    hang = stuck if stuck is not None else max(enqueued.values(), default=None)
    behind = tuple(sorted(rank for rank, number in enqueued.items() if hang is not None and number < hang))
    ops = {(row["seq"], row["op"]) for row in timeouts}
    if behind:
        rest = tuple(rank for rank in reporting if rank not in behind)
        text = f"had enqueued only {min(enqueued[rank] for rank in behind)} while the others wait in number {hang}"
        return Stop("behind", behind, rest, _hosts(data, behind), op, hang, group, 0.8, clues, text)
    if len({name for _, name in ops}) > 1 and len({number for number, _ in ops}) == 1:
        text = f"ranks are in different operations at number {stuck}: {', '.join(sorted(str(name) for _, name in ops))}"
        return Stop("mismatch", (), reporting, (), op, stuck, group, 0.8, clues, text)
    silent = tuple(rank for rank in range(data.world or max(reporting) + 1) if rank not in reporting)
    if silent and timeouts:
        known = "" if data.world else " (and any higher rank; the job's size is not stated)"
        text = f"rank {_list(silent)}{known} reported nothing while the others wait in number {stuck}"
        return Stop("silent", silent, reporting, _hosts(data, silent), op, stuck, group, 0.5, clues, text)
    text = f"all reporting ranks wait in {op or 'a collective'} number {stuck or hang}"
    return Stop("stuck", (), reporting, (), op, stuck or hang, group, 0.5, clues, text)


def _timeouts(data: Reports) -> Stop | None:
    """Victims time out waiting; the rank they waited for does not."""
    echoes = [row for row in data.events.iter_rows(named=True) if row["code"] in {"gloo_timeout", "gloo_peer_closed", "monitored_barrier"}]
    if not echoes:
        return None
    barrier = next((row for row in echoes if row["code"] == "monitored_barrier"), None)
    if barrier is not None:
        late = tuple(int(part) for part in str(barrier["peer"]).replace(",", " ").split() if part.isdigit())
        clue = Clue(barrier["message"][:220], where(barrier["path"], barrier["line"]))
        return Stop("behind", late, (), _hosts(data, late), "barrier", None, None, 0.9, (clue,), "did not reach the monitored barrier")
    timed_out = {row["rank"] for row in echoes if row["code"] == "gloo_timeout"} | _ranks_of_paths(data, echoes, "gloo_timeout")
    everyone = {row["rank"] for row in data.logs.iter_rows(named=True)} | {row["rank"] for row in echoes}
    suspects = tuple(sorted(rank for rank in everyone - timed_out if rank is not None)) if timed_out - {None} else ()
    clues = tuple(_peers(data)) or tuple(Clue(row["message"][:220], where(row["path"], row["line"])) for row in echoes[:2])
    victims = tuple(sorted(rank for rank in everyone - set(suspects) if rank is not None))
    absent = tuple(sorted(set(range(data.world or 0)) - set(victims) - set(suspects)))
    if not suspects and absent and len(absent) < len(victims):
        text = f"rank {_list(absent)} left no log while the connections of all others broke"
        return Stop("silent", absent, victims, _hosts(data, absent), None, None, None, 0.7, clues, text)
    text = "did not take part in the operation that timed out on the others" if suspects else "connections broke; no log shows the first cause"
    return Stop("behind" if suspects else "stuck", suspects, victims, _hosts(data, suspects), None, None, None, 0.6, clues, text)


def _at_start(data: Reports) -> Stop | None:
    """All logs stop between the reducer and the end of DDP's constructor: a crash that printed nothing."""
    logs = list(data.logs.iter_rows(named=True))
    if not logs or any(row["ended"] != "open" or row["stage"] != "reducer" for row in logs):
        return None
    clues = tuple(
        Clue(f"rank {row['rank']}'s log ends in DDP's constructor, without a message: {row['text'][:120]}", where(row["path"], row["last_line"]))
        for row in logs[:3]
    )
    ranks = tuple(sorted({row["rank"] for row in logs}))
    text = "the logs end while DistributedDataParallel is being constructed, before any step: the process crashed (a segmentation fault prints nothing)"
    return Stop("crashed_at_start", ranks, (), _hosts(data, ranks), None, None, None, 0.75, clues, text)


def _with_context(data: Reports, verdict: Stop, stall: Stall | None) -> Stop:
    """Add what other sources say of the same ranks."""
    clues = list(verdict.clues)
    if stall is not None and verdict.seq is None and (not verdict.culprits or set(stall.culprits) & set(verdict.culprits)):
        verdict = verdict._replace(op=stall.op, seq=stall.seq, group=_group(stall))
        clues.append(Clue(f"flight recorder: rank {_list(stall.culprits)} behind at {stall.op} number {stall.seq}", stall.source))
    undumped = next((item for item in data.stalls if item.kind == "undumped"), None)
    if undumped is not None and set(undumped.culprits) & set(verdict.culprits):
        text = f"flight recorder: no dump from rank {_list(undumped.culprits)}; the others end at {undumped.op} number {undumped.seq}"
        clues.append(Clue(text, undumped.source))
        verdict = verdict._replace(op=verdict.op or undumped.op, seq=verdict.seq or undumped.seq, group=verdict.group or _group(undumped))
    return verdict._replace(clues=tuple(clues[:8]))


def _peers(data: Reports) -> list[Clue]:
    """The first report of a closed connection on each rank: who is named first is nearer to the cause."""
    rows = [row for row in data.events.iter_rows(named=True) if row["code"] in {"gloo_peer_closed", "peer_closed"} and row["peer"]]
    rows.sort(key=lambda row: (row["t_ns"] is None, row["t_ns"] or 0))
    seen: set[str] = set()
    clues = []
    for row in rows:
        if row["path"] not in seen:
            seen.add(row["path"])
            clues.append(Clue(f"{_who(row)}: connection closed by {row['peer']}", where(row["path"], row["line"])))
    return clues[:4]


def _stop(kind: str, rows: Iterable[dict[str, Any]], data: Reports, confidence: float, clues: tuple[Clue, ...], detail: str) -> Stop:
    rows = list(rows)
    culprits = tuple(sorted({row["rank"] for row in rows if row["rank"] is not None}))
    hosts = tuple(sorted({row["host"] for row in rows if row["host"]} | set(_hosts(data, culprits))))
    victims = tuple(sorted({row["rank"] for row in data.logs.iter_rows(named=True)} - set(culprits)))
    return Stop(kind, culprits, victims, hosts, None, None, None, confidence, clues, detail)


def _hosts(data: Reports, ranks: Iterable[int]) -> tuple[str, ...]:
    known = {row["rank"]: row["host"] for row in data.logs.iter_rows(named=True) if row["host"]}
    return tuple(sorted({known[rank] for rank in ranks if rank in known}))


def _ranks_of_paths(data: Reports, rows: list[dict[str, Any]], code: str) -> set[int | None]:
    by_path = {row["path"]: row["rank"] for row in data.logs.iter_rows(named=True)}
    return {by_path[row["path"]] for row in rows if row["code"] == code and row["path"] in by_path}


def _failing(data: Reports) -> bool:
    return not data.events.is_empty() and data.events["code"].is_in([*NETWORK_ECHOES, *WATCHDOGS]).any()


def _finished(row: dict[str, Any]) -> bool:
    return row["total_steps"] is not None and row["last_step"] is not None and row["last_step"] >= row["total_steps"] - 1


def _who(row: dict[str, Any]) -> str:
    if row["rank"] is not None:
        return f"rank {row['rank']}"
    return f"host {row['host']}" if row["host"] else "a process"


def _list(ranks: Iterable[int]) -> str:
    return ", ".join(str(rank) for rank in ranks)
