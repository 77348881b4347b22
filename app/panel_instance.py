"""The part of the Collectives page about one instance: its members, who came last, the window around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import charts_comm
import data
import frame
import perfetto
import state
import streamlit as st
from text import plain

from diagnose.units import format_bytes, format_rate

if TYPE_CHECKING:
    from catalog import Run


def instance(run: Run, number: int) -> None:
    """One collective in words, as a picture, as a table, as a file."""
    found = data.rows(run, "collective_row", instance=number).row(0, named=True)
    members = data.rows(run, "collective_members", instance=number)
    st.markdown(plain(_words(found)))
    if members.is_empty():
        frame.empty("No members", "This instance has no matched member.")
        return
    alt = "When each member entered the collective, waited and transferred"
    st.altair_chart(charts_comm.members(members), alt=alt, key=state.key("members", number))
    if len(members) > charts_comm.MOST_MEMBERS:
        st.caption(f"{charts_comm.MOST_MEMBERS} of {len(members)} members: the first and the last to arrive.")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "Window for Perfetto",
            data=lambda: perfetto.window(run, number),
            file_name=f"window-{number}.json",
            mime="application/json",
            icon=":material/download:",
            on_click="ignore",
            key=state.key("window", number),
        )
        last = found["last_rank"]
        if last is not None:
            state.link("ranks", f"Rank {last} beside its peers", icon=":material/arrow_forward:", rank=last)
    st.caption(
        "The window holds 20 ms before and after, ranks on the aligned clock. "
        "Open the file in Perfetto's viewer; it stays on your machine."
    )
    with st.expander("Members as a table"):
        frame.table(members, key=state.key("member table", number), alt="Members of the collective")


def _words(found: dict[str, Any]) -> str:
    """``all_reduce of 4.00 B in default_pg, step 155: ...``."""
    last = found["last_rank"]
    came = f"rank {last} came last" if last is not None else "nobody clearly came last (below the clock error)"
    return (
        f"{found['collective']} of {format_bytes(found['msg_bytes'])} in "
        f"{found['process_group'] or 'a group without name'}, step {found['step']}: "
        f"transfer {frame.duration(found['transfer_ns'])}, {format_rate(found['busbw_bytes_per_s'])} busbw, "
        f"{found['seen']} of {found['members']} members seen, {came}"
    )
