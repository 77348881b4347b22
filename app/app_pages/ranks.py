"""Ranks: who is late, who works longer, one rank beside its peers, one kernel over all ranks."""

from __future__ import annotations

import charts
import data
import frame
import heat_view
import panel_rank
import polars as pl
import shape
import state
import streamlit as st
from text import plain

run = state.current()
document = frame.heading("Ranks", "Which rank is slow by itself, and which one only waits?")
listed = data.rows(run, "rank_list")
if listed.is_empty():
    if not frame.missing(document, "trace", "straggler", "rank"):
        frame.empty("No ranks", "No trace tells what any rank did.", "PyTorch profiler traces of every rank")
    st.stop()


@state.part
def lateness_and_work() -> None:
    """Heat map of all ranks over the steps."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        measure = st.segmented_control(
            "Show", heat_view.MEASURES, default=heat_view.MEASURES[0], key=state.key("measure"), required=True
        )
        roles = heat_view.roles(listed)
        role = st.selectbox(
            "Role",
            roles,
            index=None,
            placeholder="all roles",
            key=state.key("role"),
            width=180,
            disabled=len(roles) < 2,
            help="Ranks with the same number do the same work.",
        )
        hosts = sorted(listed.get_column("host").drop_nulls().unique().to_list())
        host = state.pick(
            "Host",
            [None, *hosts],
            param="host",
            width=320,
            format_func=lambda item: "all hosts" if item is None else item,
        )
    cells = heat_view.cells(run, measure, role)
    shown = shape.heat(cells, host)
    if shown.rows.is_empty():
        frame.empty(heat_view.EMPTY[measure][0], heat_view.EMPTY[measure][1], heat_view.EMPTY[measure][2])
    else:
        name = state.key("heat", measure, role, host)
        grouped = host is None and cells.get_column("rank").n_unique() > shape.MAX_ROWS
        chart = charts.heat(
            shown.rows,
            title=heat_view.TITLES[measure],
            diverging=measure == heat_view.LOCAL,
            selectable="host" if grouped else "rank",
        )
        st.altair_chart(
            chart,
            alt=f"Heat map of ranks over steps: {heat_view.TITLES[measure]}",
            key=name,
            on_select=lambda: heat_view.clicked(name),
        )
        st.caption(
            plain(
                f"{heat_view.CAPTIONS[measure]} {shown.note} Click a cell to look at its {'host' if grouped else 'rank'}."
            )
        )


lateness_and_work()


@state.part
def one_rank() -> None:
    """One rank against the median of its peers, down to a kernel."""
    st.subheader("One rank beside its peers", anchor=False)
    labels = heat_view.rank_labels(listed)
    ranks = list(labels)
    rank = state.pick(
        "Rank", ranks, param=state.RANK, default=heat_view.suspect(document, ranks), format_func=labels.__getitem__
    )
    if rank is None:
        return
    row = listed.filter(pl.col("rank") == rank)
    st.caption(plain(heat_view.rank_facts(row)))
    beside = shape.beside_peers(document.step_time.per_rank, listed, rank)
    if beside.is_empty():
        frame.empty("No split", "This rank has no counted step.")
    else:
        parts = shape.long_parts(beside.rename({"who": "place"}), ("place",))
        left, right = st.columns([3, 2])
        left.altair_chart(
            charts.parts_across(parts, sort=beside.get_column("who").to_list(), columns=3),
            alt="Parts of the step: this rank and the median of its peers",
            key=state.key("beside", rank),
        )
        with right:
            frame.table(
                shape.part_table(beside), key=state.key("parts", rank), alt="Parts of the step: this rank against its peers",
                height="content",
            )  # fmt: skip

    what = st.segmented_control(
        "Look into", ("Kernels", "Idle causes"), default="Kernels", key=state.key("look"), required=True
    )
    if what == "Idle causes":
        panel_rank.idle_causes(run, rank)
    else:
        panel_rank.kernels(run, rank)


one_rank()
