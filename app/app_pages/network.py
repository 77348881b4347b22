"""Network: who talks to whom over what, how fast each tier is, what looks slow."""

from __future__ import annotations

import charts_comm
import data
import frame
import network_view
import state
import streamlit as st
from text import plain

from diagnose.report import tables
from diagnose.units import format_count

run = state.current()
document = frame.heading("Network", "Which paths does communication take, and which part of the network is slow?")
summary = tables.transports(document)
if summary:
    st.markdown(plain(summary))

st.subheader("Transports between hosts", anchor=False)
between = network_view.edges(run)
hosts = network_view.placed_hosts(run, between)
if between.is_empty() and not frame.missing(document, "transport", "nccl_debug", "nccl log", "gdr", "rdma"):
    frame.empty(
        "No connections known",
        "No communication log of this run prints connections between hosts.",
        "set NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET,ENV and NCCL_DEBUG_FILE=nccl.%h.%p.log, "
        "and give the logs to `diagnose run`",
    )
if len(hosts) > network_view.MOST_DRAWN and len(between):
    st.altair_chart(
        charts_comm.host_matrix(between), alt="Transports from host to host as a matrix", key=state.key("matrix")
    )
elif len(between) or network_view.knows_inside(hosts):
    st.altair_chart(
        charts_comm.topology(hosts, network_view.placed_edges(between, hosts)),
        alt="Hosts and the transports between them",
        key=state.key("topology"),
    )
if len(between):
    with st.expander("Connections as a table"):
        frame.table(between, key=state.key("edges"), alt="Connections between hosts")
per_host = network_view.objects(document.transports.per_host)
if len(per_host):
    frame.table(per_host, key=state.key("per host"), alt="Transports of each host")
nics = data.rows(run, "host_nics")
if len(nics):
    st.subheader("NICs and interfaces", anchor=False)
    frame.table(nics, key=state.key("nics"), alt="NICs and interfaces of each host", height=260)

st.subheader("Speed of each tier", anchor=False)
tiers = network_view.tier_rows(document)
if tiers.is_empty():
    if not frame.missing(document, "tier", "bandwidth", "fabric"):
        frame.empty(
            "No network model",
            "Too few sizes of collectives were seen to fit latency and bandwidth.",
            "traces with record_shapes=True from every rank, over several message sizes",
        )
else:
    st.altair_chart(
        charts_comm.tiers(tiers), alt="Bus bandwidth of each tier with its interval", key=state.key("tiers")
    )
    labels = {
        "name": "tier and collective",
        "busbw": "busbw (GB/s)",
        "low": "from (GB/s)",
        "high": "to (GB/s)",
        "alpha": "latency (µs)",
        "half_size_bytes": "half-speed size",
        "bound": "limited by",
    }
    frame.table(tiers, key=state.key("tier table"), alt="Latency and bandwidth of each tier", labels=labels)
over = document.network.oversubscription
if over is not None:
    interval = f" ({over.ci[0]:.2f} to {over.ci[1]:.2f})" if over.ci and None not in over.ci else ""
    st.markdown(plain(f"Oversubscription: the upper tier has {over.ratio:.2f} times less bandwidth{interval}."))

st.subheader("Suspects", anchor=False)
suspects = network_view.suspects(document)
if suspects.is_empty():
    st.caption("No part of the network stands out.")
else:
    frame.table(suspects, key=state.key("suspects"), alt="Parts of the network that look slow")

messages = data.rows(run, "comm_messages")
if len(messages):
    st.subheader("Messages of the communication library", anchor=False)
    frame.table(messages, key=state.key("messages"), alt="Messages of the communication logs by kind", height=300)
    st.caption("Cause: reported where it happened. Echo: follows from another rank's problem.")
settings = data.rows(run, "comm_settings")
if len(settings):
    with st.expander(f"Settings ({format_count(len(settings))})"):
        frame.table(settings, key=state.key("settings"), alt="Settings of the communication library")
