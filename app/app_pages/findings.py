"""Findings: filter, one in whole by its link, with evidence, actions, and where to look next."""

from __future__ import annotations

import findings_view
import frame
import state
import streamlit as st
from text import plain

from diagnose.model import SEVERITIES

run = state.current()
document = frame.heading("Findings", "What is wrong, what does it cost, what proves it, what to do?")
asked = state.in_address(state.FINDING)
chosen = findings_view.by_fingerprint(document, asked)
if asked and chosen is None:
    st.warning(
        f"The finding {plain(asked)} is not made any more by this run and these rules.", icon=":material/link_off:"
    )
if chosen is not None:
    frame.finding_card(chosen, findings_view.explained_by(document, chosen), whole=True)
    with st.container(horizontal=True):
        for page, words, params in findings_view.places(chosen):
            state.link(page, words, icon=":material/arrow_forward:", **params)
        state.link("findings", "All findings", icon=":material/list:")
    rule = findings_view.rule(chosen)
    if rule is not None:
        with st.expander("How this is judged"):
            st.markdown(plain(rule.meaning))
            for name, levels, why in findings_view.thresholds(rule):
                st.markdown(f"- **{plain(name)}**: {plain(levels)}. {plain(why)}")
    st.caption(f"Fingerprint `{chosen.fingerprint}`: the same problem has the same one in every run.")
    st.divider()


@state.part
def all_findings() -> None:
    """The findings that pass the filter."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        levels = st.pills("Severity", SEVERITIES, selection_mode="multi", default=SEVERITIES, key=state.key("levels"))
        cause = st.selectbox(
            "Cause",
            findings_view.causes(document),
            index=None,
            placeholder="all causes",
            key=state.key("cause"),
            width=260,
        )
        words = st.text_input("Contains", placeholder="rank, host, code, word", key=state.key("words"), width=260)
    shown = findings_view.filtered(document, levels, cause, words)
    st.caption(f"{len(shown)} of {len(document.findings)}, those that cost most first.")
    for finding in shown[: findings_view.MOST]:
        frame.finding_card(finding)
    if len(shown) > findings_view.MOST:
        st.caption(f"{len(shown) - findings_view.MOST} more: narrow the filter.")


if not document.findings:
    frame.empty(
        "No findings",
        "Nothing that was checked looks wrong.",
        "the questions under Overview, Not checked, name what would allow more checks",
    )
else:
    all_findings()
