"""Verdicts from timeouts: PyTorch's watchdog, gloo, the monitored barrier. Those who time out are victims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.records import where
from diagnose.analysis.comm_audit.reports import WATCHDOGS, Clue, Stop, hosts_of, numbers, peers

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.reports import Reports


def watchdog(data: Reports) -> Stop | None:
    """PyTorch's watchdog: the rank whose last enqueued work lies below the one that hangs, else the silent ranks."""
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
        return Stop("behind", behind, rest, hosts_of(data, behind), op, hang, group, 0.8, clues, text)
    if len({name for _, name in ops}) > 1 and len({number for number, _ in ops}) == 1:
        text = f"ranks are in different operations at number {stuck}: {', '.join(sorted(str(name) for _, name in ops))}"
        return Stop("mismatch", (), reporting, (), op, stuck, group, 0.8, clues, text)
    silent = tuple(rank for rank in range(data.world or max(reporting) + 1) if rank not in reporting)
    if silent and timeouts:
        known = "" if data.world else " (and any higher rank; the job's size is not stated)"
        text = f"rank {numbers(silent)}{known} reported nothing while the others wait in number {stuck}"
        return Stop("silent", silent, reporting, hosts_of(data, silent), op, stuck, group, 0.5, clues, text)
    text = f"all reporting ranks wait in {op or 'a collective'} number {stuck or hang}"
    return Stop("stuck", (), reporting, (), op, stuck or hang, group, 0.5, clues, text)


def timeouts(data: Reports) -> Stop | None:
    """Victims time out waiting; the rank they waited for does not."""
    echoes = [
        row
        for row in data.events.iter_rows(named=True)
        if row["code"] in {"gloo_timeout", "gloo_peer_closed", "monitored_barrier"}
    ]
    if not echoes:
        return None
    barrier = next((row for row in echoes if row["code"] == "monitored_barrier"), None)
    if barrier is not None:
        late = tuple(int(part) for part in str(barrier["peer"]).replace(",", " ").split() if part.isdecimal())
        clue = Clue(barrier["message"][:220], where(barrier["path"], barrier["line"]))
        return Stop(
            "behind",
            late,
            (),
            hosts_of(data, late),
            "barrier",
            None,
            None,
            0.9,
            (clue,),
            "did not reach the monitored barrier",
        )
    timed_out = {row["rank"] for row in echoes if row["code"] == "gloo_timeout"} | _ranks_of_paths(
        data, echoes, "gloo_timeout"
    )
    everyone = {row["rank"] for row in data.logs.iter_rows(named=True)} | {row["rank"] for row in echoes}
    suspects = tuple(sorted(rank for rank in everyone - timed_out if rank is not None)) if timed_out - {None} else ()
    clues = tuple(peers(data)) or tuple(
        Clue(row["message"][:220], where(row["path"], row["line"])) for row in echoes[:2]
    )
    victims = tuple(sorted(rank for rank in everyone - set(suspects) if rank is not None))
    absent = tuple(sorted(set(range(data.world or 0)) - set(victims) - set(suspects)))
    if not suspects and absent and len(absent) < len(victims):
        text = f"rank {numbers(absent)} left no log while the connections of all others broke"
        return Stop("silent", absent, victims, hosts_of(data, absent), None, None, None, 0.7, clues, text)
    text = (
        "did not take part in the operation that timed out on the others"
        if suspects
        else "connections broke; no log shows the first cause"
    )
    return Stop(
        "behind" if suspects else "stuck",
        suspects,
        victims,
        hosts_of(data, suspects),
        None,
        None,
        None,
        0.6,
        clues,
        text,
    )


def _ranks_of_paths(data: Reports, rows: list[dict[str, Any]], code: str) -> set[int | None]:
    by_path = {row["path"]: row["rank"] for row in data.logs.iter_rows(named=True)}
    return {by_path[row["path"]] for row in rows if row["code"] == code and row["path"] in by_path}
