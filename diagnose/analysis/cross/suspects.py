"""Which host or rank makes its groups slow: tomography over groups that cross.

A ring or tree runs at its slowest member, so every group with a slow element is slow. Scores add the robust z of the
groups that hold a candidate, healthy ones voting against it; the best is taken, its groups set aside, and so on. What
explains the same groups equally well is the ambiguity set. Source: algorithms, localising a slow link or NIC.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLIP = 8.0
_MIN_SCORE = 4.0
_AMBIGUOUS = 0.75
_MIN_EFFECT = 0.10
_FLOOR = 0.03
_MAX_SUSPECTS = 4
_MANY_GROUPS = 8
"""From here on the groups themselves show how much healthy ones differ; fewer are measured against their own noise."""

_UNEVEN = ("all_to_allv", "gather", "scatter", "send_recv", "coalesced", "unknown")
"""Each rank moves its own amount, so that groups differ by their work."""

_HEALTHY = 2.0
"""Groups less than two standard deviations above the fast ones vote against their members."""

SCHEMA = pl.Schema(
    {
    "kind": pl.String(), "name": pl.String(), "host": pl.String(), "ranks": pl.List(pl.Int32()), "score": pl.Float64(), "slowdown_ratio": pl.Float64(),
    "ambiguous": pl.Boolean(), "tier": pl.String(),
    }
)  # fmt: skip


class Candidate(NamedTuple):
    """A host, or a rank on a host that has several."""

    kind: str
    name: str
    host: str | None
    ranks: tuple[int, ...]


def find_suspects(instances: pl.DataFrame, places: pl.DataFrame, hosts: Mapping[int, str | None]) -> pl.DataFrame:
    """Suspects with scores; empty where no two comparable groups differ. Groups of different tiers are never compared.

    Args:
        instances: whole collectives with place, tier, collective, members, msg_bytes, transfer_ns.
        places: rows (place, ranks).
        hosts: host by rank.
    """
    even = instances.filter(~pl.col("collective").is_in(list(_UNEVEN)))
    inside = even.filter(pl.col("tier") == "intra-node")
    across = even.filter(pl.col("tier").is_not_null() & (pl.col("tier") != "intra-node"))
    nodes = [item for item in candidates_of(hosts) if item.kind == "node"]
    ranks = dict(places.select("place", "ranks").iter_rows())
    return pl.concat(
        [_suspects(across, candidates_of(hosts), ranks, "inter-node"), _suspects(inside, nodes, ranks, "intra-node")]
    )


def _suspects(
    instances: pl.DataFrame, candidates: list[Candidate], ranks: Mapping[int, list[int]], tier: str
) -> pl.DataFrame:
    groups = _groups(instances)
    if groups.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    members = [frozenset(ranks[place]) for place in groups.get_column("place").to_list()]
    z = np.clip(groups.get_column("z").to_numpy(), -_CLIP, _CLIP)
    effect = groups.get_column("effect").to_numpy()
    holds = _holds(candidates, members, inside=tier == "intra-node")
    return _greedy(candidates, holds, z, effect).with_columns(pl.lit(tier).alias("tier")).select(list(SCHEMA))


def _holds(
    candidates: list[Candidate], members: list[frozenset[int]], *, inside: bool
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """[candidate, group]: groups that cross the candidate's border; for links inside a node, groups within it."""
    place = {rank: [] for item in candidates for rank in item.ranks}  # type: dict[int, list[int]]
    for number, item in enumerate(candidates):
        for rank in item.ranks:
            place[rank].append(number)
    holds = np.zeros((len(candidates), len(members)), bool)
    for column, group in enumerate(members):
        counts: dict[int, int] = {}
        for rank in group:
            for number in place.get(rank, ()):
                counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            holds[number, column] = (count == len(group)) == inside
    return holds


def world_suspects(hosts: Sequence[str]) -> pl.DataFrame:
    """Every host, when one group holds them all: nothing tells them apart."""
    return pl.DataFrame(
        [
            {
                "kind": "node",
                "name": host,
                "host": host,
                "ranks": [],
                "score": 0.0,
                "slowdown_ratio": None,
                "ambiguous": True,
                "tier": "inter-node",
            }
            for host in hosts
        ],
        schema=SCHEMA,
    )


