"""What a host's fault can cost: how much longer its ranks work than their peers, and how much transfer is exposed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from diagnose.analysis.node_metrics.load import Tables

MEASURABLE_RATIO = 0.02
"""Below 2 % of the step, run-to-run noise hides any cost."""


class Cost(NamedTuple):
    """Lost time as shares of the median step and in nanoseconds; an empty ``excess_ns`` means nothing is known."""

    step_ns: int | None
    excess_ns: dict[str, float]
    transfer_ns: float | None

    def of_host(self, host: str | None) -> float | None:
        """How much longer than its peers the slowest rank of a host works per step; None when unknown."""
        return self.excess_ns.get(host) if host is not None else None

    def is_measurable(self, lost_ns: float | None) -> bool | None:
        """Whether a loss would show in the step time; None when either is unknown."""
        if lost_ns is None or not self.step_ns:
            return None
        return lost_ns >= MEASURABLE_RATIO * self.step_ns


def host_cost(tables: Tables, step_ns: int | None) -> Cost:
    """Excess local work of each host's slowest rank over the median of ranks with the same role.

    Local work is compute, copies and idle that the rank caused itself: what waits for nobody.
    """
    rows = tables.query(
        "SELECT b.rank, r.host, r.role, median(b.local_work_ns) AS work, median(b.exposed_transfer_ns) AS transfer "
        "FROM breakdown b JOIN rank r USING (rank) JOIN step s ON s.rank = b.rank AND s.step = b.step "
        "WHERE s.label = 'normal' GROUP BY ALL ORDER BY b.rank"
    )
    if rows.is_empty():
        return Cost(step_ns, {}, None)
    compared = rows.with_columns(
        (pl.col("work") - pl.col("work").median().over("role")).alias("excess"),
        pl.len().over("role").alias("peers"),
    ).filter((pl.col("peers") > 1) & pl.col("excess").is_not_null() & pl.col("host").is_not_null())
    worst = compared.group_by("host").agg(pl.col("excess").max()).sort("host")
    transfer = rows.get_column("transfer").median()
    return Cost(step_ns, dict(worst.iter_rows()), float(transfer) if isinstance(transfer, int | float) else None)
