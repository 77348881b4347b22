"""Collectives: bandwidth against size, waiting against transfer, the slowest instances, who came last."""

from __future__ import annotations

import charts_comm
import collectives_view
import data
import frame
import perfetto
import state
import streamlit as st
from text import plain

from diagnose.units import format_bytes, format_count, format_rate

run = state.current()
document = frame.heading("Collectives", "Is it the transfer that is slow, or somebody who comes late?")
kinds = data.rows(run, "collective_kinds")
if kinds.is_empty():
    if not frame.missing(document, "collective", "communication"):
        frame.empty("No collectives", "No communication of this run could be matched between ranks.", "PyTorch profiler traces of every rank (record_shapes keeps sizes and groups)")
    st.stop()

st.subheader("Bus bandwidth against message size", anchor=False)
points = data.rows(run, "busbw_points")
if points.is_empty():
    frame.empty("No bandwidth", "No collective has a known size.", "record_shapes=True in the profiler")
else:
    series = document.charts.busbw if document.charts else ()
    st.altair_chart(charts_comm.busbw(points, series), alt="Bus bandwidth against message size", key=state.key("busbw"))
    st.caption("Dot: median of a kind, tier and size; bar: the middle 80 % of its instances. Line: fitted model; dashed: reference speed. Bandwidths as nccl-tests defines them.")

st.subheader("Waiting and transfer per call", anchor=False)
groups = collectives_view.groups(document)
if groups.is_empty():
    frame.empty("Not known", "Members of every collective are missing, so waiting and transfer cannot be told apart.", "traces of every rank of the groups")
else:
    st.altair_chart(charts_comm.wait_transfer(groups), alt="Median waiting and transfer per call of each group", key=state.key("groups"))
    st.caption(f"The {collectives_view.MOST_GROUPS} dearest kinds. Waiting: the mean member's time until the last one came; transfer: the shortest member's time.")
with st.expander("As a table"):
    frame.table(collectives_view.table(document), key=state.key("table"), alt="Collectives by group, kind and size")

st.subheader("Slowest instances", anchor=False)
with st.container(horizontal=True, vertical_alignment="bottom"):
    kind = st.selectbox("Kind", kinds.get_column("collective").to_list(), index=None, placeholder="all kinds", key=state.key("kind"), width=260)
    order = st.segmented_control("Ordered by", list(collectives_view.ORDERS), default="cost", format_func=collectives_view.ORDERS.__getitem__, key=state.key("order"), required=True)
slowest = data.rows(run, "slowest_collectives", collective=kind, order=order)
name = state.key("slowest", kind, order)
listed = slowest.get_column("instance").to_list()
frame.table(slowest, key=name, alt="Slowest collectives", on_pick=lambda key: collectives_view.row_clicked(key, listed), height=300)
st.caption(f"The {format_count(len(slowest))} dearest. Click a row to see its members.")

options = list(dict.fromkeys([*listed, *collectives_view.asked(run)]))
instance = state.pick("Instance", options, param=state.INSTANCE, format_func=lambda item: f"instance {item}")
if instance is not None:
    found = data.rows(run, "collective_row", instance=instance).row(0, named=True)
    members = data.rows(run, "collective_members", instance=instance)
    st.markdown(
        plain(
            f"{found['collective']} of {format_bytes(found['msg_bytes'])} in {found['process_group'] or 'a group without name'}, step {found['step']}: transfer {frame.duration(found['transfer_ns'])}, "
            f"{format_rate(found['busbw_bytes_per_s'])} busbw, {found['seen']} of {found['members']} members seen, "
            + (f"rank {found['last_rank']} came last" if found["last_rank"] is not None else "nobody clearly came last (below the clock error)")
        )
    )
    if members.is_empty():
        frame.empty("No members", "This instance has no matched member.")
    else:
        st.altair_chart(charts_comm.members(members), alt="When each member entered the collective, waited and transferred", key=state.key("members", instance))
        if len(members) > charts_comm.MOST_MEMBERS:
            st.caption(f"{charts_comm.MOST_MEMBERS} of {len(members)} members: the first and the last to arrive.")
        with st.container(horizontal=True, vertical_alignment="center"):
            st.download_button(
                "Window for Perfetto", data=lambda: perfetto.window(run, instance), file_name=f"window-{instance}.json", mime="application/json", icon=":material/download:",
                on_click="ignore", key=state.key("window", instance),
            )  # fmt: skip
            st.caption("20 ms before and after, ranks on the aligned clock. Open the file in Perfetto's viewer; it stays on your machine.")
            if found["last_rank"] is not None:
                state.link("ranks", f"Rank {found['last_rank']} beside its peers", icon=":material/arrow_forward:", rank=found["last_rank"])
        with st.expander("Members as a table"):
            frame.table(members, key=state.key("member table", instance), alt="Members of the collective")

st.subheader("Who comes last", anchor=False)
last = data.rows(run, "last_arrivals")
st.altair_chart(charts_comm.last_arrivals(last), alt="Share of collectives in which each rank came last", key=state.key("last"))
frame.table(last.head(50), key=state.key("last table"), alt="Ranks by how often they came last", height=240)
