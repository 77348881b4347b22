"""Names of processes: which global rank a process is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from diagnose.analysis.comm_audit.records import Records


class Ranks(NamedTuple):
    """Global rank of (path, host, pid); ``world`` is how many ranks the job has, None when unknown."""

    by_process: dict[tuple[str, str | None, int | None], int]
    world: int | None

    def of(self, rows: Iterable[Mapping[str, object]]) -> list[int]:
        """Ranks of rows with path, host, pid and, where the log states it, rank."""
        found = set()
        for row in rows:
            rank = row.get("rank")
            if rank is None:
                rank = self.by_process.get((str(row["path"]), _text(row["host"]), _number(row["pid"])))
            if isinstance(rank, int):
                found.add(rank)
        return sorted(found)


def ranks(records: Records) -> Ranks:
    """Ranks from launchers' tags, else from the communicator that spans all processes seen.

    A smaller communicator (tensor or pipeline group) numbers its own members: then nothing is claimed.
    """
    stated = {
        (str(row["path"]), row["host"], row["pid"]): int(row["rank"])
        for row in records.processes.iter_rows(named=True)
        if row["rank"] is not None
    }
    comms = records.comms
    sizes = [size for size in comms["nranks"].to_list() if size is not None]
    world = max(sizes, default=None)
    if world is None:
        return Ranks(stated, max(stated.values(), default=-1) + 1 or None)
    processes = records.processes.filter(records.processes["host"].is_not_null()).height
    largest: dict[tuple[str, str | None, int | None], set[int]] = {}
    ids = set()
    for row in comms.iter_rows(named=True):
        if row["nranks"] == world and row["comm_rank"] is not None:
            largest.setdefault((str(row["path"]), row["host"], row["pid"]), set()).add(int(row["comm_rank"]))
            ids.add(row["comm_id"])
    several = len([members for members in largest.values() if len(members) > 1]) > 0
    if processes > world or several or _crowded(largest, world):
        return Ranks(stated, None)
    return Ranks({**{key: min(members) for key, members in largest.items()}, **stated}, world)


def _crowded(largest: Mapping[tuple[str, str | None, int | None], set[int]], world: int) -> bool:
    """Whether one rank number occurs in more than one process: several communicators of that size exist."""
    seen: dict[int, int] = {}
    for members in largest.values():
        for member in members:
            seen[member] = seen.get(member, 0) + 1
    return any(count > 1 for count in seen.values()) or len(seen) > world


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
