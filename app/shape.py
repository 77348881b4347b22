"""Frames in the shape that charts and tables want: long parts, rows joined by host, a rank beside its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl
from theme import PART_LABELS

from diagnose.report.view import PARTS, slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.report.document import Document
    from diagnose.report.measures import RankParts

MAX_BARS = 160
MAX_ROWS = 72
"""Rows of a heat map that a screen can show with readable names; more are joined by host."""
MAX_HOST_ROWS = 200
MAX_POINTS = 2_000
"""Points of a chart over ranks."""
MAX_CELLS, MAX_COLUMNS = 6_000, 160
"""Cells of a heat map that a browser draws at once, and columns that a screen can show."""
_IDLE = ("idle_input_ns", "idle_host_ns", "idle_sync_ns", "idle_bubble_ns")
_TABLE_WORDS = {
    "step_ns": "whole step",
    "exposed_comm_ns": "W + T  communication",
    "overlapped_comm_ns": "hidden communication",
}
_ORDER = {PART_LABELS[part.key]: place for place, part in enumerate(PARTS)}


class Shown(NamedTuple):
    """Rows to draw and, in words, what was joined or left out."""

    rows: pl.DataFrame
    note: str


def long_parts(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """One row a part above zero: ``part`` with its letter, ``ns``, ``order``. As in the report: communication stays one
    part where wait and transfer are unknown, and what no cause explains is other idle time.
    """
    known = pl.col("exposed_wait_ns").is_not_null() & pl.col("exposed_transfer_ns").is_not_null()
    rest = (pl.col("idle_ns") - pl.sum_horizontal(pl.col(name).fill_null(0) for name in _IDLE)).clip(lower_bound=0)
    split = frame.with_columns(
        pl.when(known).then(None).otherwise(pl.col("exposed_comm_ns")).alias("exposed_comm_ns"),
        pl.when(known).then(pl.col("exposed_wait_ns")).alias("exposed_wait_ns"),
        pl.when(known).then(pl.col("exposed_transfer_ns")).alias("exposed_transfer_ns"),
        pl.coalesce("idle_other_ns", rest).alias("idle_other_ns"),
    )
    long = split.unpivot(
        on=[f"{part.key}_ns" for part in PARTS], index=list(keys), variable_name="key", value_name="ns"
    ).filter(pl.col("ns") > 0)
    names = {f"{key}_ns": words for key, words in PART_LABELS.items()}
    return long.with_columns(pl.col("key").replace_strict(names, return_dtype=pl.String).alias("part")).with_columns(
        pl.col("part").replace_strict(_ORDER, return_dtype=pl.Int32).alias("order")
    )  # fmt: skip


def step_names(frame: pl.DataFrame) -> pl.DataFrame:
    """``place`` for the axis: the step, or the first and last of joined steps."""
    first, last = pl.col("first_step").cast(pl.String), pl.col("last_step").cast(pl.String)
    name = pl.when(pl.col("first_step") == pl.col("last_step")).then(first).otherwise(first + "–" + last)
    return frame.with_columns(name.alias("place"), pl.col("labels").fill_null("normal").alias("labels"))


def rank_name(column: str = "rank") -> pl.Expr:
    """``rank 3``; negative numbers stand for traces that name no rank."""
    return (
        pl.when(pl.col(column) < 0).then(pl.lit("rank not named")).otherwise("rank " + pl.col(column).cast(pl.String))
    )


def by_rank_or_host(frame: pl.DataFrame) -> Shown:
    """Rows with ``place``: ranks while they are few, else the busiest rank of each host, else the extremes."""
    if len(frame) <= MAX_ROWS:
        return Shown(frame.with_columns(rank_name().alias("place")), "")
    hosts = frame.filter(pl.col("host").is_not_null())
    if len(hosts) == len(frame) and hosts.get_column("host").n_unique() <= MAX_BARS:
        busiest = (
            hosts.sort("local_work_ns", descending=True, nulls_last=True)
            .group_by("host", maintain_order=True)
            .first()
            .sort("host")
        )
        return Shown(
            busiest.with_columns(pl.col("host").alias("place")),
            f"{len(frame)} ranks grouped by host: of each host the rank with the most work of its own.",
        )
    ordered = frame.sort("local_work_ns", descending=True, nulls_last=True)
    third = MAX_ROWS // 3
    middle = (len(ordered) - third) // 2
    kept = pl.concat([ordered.head(third), ordered.slice(middle, third), ordered.tail(third)])
    note = f"{len(kept)} of {len(frame)} ranks: {third} with the most work of their own, {third} around the median, {third} with the least."
    return Shown(kept.with_columns(rank_name().alias("place")), note)


def heat(frame: pl.DataFrame, host: str | None) -> Shown:
    """Rows with ``row`` (name), ``column`` (step or steps), ``value_ns``: ranks of one host, all ranks while few, else the
    extreme rank of each host; many steps are joined by the extreme one.
    """
    shown = _heat_rows(frame, host)
    rows, steps = shown.rows.get_column("row").n_unique(), shown.rows.get_column("step").unique().sort()
    join = -(-len(steps) // max(1, min(MAX_COLUMNS, MAX_CELLS // max(1, rows))))
    if join == 1:
        return Shown(shown.rows.with_columns(pl.col("step").cast(pl.String).alias("column")), shown.note)
    first = pl.col("step").rank("dense").cast(pl.Int64) - 1
    worst = pl.col("value_ns").sort_by(pl.col("value_ns").abs()).last()
    others = [pl.col(name).sort_by(pl.col("value_ns").abs()).last() for name in ("rank", "host", "row_order")]
    named = shown.rows.with_columns((first // join).alias("group")).with_columns(
        pl.format("{}–{}", pl.col("step").min().over("group"), pl.col("step").max().over("group")).alias("column")
    )
    joined = named.group_by("row", "group", "column").agg(worst, *others, pl.col("step").min())
    note = f"{len(steps)} steps in groups of {join}: each cell shows the most deviating one."
    return Shown(joined.sort("row_order", "group").drop("group"), f"{shown.note} {note}".strip())


def _heat_rows(frame: pl.DataFrame, host: str | None) -> Shown:
    if host is not None:
        frame = frame.filter(pl.col("host") == host)
    ranks = frame.get_column("rank").n_unique()
    if ranks <= MAX_ROWS or host is not None:
        return Shown(frame.with_columns(rank_name().alias("row"), pl.col("rank").alias("row_order")), "")
    worst = pl.col("value_ns").sort_by(pl.col("value_ns").abs()).last()
    which = pl.col("rank").sort_by(pl.col("value_ns").abs()).last()
    named = frame.with_columns(pl.coalesce("host", rank_name()).alias("row"))
    joined = named.group_by("row", "step").agg(
        worst, which, pl.col("host").first(), pl.col("rank").min().alias("row_order")
    )
    note = f"{ranks} ranks grouped by host: each cell shows the host's most deviating rank. Choose a host to see its ranks."
    rows = joined.get_column("row").n_unique()
    if rows > MAX_HOST_ROWS:
        most = (
            joined.group_by("row")
            .agg(pl.col("value_ns").abs().max())
            .sort("value_ns", descending=True)
            .head(MAX_HOST_ROWS)
        )
        joined = joined.join(most.select("row"), on="row")
        note += f" The {MAX_HOST_ROWS} most deviating of {rows} hosts."
    return Shown(joined.sort("row_order", "step"), note)


def thinned(frame: pl.DataFrame, value: str, keep: int | None = None) -> Shown:
    """One point a rank while a chart can hold them; of more ranks the most deviating of each few neighbours, and ``keep``."""
    if len(frame) <= MAX_POINTS:
        return Shown(frame, "")
    each = -(-len(frame) // MAX_POINTS)
    far = (pl.col(value) - pl.col(value).median()).abs()
    most = (
        frame.with_columns(far.alias("far"))
        .sort("far", descending=True, nulls_last=True)
        .group_by(pl.col("rank") // each, maintain_order=True)
    )
    kept = most.agg(pl.col("rank").first().alias("kept")).get_column("kept").to_list()
    note = f"Of each {each} neighbouring ranks the one furthest from the median."
    return Shown(frame.filter(pl.col("rank").is_in([*kept, keep])), note)


def beside_peers(per_rank: Sequence[RankParts], roles: pl.DataFrame, rank: int) -> pl.DataFrame:
    """Parts of one rank and the median of its peers (same role): columns of the parts, ``who`` first."""
    frame = pl.DataFrame(
        [{name: getattr(row, name) for name in row.__struct_fields__} for row in per_rank], infer_schema_length=None
    )
    frame = frame.with_columns(pl.col("rank").fill_null(-1)).join(roles.select("rank", "role"), on="rank", how="left")
    mine = frame.filter(pl.col("rank") == rank)
    if mine.is_empty():
        return mine
    peers = frame.filter(
        (pl.col("rank") != rank) & pl.col("role").eq_missing(pl.lit(mine.item(0, "role"), dtype=frame.schema["role"]))
    )
    numbers = [name for name in frame.columns if name.endswith("_ns")]
    tables = [mine.select(pl.lit("this rank").alias("who"), *(pl.col(name).cast(pl.Float64) for name in numbers))]
    if len(peers):
        tables.append(
            peers.select(
                pl.lit(f"median of {len(peers)} peers").alias("who"),
                *(pl.col(name).cast(pl.Float64).median() for name in numbers),
            )
        )
    return pl.concat(tables)


def part_table(frame: pl.DataFrame) -> pl.DataFrame:
    """The two rows of `beside_peers` as a table: part, this rank, peers, difference."""
    rows = []
    for name in ("step_ns", *(f"{part.key}_ns" for part in PARTS), "overlapped_comm_ns"):
        words = _TABLE_WORDS.get(name) or PART_LABELS[name.removesuffix("_ns")]
        values = frame.get_column(name).to_list()
        mine, peers = values[0], values[1] if len(values) > 1 else None
        if mine or peers:
            rows.append(
                {
                    "part": words,
                    "rank_ns": mine,
                    "peers_ns": peers,
                    "more_ns": None if mine is None or peers is None else mine - peers,
                }
            )
    return pl.DataFrame(
        rows, schema={"part": pl.String, "rank_ns": pl.Float64, "peers_ns": pl.Float64, "more_ns": pl.Float64}
    )


def job_parts(document: Document) -> pl.DataFrame:
    """The job's median step as long parts; without steps the whole trace."""
    rows = [
        {
            "place": "median step" if document.step_time.steps_used else "whole trace",
            "part": PART_LABELS[item.part.key],
            "ns": float(item.ns),
        }
        for item in slices(document.step_time.breakdown)
    ]
    frame = pl.DataFrame(rows, schema={"place": pl.String, "part": pl.String, "ns": pl.Float64})
    return frame.with_columns(pl.col("part").replace_strict(_ORDER, return_dtype=pl.Int32).alias("order"))
