"""What a stop is judged from, and the form of the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from diagnose.analysis.comm_audit.records import where

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from diagnose.analysis.comm_audit.flight import Stall

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


def peers(data: Reports) -> list[Clue]:
    """The first report of a closed connection on each rank: who is named first is nearer to the cause."""
    closed = data.events.filter(data.events["code"].is_in(["gloo_peer_closed", "peer_closed"]))
    rows = [row for row in closed.iter_rows(named=True) if row["peer"]]
    rows.sort(key=lambda row: (row["t_ns"] is None, row["t_ns"] or 0))
    ranks = {row["path"]: row["rank"] for row in data.logs.iter_rows(named=True)}
    seen: set[str] = set()
    clues = []
    for row in rows:
        if row["path"] not in seen:
            seen.add(row["path"])
            name = who({**row, "rank": row["rank"] if row["rank"] is not None else ranks.get(row["path"])})
            clues.append(Clue(f"{name}: connection closed by {row['peer']}", where(row["path"], row["line"])))
    return clues[:4]


def hosts_of(data: Reports, ranks: Iterable[int]) -> tuple[str, ...]:
    """Hosts of ranks as their logs state them."""
    known = {row["rank"]: row["host"] for row in data.logs.iter_rows(named=True) if row["host"]}
    return tuple(sorted({known[rank] for rank in ranks if rank in known}))


def who(row: dict[str, Any]) -> str:
    """A process for a sentence."""
    if row["rank"] is not None:
        return f"rank {row['rank']}"
    return f"host {row['host']}" if row["host"] else "a process"


def numbers(ranks: Iterable[int]) -> str:
    """Ranks for a sentence."""
    return ", ".join(str(rank) for rank in ranks)
