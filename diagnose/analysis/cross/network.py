"""The network model: tiers, what bounds each class of collectives, and how it compares with what it should reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.bandwidth import factor
from diagnose.analysis.cross.cost_model import CostModel, fit_cost

if TYPE_CHECKING:
    from collections.abc import Mapping

_WAIT = 0.5
LATENCY = 0.5
_WIRE_SHARE = 0.8
_AT_REFERENCE = 0.85
TAIL = 0.15
_TAIL_ABOVE = 1.25
_TAIL_SAMPLES = 20
_FIXED_COST_NS = {"intra-node": 15_000.0}
_FIXED_COST_BETWEEN_NS = 30_000.0
"""Where one size only was seen, the least fixed cost known of any fabric: real sweeps have 41 to 63 us inside a node and
410 us over four."""

_SMALL_BYTES = 65_536
_TINY_BYTES = 1_024

TIER_SCHEMA = pl.Schema(
    {
    "tier": pl.String, "collective": pl.String, "group_size": pl.Int32, "groups": pl.Int32, "instances": pl.Int64, "alpha_ns": pl.Int64,
    "root_ratio": pl.Float64, "busbw_bytes_per_s": pl.Float64, "busbw_low": pl.Float64, "busbw_high": pl.Float64,
    "best_busbw_bytes_per_s": pl.Float64, "half_size_bytes": pl.Int64, "reference_bytes_per_s": pl.Float64, "reference_from": pl.String,
    "wait_ratio": pl.Float64, "latency_ratio": pl.Float64, "tail_ratio": pl.Float64, "exposed_transfer_ns": pl.Int64, "bound": pl.String,
    }
)  # fmt: skip


PLACE_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "place": pl.Int64,
    "ranks": pl.List(pl.Int32),
    "nodes": pl.Int32,
    "tier": pl.String,
}


class Reference(NamedTuple):
    """What an inter-node or intra-node class should reach, and who says so."""

    busbw_bytes_per_s: float
    source: str


def place_tiers(places: pl.DataFrame, hosts: Mapping[int, str | None], topology: Mapping[str, str]) -> pl.DataFrame:
    """Hosts and tier of each set of ranks that collectives run over; tier null where hosts are unknown.

    Args:
        places: rows (place, ranks), one a process group or pair.
        hosts: host by rank.
        topology: leaf by host.
    """
    leaf = {rank: topology.get(host) if host else None for rank, host in hosts.items()}
    rows = []
    for place, ranks in places.iter_rows():
        where = {hosts.get(rank) for rank in ranks}
        leaves = {leaf.get(rank) for rank in ranks}
        tier = None if None in where else "intra-node" if len(where) == 1 else "inter-node"
        if tier == "inter-node" and None not in leaves:
            tier = "intra-leaf" if len(leaves) == 1 else "cross-leaf"
        rows.append({"place": place, "ranks": ranks, "nodes": len(where), "tier": tier})
    return pl.DataFrame(rows, schema=PLACE_SCHEMA)


def network_tiers(instances: pl.DataFrame, references: Mapping[str, Reference], ranks: int) -> pl.DataFrame:
    """One row a (tier, collective, group size), dearest first.

    Args:
        instances: whole collectives with place, tier, group_id, collective, members, msg_bytes, step, transfer_ns, wire_ns, wait_ns (sum
            over members), exposed_transfer_ns (mean over members), busbw_bytes_per_s.
        references: by tier; the best decile seen here serves where there is none.
        ranks: ranks with traces; exposed transfer is given per step of the mean rank.
    """
    rows = []
    steps = max(instances.get_column("step").n_unique(), 1) if len(instances) else 1
    keys = ["tier", "collective", "members"]
    tiny = _tiny(instances)
    for (tier, collective, members), part in instances.sort(*keys).group_by(keys, maintain_order=True):
        model = _model(part, str(collective), int(members), tiny.get((tier, members)))
        best = part.get_column("busbw_bytes_per_s").drop_nulls()
        decile = float(best.quantile(0.9) or 0.0) if len(best) else None
        reference = references.get(str(tier)) if tier is not None else None
        row = {
            "tier": tier, "collective": collective, "group_size": members, "groups": part.get_column("group_id").n_unique(),
            "instances": len(part), "best_busbw_bytes_per_s": decile,
            "reference_bytes_per_s": reference.busbw_bytes_per_s if reference else decile,
            "reference_from": reference.source if reference else "best decile of this run" if decile else None,
            "wait_ratio": _wait_ratio(part), "latency_ratio": _latency_ratio(part, model, None if tier is None else str(tier)), "tail_ratio": _tail_ratio(part),
            "exposed_transfer_ns": round(float((part.get_column("exposed_transfer_ns") * part.get_column("members")).sum()) / steps / max(ranks, 1)),
        }  # fmt: skip
        if model is not None:
            row |= {
                "alpha_ns": None if model.alpha_ns is None else round(model.alpha_ns), "root_ratio": model.root,
                "busbw_bytes_per_s": model.busbw_bytes_per_s, "busbw_low": _finite(model.low), "busbw_high": _finite(model.high),
                "half_size_bytes": None if model.half_size_bytes is None else round(model.half_size_bytes),
            }  # fmt: skip
        row["bound"] = bound(row, part, own=reference is None)
        rows.append(row)
    frame = pl.DataFrame(rows, schema=TIER_SCHEMA)
    return frame.sort("exposed_transfer_ns", "tier", "collective", descending=[True, False, False], nulls_last=True)


def bound(row: Mapping[str, object], part: pl.DataFrame, *, own: bool) -> str:
    """What limits a class: waiting first, then fixed cost, then the tail, then bandwidth against the reference."""
    wait, latency, tail = (float(row[name] or 0.0) for name in ("wait_ratio", "latency_ratio", "tail_ratio"))  # type: ignore[arg-type]
    if wait > _WAIT:
        return "wait"
    if latency > LATENCY:
        return "latency"
    if tail > TAIL and len(part) >= _TAIL_SAMPLES:
        return "tail"
    bandwidth, reference = row.get("busbw_bytes_per_s"), row.get("reference_bytes_per_s")
    if not isinstance(bandwidth, float) or not isinstance(reference, float) or reference <= 0:
        return "unknown"
    if own:
        return "bandwidth"  # its own best decile is no proof of wire speed
    return "wire" if bandwidth >= _AT_REFERENCE * reference else "bandwidth"


def _tiny(instances: pl.DataFrame) -> dict[tuple[str | None, int], float]:
    """Median transfer of messages of a few words by tier and members: what any collective of these ranks costs at least."""
    rows = instances.filter((pl.col("msg_bytes") <= _TINY_BYTES) & (pl.col("transfer_ns") > 0))
    table = rows.group_by("tier", "members").agg(pl.col("transfer_ns").median())
    return {(tier, members): float(value) for tier, members, value in table.iter_rows()}


def _model(part: pl.DataFrame, collective: str, members: int, fixed_ns: float | None) -> CostModel | None:
    known = part.filter(pl.col("msg_bytes").is_not_null() & pl.col("transfer_ns").is_not_null())
    if known.is_empty():
        return None
    return fit_cost(
        known.get_column("msg_bytes").to_numpy().astype(np.float64), known.get_column("wire_ns").to_numpy().astype(np.float64),
        known.get_column("step").fill_null(-1).to_numpy(), factor(collective, members), fixed_ns=fixed_ns,
    )  # fmt: skip


def _wait_ratio(part: pl.DataFrame) -> float:
    wait = float(part.get_column("wait_ns").sum())
    total = wait + float((part.get_column("transfer_ns") * part.get_column("members")).sum())
    return wait / total if total else 0.0


def _latency_ratio(part: pl.DataFrame, model: CostModel | None, tier: str | None) -> float | None:
    """Share of the transfer time that more bandwidth would not shorten."""
    total = float(part.get_column("transfer_ns").sum())
    if model is None or not total:
        return None
    if model.alpha_ns is not None:
        return min(model.alpha_ns * len(part) / total, 1.0)
    least = _FIXED_COST_NS.get(tier or "", _FIXED_COST_BETWEEN_NS) * len(part) / total
    small = float(part.filter(pl.col("msg_bytes") <= _SMALL_BYTES).get_column("transfer_ns").sum()) / total
    return min(max(least, small if small > _WIRE_SHARE else 0.0), 1.0)


def _tail_ratio(part: pl.DataFrame) -> float | None:
    """Share of the transfer time above the usual of the same set of members and size."""
    usual = pl.col("transfer_ns").median().over("place", "msg_bytes")
    judged = part.filter(pl.len().over("place", "msg_bytes") >= 5)
    total = float(judged.get_column("transfer_ns").sum())
    above = judged.select((pl.col("transfer_ns") - _TAIL_ABOVE * usual).clip(lower_bound=0).sum()).item()
    return float(above) / total if total else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
