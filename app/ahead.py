"""Reads the newest runs in the background after the start, so that lists and comparisons of runs need not wait."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import catalog
import data
import engines

from diagnose.errors import DiagnoseError

if TYPE_CHECKING:
    from catalog import Catalog, Run

MOST_RUNS = 12
"""Below the number of stores that are kept open."""
PAUSE_S = 1.0
"""Before each run: whoever waits for a page comes first. A lower priority would not do, since all threads share one lock."""


def start(listed: Catalog) -> threading.Thread:
    """Begin with the newest file; the thread ends by itself, and with the server."""
    thread = threading.Thread(target=_read, args=(_newest(listed),), name="read ahead", daemon=True)
    thread.start()
    return thread


def _newest(listed: Catalog) -> list[Run]:
    runs = []
    for name in listed.runs:
        try:
            runs.append(catalog.open_run(listed, name))
        except DiagnoseError:
            continue  # told on the Runs page
    return sorted(runs, key=lambda run: -run.fingerprint[1])[:MOST_RUNS]


def _read(runs: list[Run]) -> None:
    for run in runs:
        time.sleep(PAUSE_S)
        try:
            data.report_of(str(run.path), run.fingerprint)
            engines.facts_of(run.id, str(run.path), run.fingerprint)
        except DiagnoseError as error:
            logging.getLogger("diagnose.app").info("%s cannot be read ahead: %s", run.id, error)
