"""The Network page's data: hosts placed on a circle, edges between them, tiers and suspects as rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import data
import polars as pl

from diagnose.report.view import ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from catalog import Run

    from diagnose.report.document import Document

BESIDE = 0.05
"""Distance of the lines of one pair of hosts, where the circle's radius is 1."""
MOST_DRAWN = 16
"""Hosts that a picture can show; more become a matrix."""
_EDGES = {
    "source_host": pl.String,
    "target_host": pl.String,
    "transport": pl.String,
    "gdr": pl.String,
    "connections": pl.Int64,
    "nics": pl.String,
}


def edges(run: Run) -> pl.DataFrame:
    """Connections between different hosts, GDR in words."""
    found = data.rows(run, "channel_edges").filter(pl.col("source_host") != pl.col("target_host"))
    gdr = (
        pl.when(pl.col("gdr"))
        .then(pl.lit("GPUDirect RDMA"))
        .when(pl.col("gdr").not_())
        .then(pl.lit("no GPUDirect RDMA"))
        .otherwise(pl.lit("not stated"))
    )
    named = found.with_columns(gdr.alias("gdr"), pl.col("nics").fill_null("not stated"))
    return (
        named.group_by("source_host", "target_host", "transport", "gdr")
        .agg(pl.col("connections").sum(), pl.col("nics").first())
        .sort("source_host", "target_host", "transport")
        .cast(_EDGES)
    )  # type: ignore[arg-type]


def placed_hosts(run: Run, between: pl.DataFrame) -> pl.DataFrame:
    """Hosts on a circle with their ranks, NICs and the transports inside."""
    known = {row["host"]: row for row in data.rows(run, "host_ranks").iter_rows(named=True)}
    inside = _inside(run)
    nics = _nics(run)
    names = sorted({*known, *between.get_column("source_host"), *between.get_column("target_host"), *inside})
    rows = []
    for place, name in enumerate(names):
        angle = 2 * math.pi * place / max(1, len(names)) + (math.pi if len(names) == 2 else math.pi / 2)
        radius = 0.0 if len(names) == 1 else 1.0
        ranks = [rank for rank in (known.get(name) or {}).get("ranks") or [] if rank is not None]
        rows.append({
            "host": name, "x": radius * math.cos(angle), "y": radius * math.sin(angle), "ranks": f"ranks {ranges(ranks)}" if ranks else "ranks not known",
            "nics": ", ".join(nics.get(name, ())) or "NICs not known",
                "nics_short": _few(nics.get(name, ())), "inside": inside.get(name, ""),
        })  # fmt: skip
    frame = pl.DataFrame(
        rows,
        schema={
            "host": pl.String,
            "x": pl.Float64,
            "y": pl.Float64,
            "ranks": pl.String,
            "nics": pl.String,
            "nics_short": pl.String,
            "inside": pl.String,
        },
    )
    lines = pl.concat_str("host", "ranks", "nics_short", "inside", separator="\n").str.strip_chars_end("\n")
    upper = (pl.col("y") > -0.01) & (pl.col("inside") == "")  # words above a box end at the box
    return frame.with_columns((pl.when(upper).then(pl.lit("\n")).otherwise(pl.lit("")) + lines).alias("words"))


def knows_inside(hosts: pl.DataFrame) -> bool:
    """Whether a picture of hosts without connections between them would still tell something."""
    return bool((hosts.get_column("inside") != "").any())


def placed_edges(between: pl.DataFrame, hosts: pl.DataFrame) -> pl.DataFrame:
    """Edges with the places of their ends, both directions as one line; several transports of a pair lie side by side."""
    low, high = pl.min_horizontal("source_host", "target_host"), pl.max_horizontal("source_host", "target_host")
    gdr = pl.when(pl.col("gdr").n_unique() == 1).then(pl.col("gdr").first()).otherwise(pl.lit("partly GPUDirect RDMA"))
    joined = between.with_columns(low.alias("source_host"), high.alias("target_host")).group_by("source_host", "target_host", "transport").agg(
        gdr.alias("gdr"), pl.col("connections").sum(), pl.col("nics").unique().sort().str.join(", ")
    ).sort("source_host", "target_host", "transport")  # fmt: skip
    start = hosts.select(pl.col("host").alias("source_host"), "x", "y")
    end = hosts.select(pl.col("host").alias("target_host"), pl.col("x").alias("x2"), pl.col("y").alias("y2"))
    aside = (pl.int_range(pl.len()) - (pl.len() - 1) / 2).over("source_host", "target_host") * BESIDE
    length = ((pl.col("x2") - pl.col("x")) ** 2 + (pl.col("y2") - pl.col("y")) ** 2).sqrt()
    shift_x, shift_y = aside * (pl.col("y") - pl.col("y2")) / length, aside * (pl.col("x2") - pl.col("x")) / length
    return joined.join(start, on="source_host", maintain_order="left").join(end, on="target_host", maintain_order="left").with_columns(
        pl.col("x") + shift_x, pl.col("x2") + shift_x, pl.col("y") + shift_y, pl.col("y2") + shift_y
    )  # fmt: skip


