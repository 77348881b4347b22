"""Has the browser load what draws charts and tables while a person reads the first page."""

from __future__ import annotations

import altair as alt
import polars as pl
import streamlit as st

AFTER_S = 1.0
_STATE = "preloaded"
_ASKED, _DRAWN, _DONE = 1, 2, 3


def preload() -> None:
    """At the end of the first page: nothing at first, a moment later an empty chart and table, then nothing again."""
    if st.session_state.get(_STATE) != _DONE:
        _draw()


@st.fragment(run_every=AFTER_S)
def _draw() -> None:
    state = st.session_state.get(_STATE)
    if state is None:
        st.session_state[_STATE] = _ASKED
    elif state == _ASKED:
        st.session_state[_STATE] = _DRAWN
        nothing = pl.DataFrame({"nothing": [0]})
        with st.container(height=1, border=False):
            st.altair_chart(alt.Chart(nothing).mark_point(opacity=0).properties(height=1, width=1), width="content")
            st.dataframe(nothing, height=35, width=60, lazy=False)
    else:
        st.session_state[_STATE] = _DONE
        st.rerun()
