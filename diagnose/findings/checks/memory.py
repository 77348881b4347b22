"""Devices whose memory is slow while their step is not: nobody waits for them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.findings.accelerator import accelerator
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding

_PEERS = 3
_SPREADS, _LEAST_SPREAD = 6.0, 0.02
_MATRIX_CALM = 0.4
_SAME_WORK = 0.05
"""Kernels of one name and grid may work on other sizes where the amount of work differs."""


def check(facts: Facts) -> Iterator[Finding]:
    """Ranks that are ordinary by their work and not by the kernels that wait for memory; for information."""
    if accelerator(facts.tables) == "cpu":
        return
    rows = facts.tables.query(
        "SELECT w.rank, w.role, w.verdict, w.memory_ratio, w.matrix_ratio, w.volume_ratio, w.unshared_ratio, r.host, r.local_rank "
        "FROM rank_work AS w JOIN rank AS r USING (rank) WHERE w.peers >= $peers AND w.memory_ratio IS NOT NULL ORDER BY rank",
        {"peers": _PEERS},
    )
    if rows.is_empty():
        return
    rule = facts.rules["RANK-MEMORY"]
    above = pl.col("memory_ratio") - pl.col("memory_ratio").median().over("role")
    rows = rows.with_columns(above.alias("above"))
    spread = (1.4826 * pl.col("above").abs().median().over("role")).clip(lower_bound=_LEAST_SPREAD)
    slow = rows.filter(
        (pl.col("verdict") == "ordinary") & (pl.col("above") >= rule.limit("memory", "info")) & (pl.col("above") >= _SPREADS * spread)
        & (pl.col("matrix_ratio") < _MATRIX_CALM * pl.col("above"))
        & (pl.max_horizontal(pl.col("volume_ratio").abs(), "unshared_ratio").fill_null(0) <= _SAME_WORK)
    )  # fmt: skip
    for row in slow.iter_rows(named=True):
        where = "" if row["host"] is None else f" on {row['host']}"
        devices = [] if row["host"] is None or row["local_rank"] is None else [f"{row['host']}:{row['local_rank']}"]
        fields = {
            "who": f"Rank {row['rank']}{where}",
            "memory": row["above"],
            "matrix": row["matrix_ratio"] or 0.0,
            "when": "",
        }
        yield rule.finding(
            "info", fields=fields, ranks=[row["rank"]], hosts=[] if row["host"] is None else [row["host"]], devices=devices,
            persistence="persistent", confidence=0.85, title=f"{rule.title}: rank {row['rank']}{where}",
            evidence=[Evidence("its local work is as long as that of its peers: it costs no step time yet", None, None, "rank_work")],
        )  # fmt: skip
