"""Everything the pages read: cached by the store's fingerprint, aggregated in the store, never by a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import catalog
import streamlit as st
from catalog import Catalog, Run

from diagnose.config import Config, load_config
from diagnose.errors import StoreError
from diagnose.findings.evaluate import evaluate
from diagnose.findings.rules import RuleBook
from diagnose.report.assemble import assemble
from diagnose.report.document import encode
from diagnose.report.render import render
from diagnose.store.reader import Store

if TYPE_CHECKING:
    import polars as pl

    from diagnose.findings.evaluate import Evaluation
    from diagnose.model import Finding
    from diagnose.report.document import Document

QUERIES = Path(__file__).parent / "queries"
LISTING_TTL_S = 5
_ATTEMPTS = 3


@st.cache_resource(show_spinner=False)
def config() -> Config:
    """The configuration the server was started with."""
    import os

    named = os.environ.get(catalog.CONFIG_VARIABLE)
    return load_config(Path(named) if named else None)


@st.cache_resource(show_spinner=False)
def rules() -> RuleBook:
    """All rules with the configured thresholds."""
    return RuleBook(config().thresholds)


@st.cache_data(ttl=LISTING_TTL_S, show_spinner=False, max_entries=4)
def _listing(where: str) -> Catalog:
    return catalog.discover(Path(where))


def runs() -> Catalog:
    """The run stores of the root; a new file appears within seconds."""
    return _listing(str(catalog.root()))


def open_run(run_id: str) -> Run:
    """The run of an id as its file is now.

    Raises:
        StoreError: unknown id, or the file is gone.
    """
    return catalog.open_run(runs(), run_id)


@st.cache_resource(max_entries=16, show_spinner=False)
def _store(path: str, fingerprint: tuple[int, int, int]) -> Store:
    """One reader for all sessions; opened anew until the file stays the same while it is opened."""
    for _ in range(_ATTEMPTS):
        before = catalog.fingerprint(Path(path))
        store = Store(Path(path))
        if catalog.fingerprint(Path(path)) == before:
            return store
        store.close()
    raise StoreError(f"{Path(path).name} is being replaced all the time (asked for {fingerprint}); try again")


def store(run: Run) -> Store:
    """The reader of a run.

    Raises:
        StoreError: not a run store, damaged, or written by a newer version.
    """
    return _store(str(run.path), run.fingerprint)


def reader(path: str, fingerprint: tuple[int, int, int]) -> Store:
    """The reader of a file that a cache key names."""
    return _store(path, fingerprint)


def report_of(path: str, fingerprint: tuple[int, int, int]) -> Document:
    """The report of a file that a cache key names."""
    return _document(path, fingerprint)


@st.cache_resource(max_entries=64, show_spinner=False)
def _document(path: str, fingerprint: tuple[int, int, int]) -> Document:
    return assemble(_store(path, fingerprint), config(), rules(), evaluated=_evaluated(path, fingerprint))


@st.cache_resource(max_entries=64, show_spinner=False)
def _evaluated(path: str, fingerprint: tuple[int, int, int]) -> Evaluation:
    return evaluate(_store(path, fingerprint), config(), rules())


def findings_of(path: str, fingerprint: tuple[int, int, int]) -> tuple[Finding, ...]:
    """The findings of a file that a cache key names, as the comparison wants them."""
    return tuple(_evaluated(path, fingerprint).findings)


def document(run: Run) -> Document:
    """The report of a run: the same numbers as `diagnose report`."""
    return _document(str(run.path), run.fingerprint)


@st.cache_resource(show_spinner=False)
def _sql(name: str) -> str:
    return (QUERIES / f"{name}.sql").read_text(encoding="utf-8")


@st.cache_data(max_entries=512, show_spinner=False)
def _rows(
    path: str, fingerprint: tuple[int, int, int], name: str, parameters: tuple[tuple[str, Any], ...]
) -> pl.DataFrame:
    return _store(path, fingerprint).query(_sql(name), dict(parameters) or None)


def rows(run: Run, name: str, **parameters: object) -> pl.DataFrame:
    """The result of the named query in ``queries/``; parameters are bound."""
    return _rows(str(run.path), run.fingerprint, name, tuple(sorted(parameters.items())))


@st.cache_data(max_entries=64, show_spinner=False)
def _counts(path: str, fingerprint: tuple[int, int, int]) -> dict[str, int]:
    names = _store(path, fingerprint).query(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE database_name = 'run'"
    )
    return dict(names.iter_rows())


def count(run: Run, table: str) -> int:
    """Rows of a table, about."""
    return _counts(str(run.path), run.fingerprint).get(table, 0)


def has(run: Run, *tables: str) -> bool:
    """Whether all these tables have rows."""
    return all(count(run, table) > 0 for table in tables)


def report(run: Run, form: str) -> bytes:
    """The report as a file: html, json, md or junit."""
    found = document(run)
    if form == "json":
        return encode(found)
    return render(found, form, rules=rules(), app_address=config().app_address).encode()


def run_named(asked: str) -> str | None:
    """The id that a link means: an id, else the last part of one, else the name that the run was given."""
    listed = runs().runs
    if asked in listed:
        return asked
    tails = [run_id for run_id in listed if run_id.rsplit("/", 1)[-1] == asked]
    if len(tails) == 1:
        return tails[0]
    return next((run_id for run_id in listed if _name(run_id) == asked), None)


def _name(run_id: str) -> str | None:
    try:
        name = rows(open_run(run_id), "run_row").item(0, "name")
    except StoreError:
        return None
    return None if name is None else str(name)
