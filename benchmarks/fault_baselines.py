"""What published rules name as the straggler, on the same tables.

most often last and least total wait: TraceLens's rules; latest start of collectives on unaligned clocks: HTA's;
relative score below 0.75: NVRx's. Rules that always name somebody do so here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables

NVRX_SCORE = 0.75


def baselines(tables: Tables) -> dict[str, list[int]]:
    """Ranks named by each rule."""
    waits = tables.query("SELECT * FROM who_waits ORDER BY rank")
    result: dict[str, list[int]] = {"most often last": [], "least total wait": [], "late start": [], "score 0.75": []}
    if len(waits):
        result["most often last"] = (
            waits.sort("last_ratio", "rank", descending=[True, False]).get_column("rank").head(1).to_list()
        )
        result["least total wait"] = waits.sort("wait_ns", "rank").get_column("rank").head(1).to_list()
    late = tables.query(
        "SELECT rank, avg(late) AS late FROM (SELECT r.rank, c.start_ns - min(c.start_ns) OVER (PARTITION BY r.instance) AS late "
        "FROM collective_rank AS r JOIN comm_call AS c USING (rank, call)) GROUP BY rank ORDER BY late DESC, rank"
    )
    result["late start"] = late.get_column("rank").head(1).to_list()
    result["score 0.75"] = _scores(tables)
    return result


def _scores(tables: Tables) -> list[int]:
    stats = tables.query(
        "SELECT rank, signature, sum(total_ns)::DOUBLE AS total, median(median_ns) AS mid FROM kernel_stat WHERE class = 'compute' AND rank >= 0 "
        "AND step IS NOT NULL GROUP BY rank, signature"
    )
    if stats.is_empty():
        return []
    best = stats.with_columns((pl.col("mid").min().over("signature") / pl.col("mid")).alias("score"))
    score = (
        best.group_by("rank")
        .agg(((pl.col("score") * pl.col("total")).sum() / pl.col("total").sum()).alias("score"))
        .sort("rank")
    )
    return score.filter(pl.col("score") < NVRX_SCORE).get_column("rank").to_list()
