"""COLL lines over ranks: where the members of one communicator stop doing the same, and what the tuner chose.

opCount counts operations of one communicator; the calls of a group share it, so their order inside it counts too.
Send and receive differ between ranks by nature and are left out. Counts are those of one rank, equal on all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Queries

LARGE_BYTES = 4_000_000
"""From here on every machine is limited by bandwidth and not by latency."""

_CALLS = """
WITH call AS (
  SELECT m.comm_id, m.comm_rank, c.op_count, c.collective, c.elements, c.dtype, c.root, c.path, c.line,
         row_number() OVER (PARTITION BY m.comm_id, m.comm_rank, c.op_count ORDER BY c.path, c.line) AS place
  FROM comm_coll c JOIN communicator m
    ON m.path = c.path AND m.host IS NOT DISTINCT FROM c.host AND m.pid IS NOT DISTINCT FROM c.pid AND m.comm = c.comm
  WHERE m.comm_id IS NOT NULL AND m.comm_rank IS NOT NULL AND c.collective NOT IN ('Send', 'Recv')
), odd AS (
  SELECT comm_id, op_count, place FROM call GROUP BY comm_id, op_count, place
  HAVING count(DISTINCT (collective, elements, dtype)) > 1 ORDER BY comm_id, op_count, place LIMIT 1
)
SELECT call.* FROM call JOIN odd USING (comm_id, op_count, place) ORDER BY comm_rank
"""


class Difference(NamedTuple):
    """The first position at which calls differ: ranks by call."""

    comm_id: str
    op_count: int
    calls: dict[str, list[int]]
    rows: list[dict[str, Any]]


def first_difference(tables: Queries) -> Difference | None:
    """Where ranks of one communicator logged different calls, None where they agree or nothing is logged."""
    rows = list(tables.query(_CALLS).iter_rows(named=True))
    if not rows:
        return None
    calls: dict[str, list[int]] = {}
    for row in rows:
        calls.setdefault(f"{row['collective']} of {row['elements']} {row['dtype']}", []).append(row["comm_rank"])
    return Difference(rows[0]["comm_id"], rows[0]["op_count"], calls, rows)


def low_latency_choices(tables: Queries) -> list[dict[str, Any]]:
    """Tuner choices of the protocol LL for large messages."""
    rows = tables.query(
        "SELECT path, line, host, name, value, size_bytes FROM comm_topology"
        " WHERE kind = 'tuner' AND size_bytes >= $size"
        " AND regexp_matches(value, '^\\w+ (LL|0)( |$)') ORDER BY path, line LIMIT 1000",
        {"size": LARGE_BYTES},
    )
    return list(rows.iter_rows(named=True))
