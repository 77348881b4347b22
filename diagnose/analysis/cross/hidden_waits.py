"""Kernels that wait for peers without the name of a communication: a custom all-reduce, a norm over all ranks.

Their names say compute, their times say otherwise: however far apart the ranks start them, they end together. What one
of them took longer than on the last rank to start it is waiting, and so no work of the rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polars.datatypes import DataTypeClass

_TOGETHER_RATIO = 0.05
"""Ends this close, as a part of how much the durations differ, in the median instance."""

MIN_SPREAD_NS = 1_000_000
MIN_SHARE = 0.005
"""Kernels whose waiting is below this part of the ranks' compute change no judgement."""

_MIN_INSTANCES = 3
_MAX_PER_STEP = 256
_MAX_GROUPS = 64

CALLS_SCHEMA: dict[str, pl.DataType | DataTypeClass] = {
    "rank": pl.Int32, "call": pl.Int64, "step": pl.Int64, "stream": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, "ready_ns": pl.Int64,
    "collective": pl.String,
    "is_p2p": pl.Boolean, "exposed_from_ns": pl.List(pl.Int64), "exposed_to_ns": pl.List(pl.Int64),
    "exposed_late_ns": pl.List(pl.Int64),
    "name": pl.String, "instance": pl.Int64, "aligned_ns": pl.Int64, "transfer_ns": pl.Int64, "wait_ns": pl.Int64,
}  # fmt: skip


_KEY = ["name", "step", "nth"]
"""What names one execution on all ranks: the n-th of a kernel in a step."""


class Collectives(NamedTuple):
    """Rows as the store's collective_rank and collective have them, for a replay."""

    members: pl.DataFrame
    collective: pl.DataFrame


class Kernels(NamedTuple):
    """Compute kernels of normal steps (rank, step, stream, name, start_ns, dur_ns), or those of them that may be such;
    the ranks and the summed duration are of all.
    """

    frame: pl.DataFrame
    ranks: Sequence[int]
    busy_ns: float


def hidden_waits(kernels: Kernels, shift_ns: Mapping[int, int], groups: Sequence[Sequence[int]]) -> pl.DataFrame:
    """Executions of such kernels as matched calls, one row a (instance, rank); calls and instances count down from -1.

    Args:
        kernels: where to look.
        shift_ns: what brings each rank's times on the common clock; 0 where absent.
        groups: members of the process groups with more than one rank.
    """
    none = pl.DataFrame(schema=CALLS_SCHEMA)
    frame, everyone, busy = kernels
    if frame.is_empty():
        return none
    per = frame.group_by("name", "rank", "step").agg(pl.len().alias("count"), pl.col("dur_ns").sum())
    wide = per.group_by("name").agg(
        pl.col("count").max(), pl.col("dur_ns").sum(), pl.col("rank").n_unique().alias("ranks")
    )
    names = wide.filter(
        (pl.col("ranks") > 1) & (pl.col("count") <= _MAX_PER_STEP) & (pl.col("dur_ns") >= MIN_SHARE * busy)
    ).get_column("name")
    if names.is_empty():
        return none
    shift = pl.col("rank").replace_strict(dict(shift_ns), default=0, return_dtype=pl.Int64)
    rows = frame.filter(pl.col("name").is_in(names.to_list())).with_columns(
        nth=pl.int_range(pl.len()).over("name", "rank", "step", order_by="start_ns"), aligned_ns=pl.col("start_ns") + shift,
    )  # fmt: skip
    candidates = sorted(
        {tuple(sorted(group)) for group in groups if len(group) > 1} - {tuple(everyone)},
        key=lambda group: (-len(group), group),
    )
    found: list[pl.DataFrame] = []
    taken: set[tuple[str, int]] = set()
    for team, members in enumerate([tuple(everyone), *candidates[:_MAX_GROUPS]]):
        part = _together(rows.filter(pl.col("rank").is_in(list(members))), len(members), busy)
        for (name,), mine in part.group_by("name", maintain_order=True):
            pairs = {(str(name), rank) for rank in members}
            if not pairs & taken:
                taken |= pairs
                found.append(mine.with_columns(pl.lit(team).alias("team")))
    return _as_calls(pl.concat(found)) if found else none


