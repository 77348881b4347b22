"""Small tables of matched communication, written by hand or drawn."""

from __future__ import annotations

import numpy as np
import polars as pl

CALL_SCHEMA = {
    "rank": pl.Int32, "call": pl.Int64, "step": pl.Int64, "stream": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, "collective": pl.String,
    "group_name": pl.String, "group_desc": pl.String, "group_ranks": pl.List(pl.Int32), "group_size": pl.Int32, "seq": pl.Int64, "is_p2p": pl.Boolean,
    "peer": pl.Int32, "dtype": pl.String, "in_elems": pl.Int64, "out_elems": pl.Int64, "msg_bytes": pl.Int64, "exposed_ns": pl.Int64,
    "exposed_from_ns": pl.List(pl.Int64), "exposed_to_ns": pl.List(pl.Int64), "exposed_late_ns": pl.List(pl.Int64),
}  # fmt: skip


def calls(*rows: dict[str, object]) -> pl.DataFrame:
    """comm_call rows; what a row leaves out is an exposed all-reduce of 1 MB in step 0."""
    filled = []
    for number, row in enumerate(rows):
        base: dict[str, object] = {
            "call": number,
            "step": 0,
            "stream": 0,
            "dur_ns": 100,
            "collective": "all_reduce",
            "is_p2p": False,
            "dtype": "Float",
            "msg_bytes": 1_000_000,
        }
        one = base | row
        one.setdefault("exposed_ns", one["dur_ns"])
        one.setdefault("exposed_from_ns", [0])
        one.setdefault("exposed_to_ns", [one["dur_ns"]])
        filled.append(one)
    return pl.DataFrame(filled, schema=CALL_SCHEMA)


def job(
    ranks: int,
    steps: int,
    seed: int = 0,
    *,
    slow: int | None = None,
    factor: float = 1.3,
    offset_ns: dict[int, int] | None = None,
) -> pl.DataFrame:
    """Calls of a job with two all-reduces a step over all ranks: arrivals differ, ends agree to a few microseconds."""
    rng = np.random.default_rng(seed)
    rows = []
    clock = np.zeros(ranks)
    for number in range(2 * steps):
        work = 10e6 * (1 + 0.01 * rng.random(ranks))
        if slow is not None:
            work[slow] *= factor
        start = clock + work
        end = start.max() + 1e6 + 3_000 * rng.random(ranks)
        for rank in range(ranks):
            shift = (offset_ns or {}).get(rank, 0)
            rows.append({"rank": rank, "call": number, "step": number // 2, "seq": number, "group_name": "0", "group_size": ranks, "group_ranks": list(range(ranks)),
                         "start_ns": round(start[rank]) + shift, "dur_ns": round(end[rank] - start[rank])})  # fmt: skip
        clock = end
    return calls(*rows)
