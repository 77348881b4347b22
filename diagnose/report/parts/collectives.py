"""Collectives by group, kind and size: how many, matched how, waiting against transfer, bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables

_LIMIT = 200
_SQL = """
SELECT c.collective, coalesce(g.description, g.name) AS process_group, g.size AS group_size, g.nodes, g.tier, c.dtype, c.msg_bytes,
       count(*) AS count, avg((c.seen = c.members)::INT) AS matched_ratio, min(c.match_method) AS match_method,
       median(c.transfer_ns)::BIGINT AS transfer_ns, median(c.wait_ns / c.members)::BIGINT AS wait_ns,
       median(c.algbw_bytes_per_s) AS algbw_bytes_per_s, median(c.busbw_bytes_per_s) AS busbw_bytes_per_s
FROM collective AS c LEFT JOIN process_group AS g USING (group_id)
GROUP BY c.group_id, c.collective, g.description, g.name, g.size, g.nodes, g.tier, c.dtype, c.msg_bytes
ORDER BY sum(coalesce(c.transfer_ns, 0) + coalesce(c.wait_ns, 0) / c.members) DESC, c.group_id, c.collective, c.msg_bytes
LIMIT $most
"""


def collective_rows(tables: Tables) -> list[dict[str, Any]]:
    """Rows of the report's ``collectives``, dearest first; ``wait_ns`` is the mean wait of a member."""
    return list(tables.query(_SQL, {"most": _LIMIT}).iter_rows(named=True))
