"""Which ranks do the same work: the pipeline stage of each rank, from who sends to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence


def pipeline_stages(calls: pl.DataFrame, world: Sequence[int]) -> dict[int, int]:
    """Stage of every rank; all 0 without a pipeline.

    Ranks connected by point-to-point traffic form one pipeline; its ranks in order are its stages, as frameworks lay
    them out. Pipelines of unequal length have no common stages.

    Args:
        calls: comm_call rows with rank, peer, is_p2p.
        world: ranks with traces.
    """
    edges = (
        calls.filter(pl.col("is_p2p") & pl.col("peer").is_not_null() & (pl.col("rank") >= 0))
        .select("rank", "peer")
        .unique()
    )
    parent = {rank: rank for rank in world}

    def root(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    for rank, peer in edges.iter_rows():
        if rank in parent and peer in parent and rank != peer:
            parent[root(rank)] = root(peer)
    pipelines: dict[int, list[int]] = {}
    for rank in sorted(world):
        pipelines.setdefault(root(rank), []).append(rank)
    lengths = {len(ranks) for ranks in pipelines.values()}
    if len(lengths) != 1 or lengths == {1}:
        return dict.fromkeys(world, 0)
    return {rank: stage for ranks in pipelines.values() for stage, rank in enumerate(ranks)}
