"""Scaling: runs of one job at several sizes: efficiency, where more GPUs stop helping, what a larger size would give."""

from __future__ import annotations

import charts_other
import data
import engines
import frame
import scaling_view
import state
import streamlit as st
from text import plain

run = state.current()
document = frame.heading("Scaling", "Where do more GPUs stop helping, and why?")
sizes = scaling_view.candidates()
picked = st.multiselect(
    "Runs of the same job at different sizes", list(sizes), default=scaling_view.same_job(run, sizes), format_func=lambda item: f"{item} ({sizes[item]} GPUs)", key=state.key("scaled"),
    placeholder="choose runs", help="Names that differ only in their digits are chosen to begin with.",
)  # fmt: skip
section, verdict, why = scaling_view.stored(document), (), ""
if section is None and picked:
    section, verdict, why = engines.scale([data.open_run(name) for name in picked])
if section is None:
    frame.empty(
        "No scaling curve", plain(why) or "No run is chosen above.", "runs of the same job at two sizes or more in this folder; or a table of sizes: `diagnose scaling TABLE.csv`"
    )  # fmt: skip
    st.stop()
for paragraph in scaling_view.paragraphs(verdict):
    st.markdown(paragraph)
for text in section.get("warnings") or ():
    st.warning(plain(text), icon=":material/warning:")
points, predicted = scaling_view.points(section), scaling_view.predicted(section)
if points.is_empty():
    frame.empty("No points", "None of these runs has a value to compare.")
    st.stop()
unit = scaling_view.unit(section)
st.altair_chart(
    charts_other.scaling(points, predicted, unit),
    alt="Measured and predicted values over the number of GPUs",
    key=state.key("curve", *picked),
)
st.caption("Circle: measured; cross: measured, not used; diamond with bar: predicted with its interval.")
efficiency = scaling_view.efficiency(section)
if len(efficiency) > 1:
    st.subheader("Efficiency", anchor=False)
    st.altair_chart(
        charts_other.efficiency(efficiency),
        alt="Scaling efficiency over the number of GPUs",
        key=state.key("efficiency", *picked),
    )
left, right = st.columns(2)
with left:
    st.subheader("Measured", anchor=False)
    frame.table(
        points,
        key=state.key("points", *picked),
        alt="Measured sizes",
        labels={"gpus": "GPUs", "value": unit, "kind": "use"},
    )
with right:
    st.subheader("Predicted", anchor=False)
    if predicted.is_empty():
        st.caption("Too few comparable sizes for a prediction.")
    else:
        frame.table(
            predicted.drop("kind"),
            key=state.key("predicted", *picked),
            alt="Predicted sizes",
            labels={"gpus": "GPUs", "value": unit, "low": "from", "high": "to"},
        )
for line in section.get("notes") or ():
    st.caption(plain(line))
