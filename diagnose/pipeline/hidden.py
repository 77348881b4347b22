"""Waiting inside kernels that are no communication by name, looked for in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.cross.hidden_waits import MIN_SHARE, MIN_SPREAD_NS, Kernels, hidden_waits, without_hidden

if TYPE_CHECKING:
    import polars as pl

    from diagnose.store.writer import StoreWriter

_MOST_KERNELS = 4_000_000
"""More kernels than this in the normal steps are judged by their totals only: reading them all costs gigabytes."""


KERNELS = "FROM kernel AS k JOIN step AS s USING (rank, step) WHERE s.label = 'normal' AND k.rank >= 0 AND k.class = 'compute'"


def are_many(writer: StoreWriter) -> bool:
    """Whether single kernels are too many to read."""
    return int(writer.query(f"SELECT count(*) {KERNELS}").item()) > _MOST_KERNELS


_LONG_SQL = f"""
WITH each AS (
  SELECT k.name, k.rank, count(*) AS times, count_if(k.dur_ns >= $spread_ns) AS long, sum(k.dur_ns)::DOUBLE AS total
  {KERNELS} GROUP BY k.name, k.rank
)
SELECT list(name) FILTER (WHERE ranks > 1 AND 2 * long >= times AND total >= $share * busy) AS names, any_value(busy) AS busy_ns
FROM (SELECT name, count(*) AS ranks, sum(long) AS long, min(times) AS times, sum(total) AS total, sum(sum(total)) OVER () AS busy FROM each GROUP BY name)
"""
"""Kernels that can wait as long as matters: in half of the instances, of which there are as many as the rank with the
fewest executions has, one rank at least takes that long.
"""


def _candidates(writer: StoreWriter) -> Kernels:
    """What may hold waiting without the name of a communication; nothing where kernels were not kept or are too many."""
    names, busy_ns = writer.query(_LONG_SQL, {"spread_ns": MIN_SPREAD_NS, "share": MIN_SHARE}).row(0)
    columns = f"SELECT k.rank, k.step, k.stream, k.name, k.start_ns, k.dur_ns {KERNELS}"
    if not names or are_many(writer):
        return Kernels(writer.query(f"{columns} AND false"), (), 0.0)
    ranks = writer.query(f"SELECT DISTINCT k.rank {KERNELS} ORDER BY k.rank").get_column("rank").to_list()
    frame = writer.query(f"{columns} AND list_contains($names, k.name) ORDER BY ALL", {"names": names})
    return Kernels(frame, ranks, busy_ns)


def find_hidden(writer: StoreWriter) -> pl.DataFrame:
    """Waiting inside kernels that are no communication by name; the breakdown without it."""
    candidates = _candidates(writer)
    shift = writer.query(
        "SELECT c.rank, median(m.start_ns - c.start_ns)::BIGINT FROM comm_call AS c JOIN collective_rank AS m USING (rank, call) "
        f"{'WHERE false ' if candidates.frame.is_empty() else ''}GROUP BY c.rank"
    )
    groups = writer.query("SELECT DISTINCT ranks FROM process_group WHERE len(ranks) > 1").get_column("ranks").to_list()
    hidden = hidden_waits(candidates, dict(shift.iter_rows()), groups)
    if not hidden.is_empty():
        writer.replace("breakdown", without_hidden(writer.query("SELECT * FROM breakdown ORDER BY rank, step"), hidden))
    return hidden
