"""Flight recorder dumps over ranks: who has not issued which collective, who issued another one, who came late.

Sequence numbers are compared inside one group only; groups are told apart by name and members. gloo counts send and
receive in its status, so the greatest collective number among the entries counts, not the status.
Source: torch/distributed/flight_recorder/components; PyTorch issues 117883 and 125173 (ambiguous names).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Queries

LATE_NS = 5_000_000_000
"""A rank that issues a collective this long after the first is late for a reason other than skew of a step."""

_RECORDS = """
SELECT comm_group, rank, max(description) AS description, max(last_seq) AS last_seq, min(completed) AS completed,
       min(pending_seq) AS pending_seq, arg_min(pending_op, pending_seq) AS pending_op,
       max(ranks) AS ranks, min(path) AS path, max(host) AS host
FROM flight_record WHERE rank IS NOT NULL GROUP BY comm_group, rank ORDER BY comm_group, rank
"""
_ENTRIES = """
SELECT rank, op, in_sizes, min(created_ns) AS created_ns, max(timeout_ns) AS timeout_ns, min(path) AS path
FROM flight_entry WHERE comm_group = $comm_group AND seq = $seq AND NOT is_p2p AND rank IS NOT NULL
GROUP BY rank, op, in_sizes ORDER BY rank
"""
_MISMATCH = """
SELECT comm_group, seq, list(DISTINCT op) AS ops, list(DISTINCT in_sizes) AS sizes
FROM flight_entry WHERE NOT is_p2p AND rank IS NOT NULL
  AND comm_group IN (SELECT comm_group FROM flight_record WHERE pending_seq IS NOT NULL)
GROUP BY comm_group, seq
HAVING count(DISTINCT op) > 1
  OR (count(DISTINCT in_sizes) > 1 AND bool_and(op IN ('all_reduce', 'broadcast', 'reduce')))
ORDER BY seq LIMIT 1
"""


class Stall(NamedTuple):
    """One group that stands still. ``culprits`` are the ranks the others wait for."""

    kind: str
    """behind (never issued it), late (issued it long after the others), mismatch or undumped."""
    group: str
    description: str | None
    op: str | None
    seq: int
    sizes: str | None
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    late_ns: int | None
    pending: bool
    source: str


def stalls(tables: Queries) -> list[Stall]:
    """The groups in which some rank is behind, late, in another operation, or has no dump while others have one."""
    found = []
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in tables.query(_RECORDS).iter_rows(named=True):
        groups.setdefault(row["comm_group"], []).append(row)
    for rows in groups.values():
        for part in _same_members(rows):
            stall = _group(tables, part)
            if stall is not None:
                found.append(stall)
    return sorted(
        [*found, *_mismatch(tables)], key=lambda stall: ("behind", "mismatch", "late", "undumped").index(stall.kind)
    )


def _same_members(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows whose dumps state disjoint members are different groups of one name."""
    parts: list[tuple[set[int], list[dict[str, Any]]]] = []
    for row in rows:
        members = set(row["ranks"] or ())
        for known, part in parts:
            if not members or not known or members & known:
                known |= members
                part.append(row)
                break
        else:
            parts.append((members, [row]))
    return [part for _, part in parts]


def _group(tables: Queries, rows: list[dict[str, Any]]) -> Stall | None:
    numbers = {row["rank"]: row["last_seq"] for row in rows if row["last_seq"] is not None}
    if not numbers:
        return None
    last = max(numbers.values())
    pending = any(row["pending_seq"] is not None for row in rows)
    behind = tuple(sorted(rank for rank, number in numbers.items() if number < last))
    if behind:
        first = min(numbers[rank] for rank in behind)
        culprits = tuple(rank for rank in behind if numbers[rank] == first)
        return _stall(tables, rows, "behind", first + 1, culprits, pending=pending)
    late = _late(tables, rows, last) if pending else None
    if late is not None:
        return late
    members = {rank for row in rows for rank in row["ranks"] or ()}
    undumped = tuple(sorted(members - numbers.keys()))
    if undumped and len(undumped) < len(members):
        return _stall(tables, rows, "undumped", last, undumped, pending=pending)
    return None


def _stall(
    tables: Queries, rows: list[dict[str, Any]], kind: str, seq: int, culprits: tuple[int, ...], *, pending: bool
) -> Stall:
    group = rows[0]["comm_group"]
    entries = tables.query(_ENTRIES, {"comm_group": group, "seq": seq})
    sample = entries.row(0, named=True) if entries.height else {}
    waiting = tuple(sorted(row["rank"] for row in rows if row["rank"] not in culprits))
    return Stall(
        kind=kind,
        group=group,
        description=rows[0]["description"],
        op=sample.get("op"),
        seq=seq,
        sizes=sample.get("in_sizes"),
        culprits=culprits,
        waiting=waiting,
        late_ns=None,
        pending=pending,
        source=str(sample.get("path") or rows[0]["path"]),
    )


def _late(tables: Queries, rows: list[dict[str, Any]], seq: int) -> Stall | None:
    entries = tables.query(_ENTRIES, {"comm_group": rows[0]["comm_group"], "seq": seq})
    times = {row["rank"]: row["created_ns"] for row in entries.iter_rows(named=True) if row["created_ns"]}
    if len(times) < 2:
        return None
    timeout = max((row["timeout_ns"] or 0 for row in entries.iter_rows(named=True)), default=0)
    first = min(times.values())
    limit = min(LATE_NS, timeout // 2) if timeout else LATE_NS
    late = tuple(sorted(rank for rank, time in times.items() if time - first >= limit))
    if not late or len(late) * 2 > len(times):
        return None
    stall = _stall(tables, rows, "late", seq, late, pending=True)
    return stall._replace(late_ns=max(times.values()) - first)


def _mismatch(tables: Queries) -> list[Stall]:
    found = tables.query(_MISMATCH)
    if found.is_empty():
        return []
    group, seq = found["comm_group"][0], found["seq"][0]
    entries = list(tables.query(_ENTRIES, {"comm_group": group, "seq": seq}).iter_rows(named=True))
    shapes: dict[tuple[str, str], list[int]] = {}
    for row in entries:
        shapes.setdefault((row["op"], row["in_sizes"]), []).append(row["rank"])
    ordered = sorted(shapes.items(), key=lambda item: (len(item[1]), item[0]))
    minority = ordered[0][1]
    rest = tuple(sorted(rank for _, ranks in ordered[1:] for rank in ranks))
    return [
        Stall(
            kind="mismatch",
            group=group,
            description=None,
            op=" / ".join(sorted({name for name, _ in shapes})),
            seq=seq,
            sizes=" / ".join(sorted({size for _, size in shapes})),
            culprits=tuple(sorted(minority)),
            waiting=rest,
            late_ns=None,
            pending=True,
            source=entries[0]["path"] if entries else "",
        )
    ]
