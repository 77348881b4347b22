"""The same collective on every rank: matched by sequence number where traced, else by order, verified either way.

Without ``Seq`` the key is (group, step, token, how many of that token before it in the step); the token is what all
members must agree on (kind, type, size). Where steps are unknown, the order over the whole trace is used, shifted per
rank so that the tokens agree best: windows are cut at different calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.groups import candidates, group_id, group_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from diagnose.analysis.cross.groups import GroupConfig

_UNEVEN = ("all_to_all", "all_to_allv", "send", "recv", "send_recv", "unknown", "coalesced", "gather", "scatter")
_MAX_SHIFT = 64
_AGREE_RATIO = 0.95
_STEADIER = 0.25
"""Of sequences cut at other steps, ends differ by the noise of steps at a wrong shift, by that of clocks at the right one."""


class Matched(NamedTuple):
    """``members``: one row a (instance, rank) with the call's columns; ``calls`` and ``groups`` with what was inferred."""

    members: pl.DataFrame
    calls: pl.DataFrame
    groups: pl.DataFrame


def match_calls(
    calls: pl.DataFrame,
    groups: pl.DataFrame,
    config: Mapping[int, Sequence[GroupConfig]],
    hosts: Mapping[int, str | None],
    world: Sequence[int],
) -> Matched:
    """Number the instances. Adds instance, match_method, size (members expected) to the calls that found one.

    Args:
        calls: comm_call rows with ``group_id``.
        groups: process_group rows.
        config: pg_config by rank.
        hosts: host by rank.
        world: ranks whose traces are here.
    """
    calls = calls.with_columns(_token().alias("token"))
    calls, groups = _infer_groups(calls, groups, config, hosts, world)
    placed = calls.filter(pl.col("group_id").is_not_null() & (pl.col("rank") >= 0))
    if placed.is_empty():
        return Matched(_none(placed), calls, groups)
    p2p = placed.filter(pl.col("is_p2p"))
    collective = placed.filter(~pl.col("is_p2p")).join(groups.select("group_id", "size"), on="group_id", how="left")
    parts = [_keyed_collectives(collective), _keyed_p2p(p2p)]
    found = [part for part in parts if not part.is_empty()]
    if not found:
        return Matched(_none(placed), calls, groups)
    keyed = pl.concat(found, how="diagonal_relaxed")
    numbers = (
        keyed.group_by("key").agg(pl.col("start_ns").min().alias("first"))
        .sort("first", "key").with_row_index("instance").with_columns(pl.col("instance").cast(pl.Int64)).drop("first")
    )  # fmt: skip
    return Matched(keyed.join(numbers, on="key").drop("key").sort("instance", "rank"), calls, groups)


def _none(calls: pl.DataFrame) -> pl.DataFrame:
    """No members, with their columns."""
    columns = {"instance": pl.lit(0, pl.Int64), "match_method": pl.lit(""), "size": pl.lit(0, pl.Int32)}
    return calls.with_columns(**columns).clear()


def _token() -> pl.Expr:
    """A number for what all members must agree on."""
    size = pl.when(pl.col("collective").is_in(list(_UNEVEN))).then(None).otherwise(pl.col("msg_bytes"))
    return pl.struct(pl.col("collective"), pl.col("dtype"), size.alias("size")).hash(0)


def _keyed_collectives(calls: pl.DataFrame) -> pl.DataFrame:
    """Key and method of every collective call."""
    if calls.is_empty():
        return calls.with_columns(key=pl.lit(0, pl.UInt64), match_method=pl.lit(""))
    by_group = calls.group_by("group_id").agg(
        pl.col("seq").is_not_null().all().alias("has_seq"),
        (pl.col("step").is_not_null().mean() >= 0.5).alias("has_step"),
    )
    calls = calls.join(by_group, on="group_id")
    with_seq = calls.filter(pl.col("has_seq"))
    steps = calls.filter(~pl.col("has_seq") & pl.col("has_step"))
    order = calls.filter(~pl.col("has_seq") & ~pl.col("has_step"))
    parts = []
    if not with_seq.is_empty():
        parts.append(_with_numbers(with_seq))
    if not steps.is_empty():
        placed = _with_position(steps, ["group_id", "rank", "step", "token"])
        parts.append(_with_key(placed, "order", ("group_id", "step", "token", "nth")))
    for _, group in order.group_by("group_id", maintain_order=True):
        parts.append(_with_key(_shifted(group), "order", ("group_id", "nth")))
    return pl.concat(parts, how="diagonal_relaxed").drop("has_seq", "has_step", "nth")


