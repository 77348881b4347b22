"""What every page shares: side bar, heading, findings as cards, tables, empty states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import data
import polars as pl
import state
import streamlit as st
from text import collect, in_units, label, plain
from theme import SEVERITY_COLOUR, SEVERITY_ICON

from diagnose.report import view
from diagnose.units import format_ns, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.model import Evidence
    from diagnose.report.document import Document, FindingEntry

FEW_ROWS = 8
WIDEST_PX = 420
"""Width of a column of long names; shorter ones get what they need, as far as the page allows."""


def sidebar() -> str | None:
    """The run picker and the menu; every link carries the run."""
    with st.sidebar:
        st.markdown("**diagnose** — why is this run slow?")
        picked = state.pick_run()
        if picked is not None:
            for group in dict.fromkeys(page.group for page in state.PAGES):
                st.caption(group)
                for page in state.PAGES:
                    if page.group == group:
                        state.link(page.name, page.title, icon=page.icon, run_id=picked)
    return picked


def heading(title: str, question: str) -> Document:
    """Title of a page, the question it answers, the run's facts; gives the report of the run."""
    run = state.current()
    document = data.document(run)
    st.title(title, anchor=False)
    facts = " · ".join((f"Run **{plain(document.run.name)}**", *(plain(fact) for fact in view.run_facts(document))))
    st.caption(f"{plain(question)}  \n{facts}")
    return document


def empty(title: str, why: str, needs: str = "") -> None:
    """Nothing to show: why, and what would change that."""
    st.info(f"{why}\n\n{f'To see it: {needs}' if needs else ''}", title=title, icon=":material/inbox:")


def missing(document: Document, *words: str) -> bool:
    """What the run's data could not answer about a topic, with how to collect it; False when there is nothing to say."""
    found = [
        item for item in document.not_checked if any(word in f"{item.question} {item.why}".lower() for word in words)
    ]
    for item in found:
        empty(plain(item.question), plain(item.why), collect(item.collect))
    return bool(found)


def severity(level: str) -> None:
    """The severity as icon, word and colour."""
    st.badge(level.upper(), icon=SEVERITY_ICON[level], color=SEVERITY_COLOUR[level])  # type: ignore[arg-type]


def finding_card(finding: FindingEntry, explained: Sequence[FindingEntry] = (), *, whole: bool = False) -> None:
    """One finding: what, how loud, who, price; in whole also evidence, actions and where to look."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            severity(finding.severity)
            st.markdown(f"**{plain(finding.title)}** &nbsp; `{finding.code}`", width="stretch")
            if not whole:
                state.link(
                    "findings", "Evidence and actions", icon=":material/arrow_forward:", finding=finding.fingerprint
                )
        st.markdown(plain(finding.message))
        pieces = [
            view.subject(finding),
            f"costs {price}" if (price := view.cost(finding.impact)) else "",
            f"confidence {format_ratio(finding.confidence)}",
        ]
        st.caption(plain(" · ".join(piece for piece in pieces if piece)))
        if whole:
            _details(finding)
        if explained:
            st.caption(plain("Explains: " + "; ".join(f"{item.title} [{item.code}]" for item in explained)))


def _details(finding: FindingEntry) -> None:
    if finding.evidence:
        st.markdown("**Evidence**")
        st.markdown("\n".join(f"- {plain(_sourced(item))}" for item in finding.evidence))
    if finding.actions:
        st.markdown("**What to do**")
        st.markdown("\n".join(f"1. {plain(action)}" for action in finding.actions))


def table(
    rows: pl.DataFrame, *, key: str, alt: str, on_pick: Callable[..., None] | None = None, hide: Sequence[str] = (), height: int | Literal["content"] | None = None,
    labels: dict[str, str] | None = None,
) -> None:  # fmt: skip
    """A table in the units of its labels; with ``on_pick`` a click on a row calls it with the widget's key."""
    shown = _without_empty(in_units(rows.drop(hide, strict=False)))
    columns = {name: _column(name, shown, (labels or {}).get(name)) for name in shown.columns}
    extra: dict[str, Any] = {"height": "content" if len(shown) < FEW_ROWS else height or "auto"}
    if on_pick is not None:
        extra |= {"on_select": lambda: on_pick(key), "selection_mode": "single-row"}
    st.dataframe(
        shown,
        key=key,
        hide_index=True,
        column_config=columns,
        alt=alt,
        lazy=False,
        width="stretch",
        placeholder="–",
        **extra,
    )


def _without_empty(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns that say nothing in any row only push the others out of sight."""
    silent = [
        name for name in rows.columns
        if (column := rows.get_column(name)).is_null().all() or (column.dtype == pl.String and (column.fill_null("") == "").all())
    ]  # fmt: skip
    return rows.drop(silent) if len(silent) < len(rows.columns) else rows


def picked_row(key: str) -> int | None:
    """Position of the selected row of a table, None without one."""
    chosen = st.session_state.get(key)
    rows: list[int] = chosen["selection"]["rows"] if chosen else []
    return rows[0] if rows else None


def _column(name: str, rows: pl.DataFrame, words: str | None) -> Any:  # noqa: ANN401 - streamlit's column types
    title, kind = words or label(name), rows.schema[name]
    if name.endswith("_bytes") or name == "bytes":
        return st.column_config.NumberColumn(title, format="bytes", help="decimal prefixes")
    if kind == pl.List:
        return st.column_config.LineChartColumn(title, width="medium")
    if kind.is_float():
        return st.column_config.NumberColumn(
            title, format="%.1f" if name.endswith("_ratio") else "%.3f" if name.endswith("_ns") else "%.4g"
        )
    if kind.is_integer():
        return st.column_config.NumberColumn(title, format="%d")
    longest = rows.get_column(name).str.len_chars().max() if kind == pl.String else None
    if longest is None:
        return st.column_config.Column(title)
    return st.column_config.Column(title, width=min(WIDEST_PX, max(60, 7 * max(len(title) + 1, int(longest)) + 14)))  # type: ignore[call-overload]


def facts(items: dict[str, str | None]) -> None:
    """Key numbers in a row that wraps, those that are known; long values are not cut."""
    with st.container(horizontal=True):
        for name, value in items.items():
            if value is None:
                continue
            with st.container(border=True, width="content"):
                st.caption(name)
                st.markdown(f"**{plain(value)}**")


def duration(value: float | None) -> str:
    """A time, or what is said when it is not known."""
    return "not known" if value is None else format_ns(value)


def known_duration(value: float | None) -> str | None:
    """A time where it is known."""
    return None if value is None else format_ns(value)


def _sourced(item: Evidence) -> str:
    text = view.evidence_text(item)
    return f"{text} — {item.source}" if item.source else text
