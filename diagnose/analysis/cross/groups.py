"""Process groups by their members. Names are not identities: the same name may mean other ranks elsewhere."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KeyedBy = tuple[int, str | None, str | None, tuple[int, ...] | None, int | None]


COMBO = ["rank", "group_name", "group_desc", "group_ranks", "group_size"]
"""What a call says of its group."""


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
    return _number(",".join(map(str, sorted(members))))


def _number(text: str) -> int:
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
    combos, groups = resolve_combos(calls.select(COMBO).unique(), config, hosts, world)
    return Resolved(calls.join(combos, on=COMBO, how="left", nulls_equal=True), groups)


def resolve_combos(
    combos: pl.DataFrame,
    config: Mapping[int, Sequence[GroupConfig]],
    hosts: Mapping[int, str | None],
    world: Sequence[int],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What calls say of their groups (COMBO), with ``group_id``; and the groups."""
    groups = _Known(hosts)
    ids = [
        _resolve(rank, name, desc, ranks, size, config, groups)
        for rank, name, desc, ranks, size in combos.select(COMBO).iter_rows()
    ]
    if None in ids and len(world) > 1:
        only = _only_group(config, world)
        if only is not None:
            identifier = groups.add(only, None, None, "only group")
            ids = [identifier if one is None else one for one in ids]
    table = pl.DataFrame(list(groups.rows.values()), schema=GROUP_SCHEMA).sort("group_id")
    return combos.with_columns(pl.Series("group_id", ids, dtype=pl.Int64)), table


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


class _Known:
    """Groups found so far. Ranks share the member lists of their configuration, so each is hashed once."""

    def __init__(self, hosts: Mapping[int, str | None]) -> None:
        self.rows: dict[int, dict[str, object]] = {}
        self._hosts = hosts
        self._shared: dict[int, tuple[Sequence[int], int]] = {}

    def add(self, members: Sequence[int], name: str | None, desc: str | None, known_from: str) -> int:
        """The number of this rank set."""
        held = self._shared.get(id(members))
        if held is not None:
            return held[1]
        identifier = group_id(members)
        if identifier not in self.rows:
            self.rows[identifier] = group_row(members, name, desc, self._hosts, known_from)
        if known_from == "pg_config":
            self._shared[id(members)] = (members, identifier)  # held, so that no other list gets its address
        return identifier

    def add_unlisted(self, name: str | None, desc: str | None, size: int | None) -> int:
        """The number of a group of which only this is known."""
        identifier = _number(f"{name}|{desc}|{size}")
        row = dict.fromkeys(GROUP_SCHEMA, None) | {"group_id": identifier, "name": name, "description": desc}
        self.rows.setdefault(identifier, row | {"size": size, "known_from": "name"})
        return identifier


def _resolve(
    rank: int, name: str | None, desc: str | None, ranks: list[int] | None, size: int | None,
    config: Mapping[int, Sequence[GroupConfig]], groups: _Known,
) -> int | None:  # fmt: skip
    if ranks and (size is None or len(ranks) == size):
        return groups.add(tuple(ranks), name, desc, "args")
    entry = next((entry for entry in config.get(rank, ()) if name is not None and entry.name == name), None)
    if entry is not None and entry.ranks and (size is None or len(entry.ranks) == size):
        return groups.add(entry.ranks, name, entry.description, "pg_config")
    if size == 1:
        return groups.add((rank,), name, desc, "args")
    if name is None and size is None:
        return None
    return groups.add_unlisted(name, desc, size)


def _only_group(config: Mapping[int, Sequence[GroupConfig]], world: Sequence[int]) -> tuple[int, ...] | None:
    """The world, when no rank lists a smaller group of more than one."""
    for entries in config.values():
        if any(entry.ranks is not None and 1 < len(entry.ranks) < len(world) for entry in entries):
            return None
    return tuple(world)
