"""Parts of the Ranks page about one rank: its kernels, one kernel over all ranks, its idle gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import charts
import data
import frame
import heat_view
import polars as pl
import shape
import state
import streamlit as st
from text import short_kernels, verbatim

if TYPE_CHECKING:
    from catalog import Run


def idle_causes(run: Run, rank: int) -> None:
    """Idle gaps by cause, beside the median of the peers."""
    gaps = data.rows(run, "idle_causes", rank=rank)
    if gaps.is_empty():
        frame.empty("No idle gaps", "No gap above 50 µs was seen on any rank.")
        return
    alt = "Idle gaps of the rank by cause, against the median of its peers"
    frame.table(gaps, key=state.key("gaps", rank), alt=alt)
    st.caption("Sums over the trace; peers: the median over the other ranks of the same role.")


def kernels(run: Run, rank: int) -> None:
    """Kernels of the rank beside its peers'; the one that was clicked on every rank."""
    compared = data.rows(run, "kernel_compare", rank=rank)
    if compared.is_empty():
        frame.empty("No kernels", "The traces hold no device activities for this rank.")
        return
    st.caption(
        "Time per counted step, this rank against the median of its peers, largest difference first. "
        "Click a row for its whole name and its time on every rank."
    )
    signatures = compared.get_column("signature").to_list()
    frame.table(
        compared.with_columns(pl.Series("name", short_kernels(compared.get_column("name").to_list()))),
        key=state.key("kernels", rank),
        alt="Kernels of the rank against the median of its peers",
        on_pick=lambda key: heat_view.row_clicked(key, signatures),
        hide=("signature",),
        height=300,
    )
    signature = state.in_address(state.KERNEL)
    if signature in signatures:
        one_kernel(run, rank, str(signature))


def one_kernel(run: Run, rank: int, signature: str) -> None:
    """One kernel: its whole name, its time on every rank, its longest executions on this one."""
    over = data.rows(run, "kernel_ranks", signature=signature)
    st.subheader("One kernel on every rank", anchor=False)
    st.markdown(verbatim(over.item(0, "name")))
    shown = shape.thinned(over, "call_ns", rank)
    chart = charts.kernel_over_ranks(shown.rows, rank)
    alt = "Time per call of the kernel on every rank"
    st.altair_chart(chart, alt=alt, key=state.key("kernel", signature, rank))
    st.caption(f"Diamond: rank {rank}. Dashed: median over the ranks. {shown.note}")
    calls = data.rows(run, "kernel_calls", rank=rank, kernel=over.item(0, "name"))
    if calls.is_empty():
        frame.empty("No single executions", "The store keeps statistics only.", "`diagnose run --keep kernels`")
        return
    alt = "Longest executions of the kernel on the rank"
    labels = {"dur_ns": "duration (ms)", "after_first_ns": "after the first of them (ms)"}
    frame.table(calls, key=state.key("calls", signature, rank), alt=alt, height=240, labels=labels)
