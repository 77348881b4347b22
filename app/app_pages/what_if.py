"""What-if: what the step would take if one thing were fixed, and what that saves."""

from __future__ import annotations

import charts_other
import frame
import state
import streamlit as st
import what_if_view

run = state.current()
document = frame.heading("What-if", "What would fixing one thing buy?")
rows = what_if_view.rows(document)
if rows.is_empty():
    if not frame.missing(document, "what-if", "replay", "counterfactual", "would"):
        frame.empty(
            "No scenarios",
            "The steps of this run could not be replayed: that needs compute, communication and their order on every rank.",
            "PyTorch profiler traces of every rank over at least three steps",
        )
    st.stop()
known = what_if_view.known(rows)
if len(known):
    st.altair_chart(
        charts_other.what_if(known, document.step_time.median_ns),
        alt="Step time if one thing were fixed",
        key=state.key("what if"),
    )
st.caption(f"Measured step: {frame.duration(document.step_time.median_ns)}. Each line alone; gains do not add up.")
labels = {
    "scenario": "if", "step_ns": "step (ms)", "speedup": "speedup (x)", "gpu_hours_per_day": "saved (GPU-hours a day)", "cost_per_day": what_if_view.money(document),
    "explained_ratio": "replay explains (%)",
}  # fmt: skip
frame.table(rows, key=state.key("table"), alt="Scenarios with step time and saving", labels=labels)
st.caption(
    "Replay explains: how close the replay of the run as it was comes to the measured step. Below about 90 % take the gains as directions, not as numbers."
)
