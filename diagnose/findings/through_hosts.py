"""What groups through some hosts move against like groups without them, and what the difference costs a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from diagnose.findings.checks.network_causes import blocking_mean
from diagnose.findings.job import job_summary
from diagnose.model import Evidence
from diagnose.units import format_rate, format_ratio

if TYPE_CHECKING:
    from collections.abc import Collection

    from diagnose.findings.facts import Facts

MIN_EFFECT = 0.05
"""Like groups of a healthy fabric differ by less."""

_GROUPS = """
WITH spread AS (
    SELECT r.instance, count(DISTINCT k.host) AS hosts, bool_or(list_contains($hosts, k.host)) AS through,
           avg(r.exposed_transfer_ns) AS exposed_ns
    FROM collective_rank AS r JOIN rank AS k USING (rank) GROUP BY r.instance
), used AS (
    SELECT DISTINCT step FROM step WHERE label = 'normal'
), seen AS (
    SELECT c.collective, c.members, c.msg_bytes, c.group_id, c.transfer_ns, c.busbw_bytes_per_s, s.through,
           coalesce(s.exposed_ns, 0) AS exposed_ns
    FROM collective AS c JOIN spread AS s USING (instance) JOIN used USING (step) WHERE s.hosts > 1 AND c.transfer_ns > 0
), shapes AS (
    SELECT collective, members, msg_bytes, avg(transfer_ns) FILTER (NOT through) AS other_ns,
           median(busbw_bytes_per_s) FILTER (NOT through) AS other_busbw,
           coalesce(avg(transfer_ns) FILTER (NOT through), median(transfer_ns)) AS normal_ns
    FROM seen GROUP BY ALL
)
SELECT s.collective, s.members, s.msg_bytes, s.through, count(DISTINCT s.group_id) AS groups, any_value(h.other_busbw) AS other_busbw,
       avg(s.transfer_ns) / any_value(h.normal_ns) - 1 AS longer, median(s.busbw_bytes_per_s) AS busbw,
       sum(s.exposed_ns * s.members) AS exposed_ns,
       sum(least(s.exposed_ns, greatest(s.transfer_ns - h.normal_ns, 0)) * s.members) AS lost_ns
FROM seen AS s JOIN shapes AS h ON h.collective = s.collective AND h.members = s.members
     AND h.msg_bytes IS NOT DISTINCT FROM s.msg_bytes
GROUP BY ALL ORDER BY lost_ns DESC, exposed_ns DESC, s.collective, s.members, s.msg_bytes, s.through
"""
"""Without like groups the usual transfer of the same groups serves: it tells rare slow ones, not steady slowness. What a
transfer takes beyond the normal one is lost as far as nothing hides it."""


class Through(NamedTuple):
    """Groups that hold one of the hosts. ``others_busbw`` is None where every group holds one."""

    collective: str
    members: int
    groups: int
    busbw: float
    others_busbw: float | None
    longer_ratio: float
    """Mean transfer over that of like groups without the hosts, else over their own usual one, minus 1."""

    lost_ns: float | None
    """Per step; None where nothing compares or the blocking transfers are unknown."""

    @property
    def text(self) -> str:
        """For a sentence."""
        what = f"{self.collective} over {self.members} ranks moves {format_rate(self.busbw)} through it"
        if self.others_busbw is None:
            return f"{what}; no like group does without"
        return f"{what}, {format_rate(self.others_busbw)} in like groups without ({format_ratio(self.busbw / self.others_busbw)})"

    def evidence(self) -> list[Evidence]:
        """Measured bus bandwidth with and without the hosts."""
        kind = f"{self.collective} over {self.members} ranks"
        found = [
            Evidence(f"bus bandwidth of {self.groups} group(s) through it, {kind}", self.busbw, "bytes/s", "collective")
        ]
        if self.others_busbw is not None:
            found.append(
                Evidence(f"bus bandwidth of like groups without it, {kind}", self.others_busbw, "bytes/s", "collective")
            )
        if self.longer_ratio >= MIN_EFFECT:
            against = "like groups without it" if self.others_busbw is not None else "their usual transfer"
            text = f"mean transfer of groups through it over that of {against}, minus 1"
            found.append(Evidence(text, round(self.longer_ratio, 4), "ratio", "collective"))
        return found


def through_hosts(facts: Facts, hosts: Collection[str]) -> Through | None:
    """The dearest class of groups between nodes that hold one of the hosts; None without matched collectives."""
    if not hosts:
        return None
    rows = facts.tables.query(_GROUPS, {"hosts": sorted(hosts)})
    mine = rows.filter(pl.col("through") & pl.col("busbw").is_not_null())
    if mine.is_empty():
        return None
    slower = mine.filter(pl.col("longer") >= MIN_EFFECT)
    compared = slower.filter(pl.col("other_busbw").is_not_null())
    top = next(part for part in (compared, slower, mine) if not part.is_empty()).row(0, named=True)
    saved, total = float(slower["lost_ns"].sum()), float(rows["exposed_ns"].sum())
    return Through(
        top["collective"], top["members"], top["groups"], top["busbw"], top["other_busbw"], top["longer"],
        _price(facts, saved / total) if total and saved else None,
    )  # fmt: skip


def _price(facts: Facts, share: float) -> float | None:
    """That share of the transfers between nodes that hold the step up."""
    job = job_summary(facts)
    if job is None or job.blocking_ns is None:
        return None
    tiers = facts.tables.query("SELECT tier, sum(exposed_transfer_ns) AS ns FROM network_tier GROUP BY tier")
    total = float(tiers.get_column("ns").sum() or 0)
    between = float(
        tiers.filter(pl.col("tier").is_not_null() & (pl.col("tier") != "intra-node")).get_column("ns").sum() or 0
    )
    return blocking_mean(job) * share * between / total if total else None
