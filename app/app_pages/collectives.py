"""Collectives: bandwidth against size, waiting against transfer, the slowest instances, who came last."""

from __future__ import annotations

import charts_comm
import collectives_view
import data
import frame
import panel_instance
import shape
import state
import streamlit as st

from diagnose.units import format_count

run = state.current()
document = frame.heading("Collectives", "Is it the transfer that is slow, or somebody who comes late?")
kinds = data.rows(run, "collective_kinds")
if kinds.is_empty():
    if not frame.missing(document, "collective", "communication"):
        frame.empty(
            "No collectives",
            "No communication of this run could be matched between ranks.",
            "PyTorch profiler traces of every rank (record_shapes keeps sizes and groups)",
        )
    st.stop()

st.subheader("Bus bandwidth against message size", anchor=False)
points = data.rows(run, "busbw_points")
if points.is_empty():
    frame.empty("No bandwidth", "No collective has a known size.", "record_shapes=True in the profiler")
else:
    series = document.charts.busbw if document.charts else ()
    st.altair_chart(charts_comm.busbw(points, series), alt="Bus bandwidth against message size", key=state.key("busbw"))
    st.caption(
        "Dot: median of a kind, tier and size; bar: the middle 80 % of its instances. Line: fitted model; dashed: reference speed. Bandwidths as nccl-tests defines them."
    )

st.subheader("Waiting and transfer per call", anchor=False)
groups = collectives_view.groups(document)
if groups.is_empty():
    frame.empty(
        "Not known",
        "Members of every collective are missing, so waiting and transfer cannot be told apart.",
        "traces of every rank of the groups",
    )
else:
    st.altair_chart(
        charts_comm.wait_transfer(groups),
        alt="Median waiting and transfer per call of each group",
        key=state.key("groups"),
    )
    st.caption(
        f"The {collectives_view.MOST_GROUPS} dearest kinds. Waiting: the mean member's time until the last one came; transfer: the shortest member's time."
    )
with st.expander("As a table"):
    frame.table(collectives_view.table(document), key=state.key("table"), alt="Collectives by group, kind and size")


@state.part
def slowest_instances() -> None:
    """Instances by cost, and one of them in whole."""
    st.subheader("Slowest instances", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.selectbox(
            "Kind",
            kinds.get_column("collective").to_list(),
            index=None,
            placeholder="all kinds",
            key=state.key("kind"),
            width=260,
        )
        order = st.segmented_control(
            "Ordered by",
            list(collectives_view.ORDERS),
            default="cost",
            format_func=collectives_view.ORDERS.__getitem__,
            key=state.key("order"),
            required=True,
        )
    slowest = data.rows(run, "slowest_collectives", collective=kind, order=order)
    name = state.key("slowest", kind, order)
    listed = slowest.get_column("instance").to_list()
    frame.table(
        slowest,
        key=name,
        alt="Slowest collectives",
        on_pick=lambda key: collectives_view.row_clicked(key, listed),
        height=300,
    )
    st.caption(f"The {format_count(len(slowest))} dearest. Click a row to see its members.")

    options = list(dict.fromkeys([*listed, *collectives_view.asked(run)]))
    instance = state.pick("Instance", options, param=state.INSTANCE, format_func=lambda item: f"instance {item}")
    if instance is not None:
        panel_instance.instance(run, instance)


slowest_instances()

st.subheader("Who comes last", anchor=False)
last = data.rows(run, "last_arrivals")
arrivals = shape.thinned(last, "last_ratio")
st.altair_chart(
    charts_comm.last_arrivals(arrivals.rows),
    alt="Share of collectives in which each rank came last",
    key=state.key("last"),
)
if arrivals.note:
    st.caption(arrivals.note)
frame.table(last.head(50), key=state.key("last table"), alt="Ranks by how often they came last", height=240)