def _together(rows: pl.DataFrame, size: int, busy: float) -> pl.DataFrame:
    """Rows of the kernels that these ranks end together."""
    end = pl.col("aligned_ns") + pl.col("dur_ns")
    each = rows.group_by(_KEY).agg(
        pl.len().alias("seen"), (end.max() - end.min()).alias("apart"), (pl.col("dur_ns").max() - pl.col("dur_ns").min()).alias("spread"),
        (pl.col("dur_ns") - pl.col("dur_ns").min()).sum().alias("waited"),
    )  # fmt: skip
    whole = (pl.col("seen") == size).mean()
    kernels = each.group_by("name").agg(
        whole.alias("whole"), pl.len().alias("instances"), (pl.col("apart") / pl.col("spread").clip(lower_bound=1)).median().alias("ratio"),
        pl.col("spread").median(), pl.col("waited").sum(),
    )  # fmt: skip
    sure = kernels.filter(
        (pl.col("whole") == 1) & (pl.col("instances") >= _MIN_INSTANCES) & (pl.col("ratio") <= _TOGETHER_RATIO)
        & (pl.col("spread") >= MIN_SPREAD_NS) & (pl.col("waited") >= MIN_SHARE * busy)
    )  # fmt: skip
    return rows.join(sure.select("name"), on="name")


def _as_calls(rows: pl.DataFrame) -> pl.DataFrame:
    instance = -1 - pl.struct("team", *_KEY).rank("dense").cast(pl.Int64)
    rows = (
        rows.with_columns(instance.alias("instance"))
        .sort("instance", "rank", descending=[True, False])
        .with_row_index("row")
    )
    transfer = pl.col("dur_ns").min().over("instance")
    return rows.select(
        "rank", (-1 - pl.col("row").cast(pl.Int64)).alias("call"), "step", "stream", "start_ns", "dur_ns", pl.lit(None, pl.Int64).alias("ready_ns"), pl.lit("unknown").alias("collective"),
        pl.lit(value=False).alias("is_p2p"), pl.concat_list(pl.lit(0, pl.Int64)).alias("exposed_from_ns"),
        pl.concat_list("dur_ns").alias("exposed_to_ns"), pl.lit(None, pl.List(pl.Int64)).alias("exposed_late_ns"), "name", "instance", "aligned_ns", transfer.alias("transfer_ns"),
        (pl.col("dur_ns") - transfer).alias("wait_ns"),
    ).cast(CALLS_SCHEMA)  # type: ignore[arg-type]  # fmt: skip


def as_collectives(hidden: pl.DataFrame) -> Collectives:
    """What a replay needs of them besides the calls: their members, and their transfers as those of one class a kernel."""
    whole = hidden.unique("instance", maintain_order=True).select(
        "instance", "collective", pl.lit(None, pl.Int32).alias("members"), pl.lit(None, pl.Int64).alias("msg_bytes"), "transfer_ns",
        pl.col("transfer_ns").median().over("name").alias("median_ns"), pl.lit(None, pl.Float64).alias("alpha_ns"), pl.lit(None, pl.Float64).alias("fixed_ns"),
    )  # fmt: skip
    return Collectives(hidden.select("instance", "rank", "call", pl.col("aligned_ns").alias("start_ns")), whole)


def without_hidden(breakdown: pl.DataFrame, hidden: pl.DataFrame) -> pl.DataFrame:
    """The breakdown with the waiting inside these kernels counted as exposed waiting, not as compute."""
    if hidden.is_empty():
        return breakdown
    waits = hidden.group_by("rank", "step").agg(pl.col("wait_ns").sum().alias("hidden"))
    moved = pl.min_horizontal(pl.col("hidden").fill_null(0), "compute_ns", "local_work_ns")
    joined = breakdown.join(waits, on=["rank", "step"], how="left", maintain_order="left").with_columns(
        moved.alias("hidden")
    )
    return joined.with_columns(
        *(pl.col(name) - pl.col("hidden") for name in ("compute_ns", "local_work_ns")),
        *(pl.col(name) + pl.col("hidden") for name in ("exposed_comm_ns", "exposed_wait_ns", "comm_ns")),
    ).drop("hidden")
