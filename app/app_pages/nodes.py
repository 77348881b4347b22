"""Nodes: one metric of the hosts against their peers around the traced steps; events of the kernel logs."""

from __future__ import annotations

import charts_other
import data
import frame
import nodes_view
import state
import streamlit as st
from text import plain

from diagnose.units import format_count

run = state.current()
document = frame.heading("Nodes", "Does a host or a device behave differently from its peers while the steps ran?")
listed = nodes_view.metrics(run, document)


@state.part
def one_metric() -> None:
    """One metric of the hosts over time."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        metric = state.pick("Metric", listed.get_column("metric").to_list(), param="metric")
        host = state.pick(
            "Host",
            [None, *nodes_view.hosts(run)],
            param="host",
            format_func=lambda item: "those furthest from their peers" if item is None else item,
        )
    found = nodes_view.series(run, listed, metric, host)
    if found.lines.is_empty():
        frame.empty("No line", "This metric has too few samples of this host: a counter needs two.")
    else:
        st.altair_chart(
            charts_other.metric(found, nodes_view.window(run), metric),
            alt=f"{metric} of hosts over time against their peers",
            key=state.key("metric", metric, host),
        )
        st.caption(
            plain(
                f"Shaded: the traced steps. Dashed: median of all series. Counters are shown as increase per second. {found.note}"
            )
        )
    with st.expander(f"All metrics ({format_count(len(listed))})"):
        frame.table(
            listed.select("metric", "unit", "kind", "samples", "hosts", "entities"),
            key=state.key("metrics"),
            alt="Metrics that were read",
        )


if not listed.is_empty():
    one_metric()
elif not frame.missing(document, "node", "metric", "gpu clock", "throttl"):
    frame.empty(
        "No node metrics",
        "No metric of any host was read with this run.",
        "node_exporter and DCGM samples (or nvidia-smi CSV) of the same hours, given to `diagnose run`",
    )


glance = nodes_view.glance(document)
if len(glance):
    st.subheader("Hosts at a glance", anchor=False)
    frame.table(glance, key=state.key("glance"), alt="Hosts in the report's table")

st.subheader("Events", anchor=False)
events = nodes_view.events(run)
if events.is_empty():
    frame.empty(
        "No events",
        "No kernel log was read, or it holds nothing about devices, links or memory.",
        "dmesg or journalctl -k of each host, given to `diagnose run`",
    )
else:
    frame.table(events, key=state.key("events"), alt="Events of the kernel logs", height=320)

st.subheader("Hosts and ranks", anchor=False)
hosts = data.rows(run, "host_ranks")
if hosts.is_empty():
    frame.empty("No hosts", "Nothing that was read names a host.", "`diagnose run --host-map hosts.yaml`")
else:
    frame.table(nodes_view.host_table(hosts), key=state.key("hosts"), alt="Hosts and their ranks")
