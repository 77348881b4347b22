"""algbw and busbw as nccl-tests defines them (doc/PERFORMANCE.md): GB = 10^9 bytes, busbw = algbw x factor(n).

S is the whole message: per-rank bytes for all-reduce, broadcast, reduce and send/recv; n times the shard for
all-gather and reduce-scatter; n times the per-peer part for all-to-all. For uneven all-to-all, nccl-tests takes the
largest total that one rank sends or receives, its own part included; PARAM leaves the own part out and uses no factor.
"""

from __future__ import annotations

import polars as pl

_ROUND_TRIP = ("all_reduce",)
_ONE_WAY = ("all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "gather", "scatter")


def busbw_factor(collective: pl.Expr, size: pl.Expr) -> pl.Expr:
    """The factor by kind and members; 1 for broadcast, reduce and point to point."""
    share = (size - 1) / size
    return (
        pl.when(collective.is_in(list(_ROUND_TRIP)))
        .then(2 * share)
        .when(collective.is_in(list(_ONE_WAY)))
        .then(share)
        .otherwise(1.0)
    )


def algbw(size_bytes: float, dur_ns: float) -> float:
    """Bytes per second."""
    return size_bytes / dur_ns * 1e9


def factor(collective: str, members: int) -> float:
    """The factor as a number."""
    share = (members - 1) / members
    return 2 * share if collective in _ROUND_TRIP else share if collective in _ONE_WAY else 1.0


def alltoallv_bytes(sent: list[list[int]]) -> int:
    """S of an uneven all-to-all from the bytes each rank sends to each: nccl-tests' convention."""
    totals_sent = [sum(row) for row in sent]
    totals_received = [sum(column) for column in zip(*sent, strict=True)]
    return int(max([*totals_sent, *totals_received]))


def param_alltoallv_bytes(sent: list[list[int]], rank: int) -> int:
    """PARAM's bytes of one rank: the larger of sent and received, the rank's own part left out."""
    out = sum(sent[rank]) - sent[rank][rank]
    received = sum(row[rank] for row in sent) - sent[rank][rank]
    return max(out, received)
