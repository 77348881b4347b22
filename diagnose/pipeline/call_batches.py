"""All calls of a run in batches of whole groups: read by rank, grouped, and put on disk when they are more than memory should hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.exposed import mark_handshakes
from diagnose.analysis.cross.groups import COMBO, GroupConfig, resolve_combos
from diagnose.pipeline.overlap import overlapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from diagnose.store.writer import StoreWriter

PART_ROWS = 2_000_000
"""Calls worked on at a time: some hundred megabytes."""

HELD_ROWS = 24_000_000
"""More calls than this wait on disk for their turn: a hundred bytes each."""

_NUMBERS = (
    "rank, call, step, start_ns, dur_ns, collective, group_name, group_desc, group_ranks, group_size, seq, is_p2p, peer, dtype, "
    "out_elems, msg_bytes"
)
_COMBOS = (
    f"SELECT {', '.join(COMBO)}, count(*) AS calls, count(seq) AS numbered, bool_or(is_p2p) AS p2p, min(seq) AS first, max(seq) AS last "
    "FROM comm_call GROUP BY ALL ORDER BY ALL"
)


class Who(NamedTuple):
    """Places and groups of the ranks."""

    world: Sequence[int]
    hosts: dict[int, str | None]
    clocks: dict[int, str]
    config: dict[int, list[GroupConfig]]


class Part(NamedTuple):
    """Ranks from ``low`` to ``high``; their calls, in order of rank and call, are the rows ``first`` to ``until`` of all."""

    low: int
    high: int
    first: int
    until: int

    @property
    def where(self) -> str:
        """The end of a statement that reads its rows."""
        return f"WHERE rank BETWEEN {self.low} AND {self.high} ORDER BY rank"


def parts_of(writer: StoreWriter) -> Iterator[Part]:
    """Ranges of ranks with about PART_ROWS calls each; one range holds ranks without any call."""
    counts = writer.query("SELECT rank, count(*) AS calls FROM comm_call GROUP BY rank ORDER BY rank")
    if counts.is_empty():
        yield Part(-(2**31), 2**31 - 1, 0, 0)
        return
    ranks, total = counts.get_column("rank").to_numpy(), counts.get_column("calls").cum_sum().to_numpy()
    place = np.flatnonzero(np.diff(total // PART_ROWS) > 0)
    lows, firsts = [-(2**31), *ranks[place + 1].tolist()], [0, *total[place].tolist()]
    highs, untils = [*(low - 1 for low in lows[1:]), 2**31 - 1], [*firsts[1:], int(total[-1])]
    yield from map(Part, lows, highs, firsts, untils)


def call_batches(
    writer: StoreWriter, parts: Sequence[Part], who: Who, scratch: Path
) -> tuple[pl.DataFrame, Iterator[pl.DataFrame]]:
    """All groups, and the calls in batches of whole groups, each with its ``row`` among all. One part is one batch.

    A group with too many calls for one batch is cut by sequence number, where all its calls have one.
    """
    combos, groups = resolve_combos(writer.query(_COMBOS), who.config, who.hosts, who.world)
    if len(parts) == 1:
        return groups, iter([_placed(parts[0], _read(writer, parts[0]), combos)])
    combos = combos.drop("first", "last").join(_batches(combos), on="group_id", how="left", nulls_equal=True)
    return groups, _by_batch(writer, parts, combos, scratch if parts[-1].until > HELD_ROWS else None)


def _batches(combos: pl.DataFrame) -> pl.DataFrame:
    """Per group its first batch and in how many, of which sequence numbers, it comes."""
    sizes = combos.group_by("group_id").agg(
        pl.col("calls", "numbered").sum(), pl.col("p2p").any(), pl.col("first").min(), pl.col("last").max()
    )
    cut = (
        pl.col("group_id").is_not_null()
        & (pl.col("numbered") == pl.col("calls"))
        & ~pl.col("p2p").fill_null(value=True)
    )
    cuts = pl.when(cut).then(pl.col("calls") // PART_ROWS + 1).otherwise(1)
    added = pl.col("cuts") - 1
    more = (pl.col("calls").cum_sum() // PART_ROWS + added.cum_sum() - added).alias("batch")
    return sizes.with_columns(cuts.alias("cuts")).sort("group_id").select("group_id", more, "cuts", "first", "last")


def _by_batch(
    writer: StoreWriter, parts: Sequence[Part], combos: pl.DataFrame, folder: Path | None
) -> Iterator[pl.DataFrame]:
    held: dict[int, list[pl.DataFrame | Path]] = {}

    def placed(read: tuple[Part, pl.DataFrame]) -> tuple[Part, dict[tuple[object, ...], pl.DataFrame]]:
        return read[0], _placed(*read, combos).partition_by("batch", as_dict=True, include_key=False)

    for part, shares in overlapped(placed, ((part, _read(writer, part)) for part in parts)):
        for (number,), share in shares.items():
            if folder is None:
                held.setdefault(_number(number), []).append(share)
                continue
            path = folder / f"{number}-{part.first}.arrow"
            share.write_ipc(path, compression="lz4")
            held.setdefault(_number(number), []).append(path)
    for one in sorted(held):
        yield pl.concat([_taken(share) for share in held.pop(one)])


def _taken(share: pl.DataFrame | Path) -> pl.DataFrame:
    if isinstance(share, pl.DataFrame):
        return share
    frame = pl.read_ipc(share)
    share.unlink()
    return frame


def _number(key: object) -> int:
    return key if isinstance(key, int) else -1


def _read(writer: StoreWriter, part: Part) -> pl.DataFrame:
    return writer.query(f"SELECT {_NUMBERS} FROM comm_call {part.where}, call")


def _placed(part: Part, calls: pl.DataFrame, combos: pl.DataFrame) -> pl.DataFrame:
    """Calls of a part with their groups and batches."""
    calls = mark_handshakes(calls)
    text = [pl.col(name).cast(pl.Categorical) for name in ("collective", "dtype")]
    row = pl.int_range(part.first, part.until, dtype=pl.Int64).alias("row")
    mine = combos.filter(pl.col("rank").is_between(part.low, part.high)).drop("calls", "numbered", "p2p")
    placed = calls.with_columns(row, *text).join(mine, on=COMBO, how="left", nulls_equal=True, maintain_order="left")
    if "batch" in placed.columns:
        place = (pl.col("seq") - pl.col("first")) * pl.col("cuts") // (pl.col("last") - pl.col("first") + 1)
        placed = placed.with_columns(pl.col("batch") + pl.when(pl.col("cuts") > 1).then(place).otherwise(0))
    return placed.drop("group_name", "group_desc", "group_ranks", "cuts", "first", "last", strict=False)
