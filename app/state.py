"""Addresses and choices: page names, deep links, widgets whose value stands in the address."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import data
import streamlit as st
from catalog import is_replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from catalog import Run

T = TypeVar("T")


class PageInfo(NamedTuple):
    """One page: name in the address, title, icon, group in the menu."""

    name: str
    title: str
    icon: str
    group: str


PAGES = (
    PageInfo("overview", "Overview", ":material/summarize:", "This run"),
    PageInfo("findings", "Findings", ":material/report:", "This run"),
    PageInfo("steps", "Steps", ":material/stacked_bar_chart:", "This run"),
    PageInfo("ranks", "Ranks", ":material/grid_on:", "This run"),
    PageInfo("collectives", "Collectives", ":material/sync_alt:", "This run"),
    PageInfo("network", "Network", ":material/hub:", "This run"),
    PageInfo("nodes", "Nodes", ":material/dns:", "This run"),
    PageInfo("what_if", "What-if", ":material/tune:", "This run"),
    PageInfo("quality", "Data quality", ":material/fact_check:", "This run"),
    PageInfo("runs", "Runs", ":material/list:", "All runs"),
    PageInfo("compare", "Compare", ":material/compare_arrows:", "All runs"),
    PageInfo("scaling", "Scaling", ":material/trending_up:", "All runs"),
)
HOME = "overview"
MOST_OPTIONS = 250
"""Options of a list; of more numbers one is typed."""
RUN, FINDING, RANK, STEP, KERNEL, INSTANCE = "run", "finding", "rank", "step", "kernel", "instance"
_CURRENT, _PAGES, _PAGE, _GOTO, _WHOLE = "current_run", "page_objects", "page_shown", "goto", "whole_page"


def part(function: Callable[[], None]) -> Callable[[], None]:
    """A part of a page that its own widgets draw anew alone; the whole page follows when the store was replaced under it."""

    @st.fragment
    @functools.wraps(function)
    def drawn() -> None:
        if st.session_state.pop(_WHOLE, False) or is_replaced(current()):
            st.rerun()
        function()

    return drawn


def whole_page() -> None:
    """From a callback inside a part: what was chosen there concerns the other parts too."""
    st.session_state[_WHOLE] = True


def address(page: str, run_id: str, **params: object) -> str:
    """The address of a page relative to the app: what a person copies, and what reports link to."""
    path = "" if page == HOME else quote(page)
    return f"{path}?{urlencode({RUN: run_id, **{key: str(value) for key, value in params.items()}})}"


def remember(run: Run | None, pages: dict[str, Any], shown: str = "") -> None:
    """Keep what the pages of this run of the script need; ``shown`` is the page in the address."""
    st.session_state[_PAGE] = shown
    st.session_state[_CURRENT] = run
    st.session_state[_PAGES] = pages


def current() -> Run:
    """The run that was picked."""
    run: Run = st.session_state[_CURRENT]
    return run


def link(page: str, label: str, *, icon: str | None = None, run_id: str | None = None, **params: object) -> None:
    """A link to a page of this run (or of another), with the page's own parameters."""
    query = {RUN: run_id or current().id, **{key: str(value) for key, value in params.items()}}
    st.page_link(st.session_state[_PAGES][page], label=label, icon=icon, query_params=query)


def go(page: str, run_id: str, **params: object) -> None:
    """Ask for a page from a callback; the next run of the script follows."""
    st.session_state[_GOTO] = (page, {RUN: run_id, **{key: str(value) for key, value in params.items()}})


def follow() -> None:
    """Follow what a callback asked for."""
    asked = st.session_state.pop(_GOTO, None)
    if asked is not None:
        page, query = asked
        st.switch_page(st.session_state[_PAGES][page], query_params=query)


def key(*parts: object) -> str:
    """A widget key that belongs to this content of this run: a selection never outlives its data."""
    run: Run | None = st.session_state.get(_CURRENT)
    owner = () if run is None else (run.id, *run.fingerprint)
    return ":".join(str(part) for part in (*parts, *owner))


def in_address(param: str) -> str | None:
    """A parameter of the address as text."""
    value = st.query_params.get(param)
    return None if value in (None, "") else str(value)


