"""The dashboard: run picker and menu around the pages. Started by `diagnose app`, or by `streamlit run app/main.py`."""

from __future__ import annotations

import logging
from pathlib import Path

import data
import frame
import state
import streamlit as st
from text import plain

from diagnose.errors import DiagnoseError

st.set_page_config(
    page_title="diagnose",
    page_icon=str(Path(__file__).with_name("icon.svg")),
    layout="wide",
    initial_sidebar_state="expanded",
)

# An icon of a page would become the tab's icon, which the browser would fetch from outside.
pages = {
    page.name: st.Page(
        f"app_pages/{page.name}.py", title=page.title, url_path=page.name, default=page.name == state.HOME
    )
    for page in state.PAGES
}
page = st.navigation(list(pages.values()), position="hidden")
state.remember(None, pages)
state.follow()
picked = frame.sidebar()
asked = state.in_address(state.FINDING)
if asked is not None and page == pages[state.HOME] and picked is not None:
    st.switch_page(pages["findings"], query_params={state.RUN: picked, state.FINDING: asked})
unknown = state.unknown_run()
if unknown is not None and picked is not None:
    st.warning(
        f"The address asks for the run {plain(unknown)}, which is not in this folder. Below is another run.",
        icon=":material/link_off:",
    )
if picked is None:
    st.title("No run stores here", anchor=False)
    frame.empty(
        "Nothing to show yet",
        "The folder holds no run store.",
        "`diagnose run FOLDER -o runs/NAME.duckdb`, then `diagnose app runs`",
    )
    st.stop()
try:
    state.remember(data.open_run(picked), pages, page.url_path)
    page.run()
except DiagnoseError as error:
    reason = str(error).replace(f"{data.runs().root}/", "")  # where the folder lies is nobody's business in a browser
    st.error(plain(reason), title="This run cannot be shown", icon=":material/error:")
    st.caption("Choose another run at the left; `diagnose report STORE` prints the same reason.")
except Exception as error:
    logging.getLogger("diagnose.app").exception("a page failed")
    st.error(
        f"{type(error).__name__}; the lines above it in the server's log say where.",
        title="This page failed: a bug in diagnose",
        icon=":material/bug_report:",
    )