def _groups(instances: pl.DataFrame) -> pl.DataFrame:
    """One row a (group, kind, size): log transfer against the class, in robust standard deviations."""
    per = (
        instances.filter(pl.col("transfer_ns") > 0)
        .group_by("place", "tier", "collective", "members", "msg_bytes")
        .agg(pl.col("transfer_ns").log().median().alias("y"), pl.len().alias("count"), _noise().alias("noise"))
    )
    shape = ["tier", "collective_class", "members", "msg_bytes"]
    per = per.with_columns(pl.col("collective").replace({"send": "p2p", "recv": "p2p"}).alias("collective_class"))
    # With a slow element in half of the groups the median is slow too: the fast quarter is what the class can do.
    per = per.with_columns(
        pl.col("y").median().over(shape).alias("middle"), pl.col("y").quantile(0.25, interpolation="lower").over(shape).alias("fast"),
        pl.len().over(shape).alias("groups"), pl.col("noise").median().over(shape).alias("noise"),
    ).filter(pl.col("groups") >= 2)  # fmt: skip
    per = per.with_columns((pl.col("y") - pl.col("fast")).alias("effect"))
    among = 1.4826 * pl.col("effect").filter(pl.col("y") <= pl.col("middle")).median().over(shape)
    spread = pl.when(pl.col("groups") >= _MANY_GROUPS).then(among).otherwise(pl.col("noise"))
    z = pl.col("effect") / pl.max_horizontal(spread, pl.lit(_FLOOR)) - _HEALTHY
    return per.with_columns(z.alias("z")).sort("collective", "members", "msg_bytes", "y")


def _noise() -> pl.Expr:
    """Standard error of a group's median log transfer."""
    y = pl.col("transfer_ns").log()
    return 1.4826 * 1.2533 * (y - y.median()).abs().median() / pl.len().sqrt()


def candidates_of(hosts: Mapping[int, str | None]) -> list[Candidate]:
    """Every host, and every rank of hosts with several."""
    by_host: dict[str, list[int]] = {}
    for rank, host in sorted(hosts.items()):
        if host is not None:
            by_host.setdefault(host, []).append(rank)
    found = [Candidate("node", host, host, tuple(ranks)) for host, ranks in by_host.items()]
    found += [
        Candidate("rank", f"rank {rank}", host, (rank,))
        for host, ranks in by_host.items()
        if len(ranks) > 1
        for rank in ranks
    ]
    return found


def _greedy(
    candidates: list[Candidate],
    holds: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    z: np.ndarray[tuple[int], np.dtype[np.float64]],
    effect: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> pl.DataFrame:
    rows = []
    left = np.ones(len(z), bool)
    taken: set[int] = set()
    for _ in range(_MAX_SUSPECTS):
        score = np.array(
            [_score(holds[place] & left, z) if place not in taken else -math.inf for place in range(len(candidates))]
        )
        best = float(score.max(initial=-math.inf))
        if best < _MIN_SCORE:
            break
        equal = [place for place in np.flatnonzero(score >= _AMBIGUOUS * best) if (holds[place] & left).any()]
        top = int(np.argmax(score))
        slow = float(np.median(effect[holds[top] & left]))
        if slow < math.log1p(_MIN_EFFECT):
            break
        # A host and its only affected rank say the same: the host stands for both unless the rank explains more.
        equal = [
            place
            for place in equal
            if not _part_of(candidates[place], [candidates[other] for other in equal if other != place])
        ]
        for place in equal:
            item = candidates[place]
            rows.append(
                {
                    "kind": item.kind,
                    "name": item.name,
                    "host": item.host,
                    "ranks": list(item.ranks),
                    "score": float(score[place]),
                    "slowdown_ratio": math.expm1(slow),
                    "ambiguous": len(equal) > 1,
                }
            )
            taken.add(int(place))
        left &= ~holds[top]
        if not left.any():
            break
    return pl.DataFrame(rows, schema={name: kind for name, kind in SCHEMA.items() if name != "tier"})


def _score(
    chosen: np.ndarray[tuple[int], np.dtype[np.bool_]], z: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> float:
    count = int(chosen.sum())
    return float(z[chosen].sum()) / math.sqrt(count) if count else -math.inf


def _part_of(item: Candidate, others: list[Candidate]) -> bool:
    return item.kind == "rank" and any(other.kind == "node" and other.host == item.host for other in others)
