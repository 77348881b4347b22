"""Clocks of hosts that share no collective, from the messages between them: pipelines only send and receive.

A receive never ends before its send began. Over all messages from a to b a small difference of the two bounds how far
b's clock is ahead of a's from above, those from b to a bound it from below; the middle is the estimate, half of the
width what it may be off. Clocks that agree within these bounds are left alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from diagnose.analysis.cross.clocks import Clocks

_QUANTILE = 0.05
"""A low quantile instead of the minimum: an event may be stamped after its message has left, a pair be matched wrongly."""

_CONTRADICTION_NS = 5_000_000
"""Bounds that cross by more than late stamps explain come from wrong matches or a drift: nothing is certain."""

DELAY_SCHEMA = pl.Schema({"src": pl.Int32(), "dst": pl.Int32(), "delay_ns": pl.Int64()})


class _Tie(NamedTuple):
    """Two components and how far the clock of the second is ahead of the first's: at least, at most."""

    first: int
    second: int
    low: float
    high: float

    @property
    def ahead(self) -> float:
        """Nothing to correct where the clocks may agree; the nearest bound where only one side is known."""
        if self.low <= 0 <= self.high:
            return 0.0
        if math.isinf(self.low) or math.isinf(self.high):
            return self.high if math.isinf(self.low) else self.low
        return (self.low + self.high) / 2


def message_delays(members: pl.DataFrame) -> pl.DataFrame:
    """How soon after its send's start a receive ends, at best, by (sender, receiver), each on its own clock."""
    if members.is_empty():
        return pl.DataFrame(schema=DELAY_SCHEMA)
    kind = pl.col("collective").cast(pl.String)
    ours = ["instance", "rank", "start_ns", "dur_ns"]
    sends, receives = (members.filter(kind == name).select(ours) for name in ("send", "recv"))
    pairs = sends.join(receives, on="instance", suffix="_to", validate="1:1")
    delay = pl.col("start_ns_to") + pl.col("dur_ns_to") - pl.col("start_ns")
    return (
        pairs.group_by(pl.col("rank").alias("src"), pl.col("rank_to").alias("dst"))
        .agg(delay.quantile(_QUANTILE, "nearest").alias("delay_ns"))
        .cast(DELAY_SCHEMA)
        .sort("src", "dst")
    )


def tie_clocks(clocks: Clocks, delays: pl.DataFrame, hosts: Mapping[int, str]) -> Clocks:
    """Clocks with components that exchange messages put on one clock.

    Args:
        clocks: clocks from collectives; hosts that share none are components of their own.
        delays: rows of ``message_delays``, any number for a pair of ranks.
        hosts: name of the clock by rank.
    """
    component = dict(clocks.table.select("host", "component").iter_rows())
    ties = list(_ties(clocks, delays, hosts, component))
    if not ties:
        return clocks
    ahead, unsure, root = _joined(ties, sorted(set(component.values())))
    rows = []
    for row in clocks.table.iter_rows(named=True):
        mine = component[row["host"]]
        spread = unsure[mine]
        residual = row["residual_ns"] if spread is None else max(row["residual_ns"] or 0, spread)
        rows.append(
            row | {"offset_ns": row["offset_ns"] + round(ahead[mine]), "component": root[mine], "residual_ns": residual}
        )
    offset = {name: (place + ahead[component[name]], drift) for name, (place, drift) in clocks.offset.items()}
    return clocks._replace(table=pl.DataFrame(rows, schema=clocks.table.schema), offset=offset)


def _ties(
    clocks: Clocks, delays: pl.DataFrame, hosts: Mapping[int, str], component: Mapping[str, int]
) -> Iterator[_Tie]:
    """One for each two components with messages between them, the surest first."""
    least: dict[tuple[int, int], float] = {}
    for src, dst, delay in delays.iter_rows():
        ends = hosts.get(src), hosts.get(dst)
        if ends[0] is None or ends[1] is None or component[ends[0]] == component[ends[1]]:
            continue
        key = component[ends[0]], component[ends[1]]
        least[key] = min(least.get(key, math.inf), delay + clocks.offset[ends[0]][0] - clocks.offset[ends[1]][0])
    found = []
    for one, other in sorted({(min(key), max(key)) for key in least}):
        low, high = -least.get((other, one), math.inf), least.get((one, other), math.inf)
        if low - high <= _CONTRADICTION_NS:
            found.append(_Tie(one, other, min(low, high), max(low, high)))
    yield from sorted(found, key=lambda tie: tie.high - tie.low)


def _joined(ties: list[_Tie], components: list[int]) -> tuple[dict[int, float], dict[int, int | None], dict[int, int]]:
    """Offset, uncertainty and new number by component: a tree of the surest ties."""
    root = {place: place for place in components}
    ahead = dict.fromkeys(components, 0.0)
    unsure: dict[int, int | None] = dict.fromkeys(components)
    for tie in ties:
        kept, moved = root[tie.first], root[tie.second]
        if kept == moved:
            continue
        shift = ahead[tie.first] + tie.ahead - ahead[tie.second]
        if kept > moved:  # the lowest number is the reference
            kept, moved, shift = moved, kept, -shift
        half = None if math.isinf(tie.high - tie.low) else round((tie.high - tie.low) / 2)
        for place in components:
            if root[place] == moved:
                root[place] = kept
                ahead[place] += shift
        for place in (tie.first, tie.second):
            if half is not None:
                unsure[place] = half if unsure[place] is None else min(half, unsure[place] or half)
    return ahead, unsure, root
