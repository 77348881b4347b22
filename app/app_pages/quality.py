"""Data quality: what was read and what was wrong with it, clocks, and every table to take away."""

from __future__ import annotations

import data
import export
import frame
import quality_view
import state
import streamlit as st
from text import collect, plain

from diagnose.report import tables, view
from diagnose.units import format_count

run = state.current()
document = frame.heading("Data quality", "Can the numbers be trusted, and what was lost?")
st.markdown(plain(f"Inputs: {tables.source_counts(document)}."))
lost = view.missing(document)
if lost:
    st.warning(plain(lost), icon=":material/person_off:")
for why, steps in view.exclusions(document):
    st.markdown(plain(f"Not counted: {steps} — {why}"))

st.subheader("Problems", anchor=False)
issues = quality_view.issues(document)
if issues.is_empty():
    st.caption("No problem was found inside the inputs that were read.")
else:
    frame.table(issues, key=state.key("issues"), alt="Kinds of problems with their count")

st.subheader("Files", anchor=False)
states = quality_view.states(document)
chosen = st.pills("Status", states, selection_mode="multi", default=states, key=state.key("states"))
sources = quality_view.sources(document, chosen)
frame.table(sources, key=state.key("sources"), alt="Input files with their status", height=360)

st.subheader("Clocks", anchor=False)
clocks = quality_view.clocks(document)
if clocks.is_empty():
    frame.empty(
        "No clocks",
        "Nothing ties the clocks of the hosts together, so times of different hosts are not compared.",
        "traces of all members of some collectives",
    )
else:
    frame.table(clocks, key=state.key("clocks"), alt="Offset, drift and residual of each host's clock")
    st.caption("No skew below the residual is reported.")

if document.not_checked:
    st.subheader("Not checked", anchor=False)
    for open_question in document.not_checked:
        st.markdown(
            f"**{plain(open_question.question)}** {plain(open_question.why.rstrip('.'))}.  \nCollect: {collect(open_question.collect)}"
        )

st.subheader("Tables of the run store", anchor=False)
name = state.pick(
    "Table",
    export.NAMES,
    param="table",
    format_func=lambda item: f"{item} ({format_count(data.count(run, item))} rows)",
)
about = export.described(name)
st.caption(plain(f"One row: {about.grain}."))
first = export.preview(run, name)
if first.is_empty():
    st.caption("This table is empty for this run.")
else:
    st.dataframe(
        first,
        key=state.key("preview", name),
        hide_index=True,
        alt=f"First rows of {name}",
        height="content" if len(first) < frame.FEW_ROWS else 260,
        placeholder="–",
    )
    with st.container(horizontal=True):
        stem = f"{run.id.rsplit('/', 1)[-1]}-{name}"
        st.download_button(
            "Table as CSV",
            data=lambda: export.csv(run, name),
            file_name=f"{stem}.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
            key=state.key("csv", name),
        )
        st.download_button(
            "Table as Parquet",
            data=lambda: export.parquet(run, name),
            file_name=f"{stem}.parquet",
            icon=":material/download:",
            on_click="ignore",
            key=state.key("parquet", name),
        )
with st.expander("Columns"):
    frame.table(quality_view.columns(about), key=state.key("columns", name), alt=f"Columns of {name}")
st.caption(f"Report of diagnose {plain(document.tool.version)}, schema {plain(document.schema)}.")
