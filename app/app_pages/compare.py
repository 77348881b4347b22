"""Compare: this run beside another one of the folder: slower or not, where, which findings are new or gone."""

from __future__ import annotations

import charts
import compare_view
import data
import engines
import frame
import state
import streamlit as st
from text import plain

from diagnose.report.compare_tables import sheets

run = state.current()
document = frame.heading("Compare", "Is this run slower than an earlier one, and where?")
others = compare_view.others(run)
if not others:
    frame.empty(
        "Nothing to compare with",
        "There is only one run store here.",
        "`diagnose app FOLDER` with the stores of several runs",
    )
    st.stop()
base_id = state.pick(
    "Earlier run (base)",
    others,
    param="base",
    default=compare_view.likely_base(run, others),
    help="The run at the left is compared with this one.",
)
base = data.open_run(str(base_id))
before = data.document(base)
result = engines.compare(base, run)
with st.container(border=True):
    if result.report is None:
        st.subheader("These runs cannot be judged against each other", anchor=False)
        st.markdown("\n".join(f"- {plain(reason)}" for reason in result.reasons))
        st.caption("The numbers below stand side by side, without a verdict.")
    else:
        st.subheader(compare_view.KIND[result.report.outcome.change].capitalize(), anchor=False)
        st.markdown(plain(result.report.outcome.text))
        if result.report.attribution.text:
            st.markdown(plain(result.report.attribution.text))
        st.caption(plain(result.report.outcome.detail))

st.subheader("Parts of the median step", anchor=False)
both = compare_view.both(before, document, base.id, run.id)
if both.is_empty():
    frame.empty("No step time", "Neither run has a split step.")
else:
    st.altair_chart(
        charts.parts_across(both, sort=both.get_column("place").unique(maintain_order=True).to_list()),
        alt="Parts of the median step of both runs",
        key=state.key("both", base.id),
    )

st.subheader("Findings", anchor=False)
changed = compare_view.changes(before, document)
for title, found in changed.items():
    st.markdown(f"**{title}: {len(found)}**")
    for finding in found[: compare_view.MOST]:
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            frame.severity(finding.severity)
            st.markdown(f"{plain(finding.title)} `{finding.code}`", width="stretch")
            owner = base.id if title == compare_view.GONE else run.id
            state.link("findings", "Look", icon=":material/arrow_forward:", run_id=owner, finding=finding.fingerprint)

if result.report is not None:
    for number, sheet in enumerate(sheets(result.report, 60, 400)):
        if sheet.rows:
            st.subheader(sheet.title, anchor=False)
            st.dataframe(
                compare_view.cells(sheet),
                key=state.key("sheet", number, base.id),
                hide_index=True,
                alt=sheet.title,
                lazy=False,
                width="stretch",
            )
            if sheet.note:
                st.caption(plain(sheet.note))
    st.download_button(
        "Comparison as HTML",
        data=lambda: engines.compare_html(base, run),
        file_name="comparison.html",
        icon=":material/download:",
        on_click="ignore",
        key=state.key("html", base.id),
    )
