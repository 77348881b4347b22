"""Overview: the verdict, where the step's time goes, the dearest findings, what stayed open, what was read."""

from __future__ import annotations

import data
import frame
import quality_view
import state
import streamlit as st
from preload import preload
from split_bar import split_bar
from text import collect, plain

from diagnose.report import view
from diagnose.units import format_count

TOP = 5
run = state.current()
document = frame.heading("Overview", "What holds this run back, and how sure is that?")
sentence, rest = view.verdict_parts(document)
with st.container(border=True):
    st.subheader(plain(sentence), anchor=False)
    if rest:
        st.markdown(plain(rest))
    with st.container(horizontal=True):
        st.badge(f"Bottleneck: {document.verdict.bottleneck}", icon=":material/speed:", color="blue")
        answer = view.NETWORK_BOUND[document.verdict.network_bound]
        st.badge(f"Network-bound: {answer}", icon=":material/hub:", color="orange" if answer == "yes" else "gray")

time = document.step_time
frame.facts(
    {
        "Median step": frame.known_duration(time.median_ns),
        "Transfer that holds the step up": frame.known_duration(time.breakdown.blocking_comm_ns),
        "Communication hidden behind compute": frame.known_duration(time.breakdown.overlapped_comm_ns),
        "Findings": format_count(len(document.findings)),
        "Not checked": format_count(len(document.not_checked)),
    }
)
split = split_bar(time.breakdown)
if not split:
    frame.empty(
        "No step time",
        "No trace of this run could be split into steps, so nothing says where the time went.",
        "PyTorch profiler traces of at least three steps, from every rank",
    )
else:
    st.subheader("Where the step's time goes", anchor=False)
    st.html(split)
    st.caption(f"Window: {plain(time.window)}. Median over ranks, then over {format_count(time.steps_used)} steps.")
    with st.container(horizontal=True):
        state.link("steps", "Step by step", icon=":material/arrow_forward:")
        state.link("ranks", "Rank by rank", icon=":material/arrow_forward:")

st.subheader("Findings, by lost time", anchor=False)
folded = view.fold(document.findings)
for item in folded[:TOP]:
    frame.finding_card(item.finding, item.explained)
if not folded:
    st.success("Nothing that was checked looks wrong. What could not be checked stands below.", icon=":material/check:")
if len(folded) > TOP:
    state.link("findings", f"All {format_count(len(document.findings))} findings", icon=":material/arrow_forward:")

left, right = st.columns([2, 3])
with left:
    st.subheader("Not checked", anchor=False)
    if not document.not_checked:
        st.caption("Every question had the data it needs.")
    for open_question in document.not_checked:
        with st.expander(plain(open_question.question)):
            st.markdown(plain(open_question.why))
            st.markdown(f"**Collect:** {collect(open_question.collect)}")
with right:
    st.subheader("What was read", anchor=False)
    lost = view.missing(document)
    if lost:
        st.warning(plain(lost), icon=":material/person_off:")
    st.markdown(plain(quality_view.covered(document)))
    st.markdown(quality_view.by_kind(run))
    for why, steps in view.exclusions(document):
        st.caption(plain(f"Not counted: {steps} — {why}"))
    state.link("quality", "Files and their problems", icon=":material/arrow_forward:")

st.subheader("Take it with you", anchor=False)
with st.container(horizontal=True):
    for form, words in (("html", "HTML report"), ("json", "JSON report"), ("md", "Markdown")):
        st.download_button(
            words,
            data=lambda form=form: data.report(run, form),
            file_name=f"{run.id.rsplit('/', 1)[-1]}.{form}",
            icon=":material/download:",
            on_click="ignore",
            key=state.key("get", form),
        )

preload()
