"""Process groups by their members. Names are not identities: the same name may mean other ranks elsewhere."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KeyedBy = tuple[int, str | None, str | None, tuple[int, ...] | None, int | None]


class GroupConfig(NamedTuple):
    """One entry of a rank's pg_config."""

    name: str
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None


class Resolved(NamedTuple):
    """Calls with ``group_id`` (null where nothing tells the group), and the groups."""

    calls: pl.DataFrame
    groups: pl.DataFrame


GROUP_SCHEMA = pl.Schema(
    {
    "group_id": pl.Int64(), "name": pl.String(), "description": pl.String(), "ranks": pl.List(pl.Int32()), "size": pl.Int32(),
    "nodes": pl.Int32(), "tier": pl.String(), "known_from": pl.String(),
    }
)  # fmt: skip


def group_id(members: Sequence[int]) -> int:
    """A stable number for a set of ranks."""
    return _group_id(tuple(members))


@lru_cache(maxsize=65_536)
def _group_id(members: tuple[int, ...]) -> int:
    text = ",".join(map(str, sorted(members)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest())


def resolve_groups(
    calls: pl.DataFrame,
    config: Mapping[int, Sequence[GroupConfig]],
    hosts: Mapping[int, str | None],
    world: Sequence[int],
) -> Resolved:
    """The group of every call: from its own member list, else pg_config by name, else name and size only.

    Calls that say nothing of their group belong to the only group there is, or stay open for inference.
    """
    combos = calls.select("rank", "group_name", "group_desc", "group_ranks", "group_size").unique()
    groups: dict[int, dict[str, object]] = {}
    ids: list[int | None] = []
    for rank, name, desc, ranks, size in combos.iter_rows():
        ids.append(_resolve(rank, name, desc, ranks, size, config, hosts, groups))
    combos = combos.with_columns(pl.Series("group_id", ids, dtype=pl.Int64))
    joined = calls.join(
        combos, on=["rank", "group_name", "group_desc", "group_ranks", "group_size"], how="left", nulls_equal=True
    )
    if joined.get_column("group_id").null_count() and len(world) > 1:
        only = _only_group(config, world)
        if only is not None:
            identifier = _register(groups, only, None, None, hosts, "only group")
            joined = joined.with_columns(pl.col("group_id").fill_null(identifier))
    return Resolved(joined, pl.DataFrame(list(groups.values()), schema=GROUP_SCHEMA).sort("group_id"))


def candidates(rank: int, config: Mapping[int, Sequence[GroupConfig]], world: Sequence[int]) -> list[tuple[int, ...]]:
    """Member lists a call of this rank may belong to, largest last."""
    known = {entry.ranks for entry in config.get(rank, ()) if entry.ranks is not None and len(entry.ranks) > 1}
    known.add(tuple(world))
    return sorted(known, key=lambda ranks: (len(ranks), ranks))


def group_row(
    members: Sequence[int], name: str | None, description: str | None, hosts: Mapping[int, str | None], known_from: str
) -> dict[str, object]:
    """A row of the process_group table."""
    places = [hosts.get(rank) for rank in members]
    nodes = len(set(places)) if None not in places else None
    return {
        "group_id": group_id(members), "name": name, "description": description, "ranks": sorted(members), "size": len(members),
        "nodes": nodes, "tier": None if nodes is None else "intra-node" if nodes == 1 else "inter-node", "known_from": known_from,
    }  # fmt: skip


def _resolve(
    rank: int, name: str | None, desc: str | None, ranks: list[int] | None, size: int | None,
    config: Mapping[int, Sequence[GroupConfig]], hosts: Mapping[int, str | None], groups: dict[int, dict[str, object]],
) -> int | None:  # fmt: skip
    if ranks and (size is None or len(ranks) == size):
        return _register(groups, tuple(ranks), name, desc, hosts, "args")
    entry = next((entry for entry in config.get(rank, ()) if name is not None and entry.name == name), None)
    if entry is not None and entry.ranks and (size is None or len(entry.ranks) == size):
        return _register(groups, entry.ranks, name, entry.description, hosts, "pg_config")
    if size == 1:
        return _register(groups, (rank,), name, desc, hosts, "args")
    if name is None and size is None:
        return None
    text = f"{name}|{desc}|{size}"
    identifier = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest())
    groups.setdefault(
        identifier,
        {
            "group_id": identifier,
            "name": name,
            "description": desc,
            "ranks": None,
            "size": size,
            "nodes": None,
            "tier": None,
            "known_from": "name",
        },
    )
    return identifier


def _register(
    groups: dict[int, dict[str, object]],
    members: Sequence[int],
    name: str | None,
    desc: str | None,
    hosts: Mapping[int, str | None],
    known_from: str,
) -> int:
    identifier = group_id(members)
    if identifier not in groups:
        groups[identifier] = group_row(members, name, desc, hosts, known_from)
    return identifier


def _only_group(config: Mapping[int, Sequence[GroupConfig]], world: Sequence[int]) -> tuple[int, ...] | None:
    """The world, when no rank lists a smaller group of more than one."""
    for entries in config.values():
        if any(entry.ranks is not None and 1 < len(entry.ranks) < len(world) for entry in entries):
            return None
    return tuple(world)
