"""What a tier should reach: a bandwidth test of the same cluster, then the hardware the user stated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.cross.network import Reference

if TYPE_CHECKING:
    from diagnose.config import Config

_INTER = ("inter-node", "intra-leaf", "cross-leaf")
_NIC_SHARE = 0.8
"""Rings reach about 80 % of the nominal rate of their links."""


def tier_references(config: Config, tests: pl.DataFrame) -> dict[str, Reference]:
    """Reference by tier, best source first: nccl-tests output, stated bus bandwidth, stated NICs times 0.8."""
    found: dict[str, Reference] = {}
    hardware = config.hardware
    if hardware.nic_bytes_per_s is not None:
        rate = hardware.nic_bytes_per_s * (hardware.nics_per_node or 1) * _NIC_SHARE
        found |= {tier: Reference(rate, "80 % of the configured NIC rate") for tier in _INTER}
    if hardware.inter_node_busbw_bytes_per_s is not None:
        found |= {
            tier: Reference(hardware.inter_node_busbw_bytes_per_s, "configured inter-node bandwidth") for tier in _INTER
        }
    if hardware.intra_node_busbw_bytes_per_s is not None:
        found["intra-node"] = Reference(hardware.intra_node_busbw_bytes_per_s, "configured intra-node bandwidth")
    measured = tests.filter((pl.col("tool") == "nccl-tests") & pl.col("busbw_bytes_per_s").is_not_null())
    for tiers, rows in (
        (_INTER, measured.filter(pl.col("hosts") > 1)),
        (("intra-node",), measured.filter(pl.col("hosts") == 1)),
    ):
        if len(rows):
            best = float(rows.get_column("busbw_bytes_per_s").max() or 0.0)  # type: ignore[arg-type]
            found |= {tier: Reference(best, "nccl-tests output") for tier in tiers}
    return found