def pick(
    label: str, options: Sequence[T], *, param: str, default: T | None = None, format_func: Callable[[Any], str] = str, help: str | None = None,  # noqa: A002 - Streamlit's name
    width: int | Literal["stretch"] = 420,
) -> T | None:  # fmt: skip
    """A select box whose value stands in the address; what is not among the options is ignored."""
    name = _pick_key(param)
    numbers = [option for option in options if isinstance(option, int)]
    typed = len(options) > MOST_OPTIONS and len(numbers) >= len(options) - 1
    _take_address(name, param, options, strict=not typed)
    if typed:
        return _number(label, options, numbers, name, param, default, help)  # type: ignore[return-value, arg-type]
    chosen: T | None = st.selectbox(
        label, options, index=list(options).index(default) if default in options else 0 if options else None,
        key=name, format_func=format_func, help=help, on_change=_write, args=(param, name), placeholder="none", width=width,
    )  # fmt: skip
    return chosen


def _number(
    label: str, options: Sequence[int | None], numbers: list[int], name: str, param: str, default: int | None, help: str | None  # noqa: A002
) -> int | None:  # fmt: skip
    """Many ranks or steps: a number is typed faster than found in a list, and a browser draws it faster."""
    first = default if default in numbers else None if None in options else numbers[0]
    st.session_state.setdefault(name, first)
    value = st.number_input(
        f"{label} ({min(numbers)} to {max(numbers)})", min(numbers), max(numbers), None, 1, key=name, help=help, on_change=_write, args=(param, name),
        placeholder="all" if None in options else "none", width=260,
    )  # fmt: skip
    if value is None:
        return first if None not in options else None
    if value in numbers:
        return value
    st.caption(f"There is no {label.lower()} {value} in this run.")
    return first


def _pick_key(param: str) -> str:
    """Pages keep their own choice: what was chosen on one must not be taken for what the address of another asks."""
    return key(param, "pick", st.session_state.get(_PAGE))


def choose(param: str, value: object) -> None:
    """Set a picked value from a callback (a click into a chart or a table) before the box is drawn again."""
    st.session_state[_pick_key(param)] = value
    _publish(param, value, _pick_key(param))


def _take_address(name: str, param: str, options: Sequence[Any], *, strict: bool) -> None:
    asked = in_address(param)
    seen = f"{name}:seen"
    if asked is not None and (name not in st.session_state or st.session_state.get(seen) != asked):
        st.session_state[seen] = asked
        match = next((option for option in options if str(option) == asked), None)
        if match is not None:
            st.session_state[name] = match
    if strict and name in st.session_state and st.session_state[name] not in options:
        del st.session_state[name]


def _write(param: str, name: str) -> None:
    _publish(param, st.session_state.get(name), name)


def _publish(param: str, value: object, name: str) -> None:
    st.session_state[f"{name}:seen"] = None if value is None else str(value)
    if value is None:
        st.query_params.pop(param, None)
    else:
        st.query_params[param] = str(value)


def pick_run() -> str | None:
    """The run picker of the side bar; the address decides when it names another run than before."""
    ids = list(data.runs().runs)
    asked = in_address(RUN)
    if asked is not None and asked != st.session_state.get("run_seen"):
        st.session_state["run_seen"] = asked
        st.session_state["run_picker"] = data.run_named(asked) or asked
    if st.session_state.get("run_picker") not in ids:
        unknown = st.session_state.pop("run_picker", None)
        if unknown is not None:
            st.session_state["run_unknown"] = unknown
    else:
        st.session_state.pop("run_unknown", None)
    if not ids:
        return None
    picked: str | None = st.selectbox(
        "Run", ids, key="run_picker", on_change=_run_changed, help="Every run store in the folder."
    )
    if (
        st.session_state.get("run_unknown") is None
        and in_address(RUN) is None
        and "run_seen" not in st.session_state
        and picked
    ):
        st.session_state["run_seen"] = picked
        st.query_params[RUN] = picked  # once a session, so that the first page can be shared and "back" still leaves
    return picked


def unknown_run() -> str | None:
    """The run that the address asked for and that is not here."""
    value: str | None = st.session_state.get("run_unknown")
    return value


def _run_changed() -> None:
    picked = st.session_state["run_picker"]
    st.session_state["run_seen"] = picked
    st.session_state.pop("run_unknown", None)
    st.query_params.from_dict({RUN: picked})


def has_run() -> bool:
    """Whether a run was picked and found."""
    return st.session_state.get(_CURRENT) is not None
