"""Runs: every store of the folder, sortable, and the step time over time."""

from __future__ import annotations

import charts_other
import data
import frame
import polars as pl
import runs_view
import state
import streamlit as st
from text import plain

from diagnose.units import format_count

st.title("Runs", anchor=False)
st.caption("All run stores of the folder. Click a row to open the run.")
catalog = data.runs()
whole = st.session_state.get("all_verdicts", False)
rows, missing = runs_view.rows(all_verdicts=whole)
words = st.text_input("Contains", placeholder="name, verdict, device", key="runs_words", width=320).lower().split()
shown = rows.filter(
    pl.all_horizontal(
        [
            pl.concat_str("run", "name", "verdict", "devices", ignore_nulls=True)
            .str.to_lowercase()
            .str.contains(word, literal=True)
            for word in words
        ]
        or [pl.lit(value=True)]
    )
)
st.caption(f"{format_count(len(shown))} of {format_count(len(rows))} runs.")
name = "runs:" + ":".join(words)
ids = shown.get_column("run").to_list()
config = {
    "run": st.column_config.TextColumn("run", width="medium"), "started": st.column_config.DatetimeColumn("started (UTC)", format="YYYY-MM-DD HH:mm:ss", timezone="UTC"),
    "step": st.column_config.TextColumn("median step"), "problem": st.column_config.TextColumn("problem", width="large"), "step_ns": None, "job": None,
}  # fmt: skip
if (shown.get_column("name").fill_null("") == shown.get_column("run")).all():
    config["name"] = None  # type: ignore[assignment]
if shown.get_column("problem").is_null().all():
    config["problem"] = None  # type: ignore[assignment]
st.dataframe(
    shown,
    key=name,
    hide_index=True,
    column_config=config,
    on_select=lambda: runs_view.row_clicked(name, ids),
    selection_mode="single-row",
    lazy=False,
    alt="All runs",
    width="stretch",
    placeholder="",
)
if missing:
    st.button(
        f"Judge the other {format_count(missing)} runs too",
        key="all_verdicts_button",
        on_click=lambda: st.session_state.update(all_verdicts=True),
        icon=":material/speed:",
    )
if catalog.rejected:
    st.warning(
        plain(f"Not opened, because they are links that lead out of the folder: {', '.join(catalog.rejected[:5])}"),
        icon=":material/link_off:",
    )
if catalog.cut:
    st.warning(f"Only the first {format_count(len(catalog.runs))} runs are listed.", icon=":material/content_cut:")

st.subheader("Step time over time", anchor=False)
timed = shown.filter(pl.col("step_ns").is_not_null() & pl.col("started").is_not_null())
if len(timed) < 2:
    frame.empty("No trend", "Fewer than two of these runs have a start and a step time.")
else:
    st.altair_chart(charts_other.runs(timed), alt="Median step of the runs over time", key="runs_trend")
    st.caption("A line joins runs whose names differ only in their digits.")
with st.container(horizontal=True):
    if state.has_run():
        state.link("compare", "Compare two runs", icon=":material/arrow_forward:")
        state.link("scaling", "Scaling over sizes", icon=":material/arrow_forward:")
