"""Steps: where the time of each step went, over all ranks or on one; one step rank by rank; the training log's trend."""

from __future__ import annotations

import charts
import data
import frame
import polars as pl
import shape
import state
import streamlit as st
from text import plain

run = state.current()
document = frame.heading("Steps", "Which steps are slow, and what are they made of?")
labels = data.rows(run, "labelled_steps")


@state.part
def over_the_steps() -> None:
    """Every step as a bar, over all ranks or on one."""
    ranks = data.rows(run, "rank_list").get_column("rank").to_list()
    rank = state.pick(
        "Rank",
        [None, *ranks],
        param=state.RANK,
        format_func=lambda item: "all ranks (median)" if item is None else f"rank {item}",
    )
    steps = shape.step_names(data.rows(run, "parts_by_step", rank=rank, most=shape.MAX_BARS))
    long = shape.long_parts(steps, ("place", "counted", "labels"))
    if long.is_empty():
        frame.empty(
            "No split",
            "The steps are known, but not where their time went: the traces hold no device records for them.",
        )
        return
    chart = charts.parts_along(long, title="step", places=steps.get_column("place").to_list(), off=True)
    st.altair_chart(chart, alt="Parts of each step as stacked bars", key=state.key("steps", rank))
    if not long.get_column("counted").all():
        st.caption(
            "Faded bars are not counted; the word above says why. A bar that leaves the chart is cut, its length stands in the tooltip."
        )


@state.part
def one_step() -> None:
    """One step, or the median step, rank by rank or host by host."""
    st.subheader("One step, rank by rank", anchor=False)
    step = state.pick(
        "Step",
        [None, *labels.get_column("step").to_list()],
        param=state.STEP,
        format_func=lambda item: "median over the counted steps" if item is None else f"step {item}",
    )
    shown = shape.by_rank_or_host(data.rows(run, "parts_by_rank", step=step))
    parts = shape.long_parts(shown.rows, ("place",))
    if parts.is_empty():
        frame.empty("No split", "Nothing is known about the parts of this step.")
        return
    places = shown.rows.get_column("place").to_list()
    chart = (
        charts.parts_across(parts, sort=places)
        if len(places) <= charts.MOST_LABELLED
        else charts.parts_along(parts, title="rank or host", places=places)
    )
    st.altair_chart(chart, alt="Parts of the step on each rank as stacked bars", key=state.key("ranks", step))
    st.caption(plain(shown.note) if shown.note else "One bar a rank.")


if not labels.is_empty():
    over_the_steps()
    one_step()
    st.subheader("All steps", anchor=False)
    frame.table(labels, key=state.key("labels"), alt="Steps with label, reason and time", height=280)
elif not frame.missing(document, "step", "trace"):
    frame.empty(
        "No steps",
        "No trace of this run shows steps.",
        "traces with a profiler schedule (ProfilerStep#) of at least three steps",
    )

st.subheader("Trend from the training log", anchor=False)
trend = data.rows(run, "training_trend", most=1500)
if trend.is_empty():
    frame.empty(
        "No training log",
        "No file of this run was a training log with step numbers.",
        "the log that prints step, loss and throughput, given to `diagnose run` beside the traces",
    )
else:
    if trend.get_column("step_time_ns").null_count() < len(trend):
        st.altair_chart(
            charts.trend(trend, "step_time_ns", "step time (ms)", factor=1e-6),
            alt="Logged step time over the steps",
            key=state.key("logged time"),
        )
    if trend.get_column("throughput").null_count() < len(trend):
        unit = trend.filter(pl.col("throughput").is_not_null()).item(0, "throughput_unit")
        st.altair_chart(
            charts.trend(trend, "throughput", f"throughput ({unit})"),
            alt="Logged throughput over the steps",
            key=state.key("throughput"),
        )
    if trend.get_column("loss").null_count() < len(trend):
        st.altair_chart(
            charts.trend(trend, "loss", "loss (as logged)"), alt="Logged loss over the steps", key=state.key("loss")
        )