def tier_rows(document: Document) -> pl.DataFrame:
    """The network model of the report, bandwidths in GB/s."""
    rows = [
        {
            "name": f"{row.tier}: {row.collective}" + (f" over {row.group_size} ranks" if row.group_size else ""), "busbw": _giga(row.busbw_bytes_per_s),
            "low": _giga(row.busbw_ci[0] if row.busbw_ci else row.busbw_bytes_per_s), "high": _giga(row.busbw_ci[1] if row.busbw_ci else row.busbw_bytes_per_s),
            "alpha": None if row.alpha_ns is None else row.alpha_ns / 1000, "half_size_bytes": row.half_size_bytes, "bound": row.bound or "not known",
        }
        for row in document.network.tiers
    ]  # fmt: skip
    return pl.DataFrame(
        rows,
        schema={
            "name": pl.String,
            "busbw": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
            "alpha": pl.Float64,
            "half_size_bytes": pl.Int64,
            "bound": pl.String,
        },
    )


def suspects(document: Document) -> pl.DataFrame:
    """Parts of the network that look slow."""
    rows = [
        {
            "suspect": item.kind,
            "host": ", ".join(item.hosts),
            "devices": ", ".join(item.devices),
            "score": item.score,
            "certain": "several parts fit equally" if item.ambiguous else "only this fits",
        }
        for item in document.network.suspects
    ]
    return pl.DataFrame(
        rows,
        schema={
            "suspect": pl.String,
            "host": pl.String,
            "devices": pl.String,
            "score": pl.Float64,
            "certain": pl.String,
        },
    )


def objects(rows: Any) -> pl.DataFrame:  # noqa: ANN401 - free-form rows of the report
    """Free-form objects as text cells."""
    found = [{str(key): _cell(value) for key, value in row.items()} for row in rows or () if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in found for name in row))
    return pl.DataFrame(
        [{name: row.get(name, "") for name in names} for row in found], schema=dict.fromkeys(names, pl.String)
    )


def _inside(run: Run) -> dict[str, str]:
    same = data.rows(run, "channel_edges").filter(pl.col("source_host") == pl.col("target_host"))
    counted = (
        same.group_by("source_host", "transport").agg(pl.col("connections").sum()).sort("source_host", "transport")
    )
    found: dict[str, list[str]] = {}
    for host, transport, number in counted.iter_rows():
        found.setdefault(host, []).append(f"{transport} {number}")
    return {host: "inside: " + ", ".join(words) for host, words in found.items()}


def _nics(run: Run) -> dict[str, list[str]]:
    wire = data.rows(run, "host_nics").filter(~pl.col("kind").is_in(["bootstrap", "oob"]))
    listed = wire.group_by("host", maintain_order=True).agg(pl.col("name").unique(maintain_order=True))
    return {host: names for host, names in listed.iter_rows() if host is not None}


def _few(names: Sequence[str]) -> str:
    """Names that fit beside a box, else their number: the names stand in the tooltip and in the table."""
    if not names:
        return "NICs not known"
    return ", ".join(names) if sum(len(name) + 2 for name in names) <= 36 else f"{len(names)} NICs"


def _giga(value: float | None) -> float | None:
    return None if value is None else value * 1e-9


def _named(item: object) -> str:
    """A device by its name where it has one: its other facts stand in the table of NICs."""
    if not isinstance(item, dict) or not item.get("name"):
        return _cell(item)
    return f"{item['name']}{'' if item.get('used', True) else ' (not used)'}"


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list | tuple):
        return ", ".join(_named(item) for item in value)
    return "" if value is None else str(value)
