"""The network section: tiers with their cost model, oversubscription, suspects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables


def network(tables: Tables) -> dict[str, Any]:
    """The contract's ``network``."""
    tiers = tables.query(
        "SELECT tier, collective, group_size, alpha_ns, busbw_bytes_per_s, busbw_low, busbw_high, half_size_bytes, bound FROM network_tier "
        "ORDER BY exposed_transfer_ns DESC NULLS LAST, tier, collective, group_size"
    )
    suspects = tables.query(
        "SELECT kind, name, host, score, ambiguous FROM network_suspect ORDER BY score DESC, kind, name"
    )
    ratio = tables.query("SELECT name, value FROM job_stat WHERE name LIKE 'oversubscription%'")
    numbers = dict(ratio.iter_rows())
    over = None
    if "oversubscription_ratio" in numbers:
        over = {
            "ratio": numbers["oversubscription_ratio"],
            "ci": [numbers.get("oversubscription_low"), numbers.get("oversubscription_high")],
        }
    return {
        "tiers": [
            {
                "tier": row["tier"] or "unknown", "collective": row["collective"], "group_size": row["group_size"], "alpha_ns": row["alpha_ns"],
                "busbw_bytes_per_s": row["busbw_bytes_per_s"], "busbw_ci": [row["busbw_low"], row["busbw_high"]],
                "half_size_bytes": row["half_size_bytes"], "bound": row["bound"],
            }
            for row in tiers.iter_rows(named=True)
        ],
        "oversubscription": over,
        "suspects": [
            {
                "kind": row["kind"], "hosts": [row["host"]] if row["host"] else [], "devices": [row["name"]] if row["kind"] == "rank" else [],
                "score": round(row["score"], 3), "ambiguous": row["ambiguous"],
            }
            for row in suspects.iter_rows(named=True)
        ],
    }  # fmt: skip
