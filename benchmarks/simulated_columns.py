"""Events of simulated slots as columns of each rank's trace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diagnose.store.rank_trace import NO_CORRELATION, Calls


class Part(NamedTuple):
    """One kind of event of one slot: a value a rank, or one for all."""

    rank: np.ndarray
    start: np.ndarray
    end: np.ndarray
    fields: dict[str, object]


def calls_of(host: dict[str, np.ndarray], kind: int) -> Calls:
    mine = host["kind"] == kind
    return Calls(
        host["start"][mine], (host["end"] - host["start"])[mine], host["name"][mine].astype(np.int32), host["thread"][mine],
        np.where(host["ref"][mine] < 0, NO_CORRELATION, host["ref"][mine]),
    )  # fmt: skip


def columns_of(parts: list[Part], ranks: int) -> list[dict[str, np.ndarray]]:
    """Columns of each rank, ordered by start, longer first."""
    rank = np.concatenate([part.rank for part in parts])
    columns = {
        "start": np.concatenate([part.start for part in parts]),
        "end": np.concatenate([part.end for part in parts]),
    }
    for name in parts[0].fields:
        columns[name] = np.concatenate(
            [np.broadcast_to(np.asarray(part.fields[name], np.int64), part.rank.shape) for part in parts]
        )
    order = np.lexsort((-columns["end"], columns["start"], rank))
    bounds = np.searchsorted(rank[order], np.arange(ranks + 1))
    columns = {name: values[order] for name, values in columns.items()}
    return [{name: values[bounds[one] : bounds[one + 1]] for name, values in columns.items()} for one in range(ranks)]
