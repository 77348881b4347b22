"""What the Ranks page shows in its heat map, and what a click into it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import data
import polars as pl
import state
import streamlit as st
from frame import picked_row

if TYPE_CHECKING:
    from catalog import Run

    from diagnose.report.document import Document

LATE, LOCAL = "Lateness", "Local work"
MEASURES = (LATE, LOCAL)
TITLES = {LATE: "later than the first peer", LOCAL: "local work above (below) the peers"}
CAPTIONS = {
    LATE: "How much later than the first peer a rank entered its collectives, summed over the step. It says who is waited for, not why.",
    LOCAL: "Work that waits for nobody (compute, copies, idle the rank caused itself) against the median of ranks with the same role in the same step.",
}
EMPTY = {
    LATE: (
        "No lateness",
        "No collective was seen on all of its ranks, so nobody's arrival can be compared.",
        "traces of every rank of a process group",
    ),
    LOCAL: (
        "No local work",
        "No step was split into its parts.",
        "traces with device activity of at least three steps",
    ),
}


def cells(run: Run, measure: str, role: int | None) -> pl.DataFrame:
    """Values of all ranks and steps; lateness is the report's."""
    frame = (
        _reported(data.document(run), data.rows(run, "rank_list"))
        if measure == LATE
        else data.rows(run, "rank_local_work")
    )
    return frame if role is None else frame.filter(pl.col("role") == role)


def roles(listed: pl.DataFrame) -> list[int]:
    """Roles that occur."""
    return sorted(listed.get_column("role").drop_nulls().unique().to_list())


def rank_labels(listed: pl.DataFrame) -> dict[int, str]:
    """``rank 3 on gpu-r01n01`` of every rank."""
    names = {}
    for rank, host in listed.select("rank", "host").iter_rows():
        name = f"rank {rank}" if rank >= 0 else "rank not named"
        names[rank] = f"{name} on {host}" if host else name
    return names


def rank_facts(row: pl.DataFrame) -> str:
    """Place, device, role, trace of a rank in one line."""
    found = row.row(0, named=True)
    pieces = (
        f"host {found['host']}" if found["host"] else "host unknown",
        f"device {found['device']} ({found['device_name']})" if found["device"] is not None else "no device",
        f"role {found['role']}" if found["role"] is not None else "role not compared",
        f"trace {found['trace']}" if found["trace"] else "no trace",
        f"device time unknown: {found['lost_capture']}" if found["lost_capture"] else "",
    )
    return " · ".join(piece for piece in pieces if piece)


def suspect(document: Document, ranks: list[int]) -> int | None:
    """The rank a reader most likely came for: that of the dearest finding about ranks, else the latest one."""
    named = [rank for finding in document.findings for rank in finding.ranks]
    late = document.charts.lateness if document.charts else None
    if late is not None and late.ranks:
        sums = [sum(value or 0 for value in values) for values in late.late_ns]
        named.append(late.ranks[sums.index(max(sums))])
    return next((rank for rank in named if rank in ranks), ranks[0] if ranks else None)


def clicked(name: str) -> None:
    """A click into the heat map: its rank, or its host, becomes the choice."""
    chosen = st.session_state[name]["selection"].get("clicked") or []
    if not chosen:
        return
    if chosen[0].get("host") is not None:
        state.choose("host", chosen[0]["host"])
    elif chosen[0].get("rank") is not None:
        state.choose(state.RANK, int(chosen[0]["rank"]))
        state.whole_page()


def row_clicked(name: str, signatures: list[str]) -> None:
    """A click on a kernel."""
    place = picked_row(name)
    if place is not None and place < len(signatures):
        st.query_params[state.KERNEL] = signatures[place]


def _reported(document: Document, listed: pl.DataFrame) -> pl.DataFrame:
    found = document.charts.lateness if document.charts else None
    ranks, steps, late = ((), (), ()) if found is None else (found.ranks, found.steps, found.late_ns)
    rows = [
        {"rank": rank, "step": step, "value_ns": None if value is None else float(value)}
        for rank, values in zip(ranks, late, strict=False)
        for step, value in zip(steps, values, strict=False)
    ]
    frame = pl.DataFrame(rows, schema={"rank": pl.Int64, "step": pl.Int64, "value_ns": pl.Float64})
    return frame.join(listed.select(pl.col("rank").cast(pl.Int64), "host", "role"), on="rank", how="left").drop_nulls(
        "value_ns"
    )
