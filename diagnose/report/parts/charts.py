"""Numbers behind the pictures: lateness by rank and step, bandwidth against size, who waits for whom."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from diagnose.analysis.cross.bandwidth import factor

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables

_POINTS = 300
_FIT_POINTS = 24
_LATE_SQL = """
SELECT r.rank, r.step, sum(i.longest - r.dur_ns)::BIGINT AS late_ns
FROM collective_rank AS r
JOIN (SELECT instance, max(dur_ns) AS longest FROM collective_rank GROUP BY instance) AS i USING (instance)
JOIN collective AS c USING (instance)
WHERE c.transfer_ns IS NOT NULL AND r.step IS NOT NULL
GROUP BY r.rank, r.step
ORDER BY r.rank, r.step
"""


def charts(tables: Tables) -> dict[str, Any] | None:
    """The document's ``charts``; None for a run of one rank."""
    late = tables.query(_LATE_SQL)
    waits = tables.query(
        "SELECT w.rank, r.host, w.wait_ns, w.caused_wait_ns, w.last_ratio FROM who_waits AS w JOIN rank AS r USING (rank) ORDER BY rank"
    )
    busbw = _busbw(tables)
    if late.is_empty() and waits.is_empty() and not busbw:
        return None
    return {"lateness": _matrix(late), "busbw": busbw, "who_waits": list(waits.iter_rows(named=True))}


def _matrix(late: pl.DataFrame) -> dict[str, Any] | None:
    if late.is_empty():
        return None
    steps = late.get_column("step").unique().sort().to_list()
    wide = late.pivot("step", index="rank", values="late_ns", sort_columns=False).sort("rank")
    wide = wide.select("rank", *(str(step) for step in steps))
    return {
        "ranks": wide.get_column("rank").to_list(),
        "steps": steps,
        "late_ns": [list(row) for row in wide.drop("rank").iter_rows()],
    }


def _busbw(tables: Tables) -> list[dict[str, Any]]:
    points = tables.query(
        "SELECT collective, members, msg_bytes, median(busbw_bytes_per_s) AS busbw FROM collective "
        "WHERE busbw_bytes_per_s IS NOT NULL AND msg_bytes > 0 GROUP BY collective, members, msg_bytes ORDER BY collective, members, msg_bytes"
    )
    tiers = tables.query(
        "SELECT * FROM network_tier ORDER BY exposed_transfer_ns DESC NULLS LAST, tier, collective, group_size"
    )
    found = []
    for row in tiers.iter_rows(named=True):
        mine = points.filter(
            (pl.col("collective") == row["collective"]) & (pl.col("members") == row["group_size"])
        ).head(_POINTS)
        if mine.is_empty():
            continue
        found.append(
            {
                "tier": row["tier"] or "unknown", "collective": row["collective"],
                "points": [[size, value] for size, value in mine.select("msg_bytes", "busbw").iter_rows()],
                "fit": _fit(row, mine), "reference_bytes_per_s": row["reference_bytes_per_s"],
            }
        )  # fmt: skip
    return found


def _fit(row: dict[str, Any], points: pl.DataFrame) -> list[list[float]] | None:
    """The cost model as a line over the sizes seen; None where sizes could not tell fixed cost from bandwidth."""
    if row["alpha_ns"] is None or not row["busbw_bytes_per_s"] or len(points) < 2:
        return None
    share = factor(row["collective"], row["group_size"])
    low, high = (float(value) for value in (points.get_column("msg_bytes").min(), points.get_column("msg_bytes").max()))  # type: ignore[arg-type]
    line = []
    for step in range(_FIT_POINTS):
        size = low * (high / low) ** (step / (_FIT_POINTS - 1))
        wire = share * size
        time_ns = row["alpha_ns"] + (row["root_ratio"] or 0.0) * math.sqrt(wire) + wire / row["busbw_bytes_per_s"] * 1e9
        line.append([size, wire / time_ns * 1e9])
    return line
