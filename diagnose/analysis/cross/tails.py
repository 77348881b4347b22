"""Whose groups have the slow outliers: retransmissions on one port hit every group that holds it, now and then.

An instance is an outlier when it takes twice the median of its own group and size. A candidate explains them when
groups with it have many and groups without it few; the likelihood of two rates against one says how sure that is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.analysis.cross.suspects import SCHEMA, candidates_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_OUTLIER = 2.0
_MIN_HITS = 4
_RATE_RATIO = 4.0
_MIN_EVIDENCE = 6.0
"""Log-likelihood ratio: about three and a half standard deviations, enough for some hundred candidates."""

_NEAR = 2.0


def tail_suspects(instances: pl.DataFrame, places: pl.DataFrame, hosts: Mapping[int, str | None]) -> pl.DataFrame:
    """Candidates for the outliers with their evidence; empty when these are spread over all groups.

    Args:
        instances: whole inter-node collectives with place, collective, msg_bytes, transfer_ns.
        places: rows (place, ranks).
        hosts: host by rank.
    """
    empty = pl.DataFrame(schema=SCHEMA)
    key = ["place", "collective", "msg_bytes"]
    judged = instances.filter(pl.col("transfer_ns") > 0).with_columns(
        pl.col("transfer_ns").median().over(key).alias("usual"), pl.len().over(key).alias("count")
    ).filter(pl.col("count") >= 5)  # fmt: skip
    groups = judged.group_by("place").agg(
        (pl.col("transfer_ns") > _OUTLIER * pl.col("usual")).sum().cast(pl.Int64).alias("hits"),
        pl.len().cast(pl.Int64).alias("trials"),
    )
    groups = groups.sort("place")
    hits, trials = groups.get_column("hits").to_numpy(), groups.get_column("trials").to_numpy()
    if len(groups) < 2 or hits.sum() < _MIN_HITS:
        return empty
    ranks = dict(places.select("place", "ranks").iter_rows())
    members = [frozenset(ranks[place]) for place in groups.get_column("place").to_list()]
    candidates = candidates_of(hosts)
    found = []
    for item in candidates:
        mine = set(item.ranks)
        holds = np.array([bool(group & mine) and not group <= mine for group in members])
        if not holds.any() or holds.all():
            continue
        inside, outside = _rate(hits[holds], trials[holds]), _rate(hits[~holds], trials[~holds])
        if hits[holds].sum() >= _MIN_HITS and inside > _RATE_RATIO * outside:
            gain = _likelihood(hits[holds], trials[holds]) + _likelihood(hits[~holds], trials[~holds])
            found.append((gain - _likelihood(hits, trials), item))
    best = max((evidence for evidence, _ in found), default=0.0)
    if best < _MIN_EVIDENCE:
        return empty
    near = [(evidence, item) for evidence, item in found if evidence > best - _NEAR]
    hostwide = {item.host for _, item in near if item.kind == "node"}
    near = [(evidence, item) for evidence, item in near if item.kind == "node" or item.host not in hostwide]
    ratio = judged.get_column("transfer_ns") / judged.get_column("usual")
    late = ratio.filter(ratio > _OUTLIER)
    usual = float(np.median(late.to_numpy())) if len(late) else 1.0
    return pl.DataFrame(
        [
            {"kind": f"{item.kind} tail", "name": item.name, "host": item.host, "ranks": list(item.ranks), "score": evidence, "slowdown_ratio": usual - 1,
             "ambiguous": len(near) > 1, "tier": "inter-node"}
            for evidence, item in near
        ],
        schema=SCHEMA,
    )  # fmt: skip


def _rate(hits: np.ndarray, trials: np.ndarray) -> float:
    return float(hits.sum()) / max(float(trials.sum()), 1.0)


def _likelihood(hits: np.ndarray, trials: np.ndarray) -> float:
    """Log-likelihood of these hits at their common rate."""
    rate = _rate(hits, trials)
    yes, no = float(hits.sum()), float((trials - hits).sum())
    return (yes * math.log(rate) if yes else 0.0) + (no * math.log1p(-rate) if no and rate < 1 else 0.0)
