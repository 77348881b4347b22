"""Rows of other writers in Chrome format: Ascend's ``trace_view.json`` names its kinds by process, not category."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from diagnose.comm_names import is_comm_kernel
from diagnose.ingest.kineto.events import FullArgs
from diagnose.store.rank_trace import COMM, COMPUTE, MEMCPY

if TYPE_CHECKING:
    from diagnose.ingest.kineto.decode import Decoder

_HARDWARE = ("Ascend Hardware",)
_RUNTIME = ("CANN",)
_PYTHON = ("Python",)
_WAITS = ("EVENT_WAIT", "Notify_Wait", "NOTIFY_WAIT", "EVENT_RECORD", "NOTIFY_RECORD")


def place_uncategorised(decoder: Decoder) -> int:
    """Sort events without category by the name of their process; returns how many found a place.

    The derived rows of the "Overlap Analysis" process are an answer, not work, and are left out.
    """
    rows = decoder.uncategorised
    device, runtime, python = (
        [row for row in rows if decoder.process_names.get(row.pid) in names] for names in (_HARDWARE, _RUNTIME, _PYTHON)
    )
    device = [row for row in device if not row.name.upper().startswith(tuple(wait.upper() for wait in _WAITS))]
    if device:
        decoder.activities.add(
            np.array([row.start_ns for row in device], np.int64),
            np.array([row.dur_ns for row in device], np.int64),
            [
                decoder.rows.activity(row.name, _class(row.name), row.args or FullArgs(), 0, row.thread)
                for row in device
            ],
        )
    for chosen, columns in ((runtime, decoder.runtime), (python, decoder.operators)):
        if chosen:
            columns.add(
                np.array([row.start_ns for row in chosen], np.int64),
                np.array([row.dur_ns for row in chosen], np.int64),
                [decoder.names[row.name] for row in chosen],
                [row.thread for row in chosen],
                None,
            )
    rows.clear()
    return len(device) + len(runtime) + len(python)


def _class(name: str) -> int:
    if is_comm_kernel(name):
        return COMM
    return MEMCPY if name.upper().startswith("MEMCPY") else COMPUTE