def _with_numbers(calls: pl.DataFrame) -> pl.DataFrame:
    """Keys from sequence numbers. One that comes twice on a rank was counted per step; else steps, which ranks may cut
    apart, stay out of it.
    """
    once = calls.select(pl.struct("group_id", "rank", "seq").hash(0).alias("number"))
    if once.get_column("number").n_unique() == len(calls):
        return _with_key(calls.with_columns(nth=pl.lit(0, pl.Int64)), "seq", ("group_id", "seq"))
    again = (
        calls.group_by("group_id", "rank", "seq").len()
        .group_by("group_id").agg((pl.col("len") > 1).any().alias("again"))
    )  # fmt: skip
    within = pl.when(pl.col("again")).then(pl.col("step")).alias("within")
    placed = _with_position(
        calls.join(again, on="group_id").with_columns(within), ["group_id", "rank", "within", "seq"]
    )
    return _with_key(placed, "seq", ("group_id", "within", "seq", "nth")).drop("within", "again")


def _with_position(calls: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """``nth``: how many equal calls come before it in time."""
    ordered = calls.sort(*columns, "start_ns")
    mark = ordered.select(pl.struct(columns).hash(0).alias("mark")).get_column("mark").to_numpy()
    new = np.concatenate(([True], mark[1:] != mark[:-1])) if len(mark) else np.zeros(0, bool)
    place = np.arange(len(mark))
    nth = place - np.maximum.accumulate(np.where(new, place, 0))
    return ordered.with_columns(pl.Series("nth", nth))


def _with_key(calls: pl.DataFrame, method: str, columns: tuple[str, ...]) -> pl.DataFrame:
    return calls.with_columns(
        pl.struct(pl.lit(method).alias("method"), *columns).hash(0).alias("key"), pl.lit(method).alias("match_method")
    )


def _shifted(group: pl.DataFrame) -> pl.DataFrame:
    """``nth`` = position in the group after the shift that makes each rank's tokens agree best with the longest one's."""
    codes = group.with_columns(pl.col("token").rank("dense").alias("code")).sort("rank", "start_ns")
    sequences = {
        rank[0]: part.get_column("code").to_numpy() for rank, part in codes.group_by("rank", maintain_order=True)
    }
    ends = {
        rank[0]: (part.get_column("start_ns") + part.get_column("dur_ns")).to_numpy()
        for rank, part in codes.group_by("rank", maintain_order=True)
    }
    reference = max(sequences, key=lambda rank: (len(sequences[rank]), -rank))
    shifts = {
        rank: best_shift(sequences[reference], sequence, ends[reference], ends[rank])
        for rank, sequence in sequences.items()
    }
    table = pl.DataFrame(
        {"rank": list(shifts), "shift": list(shifts.values())}, schema={"rank": pl.Int32, "shift": pl.Int64}
    )
    nth = pl.int_range(pl.len()).over("rank") + pl.col("shift")
    return (
        codes.join(table, on="rank")
        .filter(pl.col("shift").is_not_null())
        .with_columns(nth.alias("nth"))
        .drop("code", "shift")
    )


def best_shift(
    reference: NDArray[np.int64],
    sequence: NDArray[np.int64],
    reference_ends: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int | None:
    """The shift k so that sequence[i] is reference[i + k]; None when no shift makes 95 % of the tokens agree.

    Shifts that agree equally well (a period) are told apart by how steady the differences of the end times are. Sequences
    that are alike from end to end are taken as they are, unless another shift is far steadier: noise is no evidence.
    """
    best: tuple[float, float, int] | None = None
    alike = len(reference) == len(sequence) and bool((reference == sequence).all())
    low, high = -min(len(sequence) - 1, _MAX_SHIFT), min(len(reference) - 1, _MAX_SHIFT)
    for shift in range(low, high + 1):
        first, last = max(0, -shift), min(len(sequence), len(reference) - shift)
        if last - first < max(1, min(len(sequence), len(reference)) // 2):
            continue
        agree = float(np.mean(sequence[first:last] == reference[first + shift : last + shift]))
        if agree < _AGREE_RATIO:
            continue
        difference = (ends[first:last] - reference_ends[first + shift : last + shift]).astype(np.float64)
        apart = float(np.median(difference))
        spread = float(np.median(np.abs(difference - apart)))
        spread = _STEADIER * spread if alike and shift == 0 else spread + 1e-3 * abs(apart)
        candidate = (round(agree, 6), -spread, shift)
        if best is None or candidate > best:
            best = candidate
    return None if best is None else best[2]


def _keyed_p2p(calls: pl.DataFrame) -> pl.DataFrame:
    """Sends with their receives: the n-th in that direction in a step, or by order where steps are unknown."""
    usable = calls.filter(pl.col("peer").is_not_null() & pl.col("collective").is_in(["send", "recv"]))
    if usable.is_empty():
        return usable.with_columns(key=pl.lit(0, pl.UInt64), match_method=pl.lit(""), size=pl.lit(2, pl.Int32)).clear()
    sender = pl.when(pl.col("collective") == "send").then(pl.col("rank")).otherwise(pl.col("peer"))
    receiver = pl.when(pl.col("collective") == "send").then(pl.col("peer")).otherwise(pl.col("rank"))
    usable = usable.with_columns(sender.alias("src"), receiver.alias("dst"), pl.lit(2, pl.Int32).alias("size"))
    nth = pl.int_range(pl.len()).over("group_id", "src", "dst", "rank", "step", order_by=["seq", "start_ns"])
    usable = usable.with_columns(nth=nth)
    return _with_key(usable, "p2p", ("group_id", "src", "dst", "step", "nth")).drop("src", "dst", "nth")


def _infer_groups(
    calls: pl.DataFrame,
    groups: pl.DataFrame,
    config: Mapping[int, Sequence[GroupConfig]],
    hosts: Mapping[int, str | None],
    world: Sequence[int],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Groups of calls that name none: among the groups of the rank, the one whose members end together.

    For each token the candidate with the steadiest end times wins; constant clock offsets do not matter.
    """
    open_calls = calls.filter(pl.col("group_id").is_null() & (pl.col("rank") >= 0) & ~pl.col("is_p2p"))
    if open_calls.is_empty() or len(world) < 2:
        return _p2p_world(calls, groups, hosts, world)
    rows = list(groups.iter_rows(named=True))
    known = {row["group_id"] for row in rows}
    assigned: dict[tuple[int, int], int] = {}
    lists = {ranks for rank in world for ranks in candidates(rank, config, world)}
    ends = open_calls.with_columns((pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns")).sort("rank", "start_ns")
    series = {
        (int(rank), int(token)): part.get_column("end_ns").to_numpy()
        for (rank, token), part in ends.group_by("rank", "token", maintain_order=True)
    }
    for token in sorted({token for _, token in series}):
        for members, _ in sorted(
            ((ranks, _unsteadiness(series, token, ranks)) for ranks in lists), key=lambda item: (item[1], len(item[0]))
        ):
            if _unsteadiness(series, token, members) == np.inf or any((rank, token) in assigned for rank in members):
                continue
            identifier = group_id(members)
            for rank in members:
                assigned[rank, token] = identifier
            if identifier not in known:
                known.add(identifier)
                rows.append(group_row(members, None, None, hosts, "inferred"))
    table = pl.DataFrame(
        {
            "rank": [rank for rank, _ in assigned],
            "token": [token for _, token in assigned],
            "inferred": list(assigned.values()),
        },
        schema={"rank": pl.Int32, "token": pl.UInt64, "inferred": pl.Int64},
    )
    calls = calls.join(table, on=["rank", "token"], how="left")
    chosen = pl.when(pl.col("is_p2p")).then(pl.col("group_id")).otherwise(pl.coalesce("group_id", "inferred"))
    calls = calls.with_columns(chosen.alias("group_id")).drop("inferred")
    return _p2p_world(calls, pl.DataFrame(rows, schema=groups.schema).sort("group_id"), hosts, world)


def _p2p_world(
    calls: pl.DataFrame, groups: pl.DataFrame, hosts: Mapping[int, str | None], world: Sequence[int]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Sends and receives that name a peer but no group go by the world's ranks."""
    lost = pl.col("group_id").is_null() & pl.col("is_p2p") & pl.col("peer").is_not_null()
    if len(world) < 2 or calls.filter(lost).is_empty():
        return calls, groups
    identifier = group_id(world)
    calls = calls.with_columns(pl.when(lost).then(pl.lit(identifier)).otherwise(pl.col("group_id")).alias("group_id"))
    if groups.filter(pl.col("group_id") == identifier).is_empty():
        groups = pl.concat(
            [groups, pl.DataFrame([group_row(world, None, None, hosts, "inferred")], schema=groups.schema)]
        )
    return calls, groups


def _unsteadiness(series: Mapping[tuple[int, int], NDArray[np.int64]], token: int, members: Sequence[int]) -> float:
    """Median over the members of the spread of their end times against the first member's; infinite when counts differ."""
    columns = [series.get((rank, token)) for rank in members]
    if any(column is None for column in columns):
        return float("inf")
    lengths = {len(column) for column in columns if column is not None}
    if len(lengths) != 1 or lengths == {0}:
        return float("inf")
    first = columns[0]
    spreads = [np.median(np.abs((column - first) - np.median(column - first))) for column in columns[1:]]  # type: ignore[operator]
    return float(np.median(spreads)) if spreads else float("inf")
