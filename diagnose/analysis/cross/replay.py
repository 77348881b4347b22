"""What-if by replay: the matched schedule as a max-plus system, with local work and transfers changed.

Each rank's timeline is local progress (everything but exposed communication that ended with its call) with two kinds of
events on it: a call *arrives* at its start, and the rank *blocks* at the end of an exposed stretch until the call that
ended there completes. A call completes at the latest arrival of its members plus its transfer; calls of one stream
follow one another. Replaying the unmodified schedule gives the method's own error. Source: algorithms, what-if.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.intervals import Merged, covered_ns, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MAX_EVENTS = 400_000
"""Above, whole steps from the middle of the run stand for all: the replay is a loop over events."""

_ARRIVE, _BLOCK, _MARK = 0, 1, 2
_TAIL_NS, _TAIL_RATIO = 50_000, 0.02
"""A call that is exposed until just before its end is waited for: some host work overlaps its completion."""


class Schedule(NamedTuple):
    """Events ordered by observed time. ``progress`` is local progress of the event's rank at it.

    ``call_instance`` maps a call to its instance; ``transfer_ns``, ``size_bytes``, ``alpha_ns`` (fixed cost) and
    ``median_ns`` (median transfer of its class) are per call, NaN where unknown.
    """

    time_ns: Floats
    kind: NDArray[np.int8]
    rank: NDArray[np.int64]
    call: NDArray[np.int64]
    progress: Floats
    step: NDArray[np.int64]
    call_instance: NDArray[np.int64]
    call_before: NDArray[np.int64]
    transfer_ns: Floats
    size_bytes: Floats
    alpha_ns: Floats
    median_ns: Floats
    base_ns: Floats
    ranks: NDArray[np.int64]
    steps: NDArray[np.int64]
    observed_ns: float


def build_schedule(
    calls: pl.DataFrame, members: pl.DataFrame, collective: pl.DataFrame, steps: pl.DataFrame
) -> Schedule | None:
    """The schedule of the steps given, all ranks together; None without a matched collective.

    Args:
        calls: comm_call rows (rank, call, step, stream, start_ns, dur_ns, collective, is_p2p, exposed_from_ns, exposed_to_ns,
            exposed_late_ns): what is exposed before the host launches what follows is local progress.
        members: collective_rank rows (instance, rank, call, start_ns aligned).
        collective: whole collectives (instance, transfer_ns, msg_bytes, alpha_ns, median_ns).
        steps: step rows of normal steps (rank, step, start_ns, end_ns).
    """
    chosen = _chosen_steps(steps, calls)
    steps = steps.filter(pl.col("step").is_in(chosen))
    calls = calls.join(steps.select("rank", "step"), on=["rank", "step"]).sort("rank", "start_ns")
    calls = calls.with_columns(pl.coalesce("exposed_late_ns", "exposed_from_ns").alias("exposed_from_ns"))
    if calls.is_empty() or steps.is_empty():
        return None
    placed = calls.join(
        members.select("rank", "call", "instance", pl.col("start_ns").alias("aligned_ns")),
        on=["rank", "call"],
        how="left",
    )
    placed = placed.join(
        collective.select("instance", "transfer_ns", "msg_bytes", "alpha_ns", "median_ns"), on="instance", how="left"
    )
    if placed.get_column("transfer_ns").null_count() == len(placed):
        return None
    # Members end one by one: each completes its own time after the last arrival. The shortest duration bounds it below.
    after = pl.col("aligned_ns") + pl.col("dur_ns") - pl.col("aligned_ns").max().over("instance")
    floor = pl.when(pl.col("is_p2p")).then(0).otherwise(pl.min_horizontal("transfer_ns", "dur_ns"))
    placed = placed.with_columns(
        pl.when(pl.col("transfer_ns").is_not_null()).then(pl.max_horizontal(after, floor)).alias("transfer_ns")
    )
    shift = (
        placed.filter(pl.col("aligned_ns").is_not_null())
        .group_by("rank")
        .agg((pl.col("aligned_ns") - pl.col("start_ns")).median().alias("shift"))
    )
    placed = placed.join(shift, on="rank", how="left").with_columns(pl.col("shift").fill_null(0)).with_row_index("row")
    # A call without whole instance is an instance of its own, as long as it was.
    own = pl.col("row").cast(pl.Int64) + (placed.get_column("instance").max() or 0) + 1  # type: ignore[operator]
    matched = pl.col("transfer_ns").is_not_null()
    placed = placed.with_columns(
        pl.when(matched).then(pl.col("instance")).otherwise(own).alias("instance"),
        pl.when(matched).then(pl.col("transfer_ns")).otherwise(pl.col("dur_ns")).alias("transfer_ns"),
    )
    return _events(placed, steps)


def _chosen_steps(steps: pl.DataFrame, calls: pl.DataFrame) -> list[int]:
    """Steps that every rank has, in order, as many as the event budget allows, from the middle."""
    ranks = steps.get_column("rank").n_unique()
    common = (
        steps.group_by("step")
        .agg(pl.len().alias("n"), pl.col("start_ns").min().alias("at"))
        .filter(pl.col("n") == ranks)
        .sort("at")
        .get_column("step")
        .to_list()
    )
    if not common:
        return []
    per_step = max(len(calls) / max(steps.get_column("step").n_unique(), 1), 1)
    keep = max(int(MAX_EVENTS / (2 * per_step)), 1)
    first = max((len(common) - keep) // 2, 0)
    return common[first : first + keep]


def _events(placed: pl.DataFrame, steps: pl.DataFrame) -> Schedule:
    ranks = np.sort(placed.get_column("rank").unique().to_numpy()).astype(np.int64)
    numbers = np.array(
        steps.group_by("step").agg(pl.col("start_ns").min()).sort("start_ns").get_column("step").to_list(), np.int64
    )
    call_instance = np.unique(placed.get_column("instance").to_numpy(), return_inverse=True)[1]
    transfer = placed.get_column("transfer_ns").to_numpy().astype(np.float64)
    size = placed.get_column("msg_bytes").fill_null(0).to_numpy().astype(np.float64)
    row_rank = np.searchsorted(ranks, placed.get_column("rank").to_numpy())
    shift = placed.get_column("shift").to_numpy().astype(np.float64)
    start = placed.get_column("start_ns").to_numpy()
    origin = int(start.min())
    duration = placed.get_column("dur_ns").to_numpy()
    last_to = placed.get_column("exposed_to_ns").list.last().fill_null(-1).to_numpy()
    # A send is not waited for; what looks exposed beside it is another call's doing.
    near_end = last_to >= duration - np.maximum(_TAIL_NS, _TAIL_RATIO * duration)
    last_from = placed.get_column("exposed_from_ns").list.last().fill_null(0).to_numpy()
    blocks = near_end & (last_to > last_from) & (placed.get_column("collective") != "send").to_numpy()
    pieces = (
        placed.select("row", "exposed_from_ns", "exposed_to_ns")
        .explode("exposed_from_ns", "exposed_to_ns")
        .drop_nulls()
    )
    piece_row = pieces.get_column("row").to_numpy().astype(np.int64)
    piece_start = start[piece_row] + pieces.get_column("exposed_from_ns").to_numpy()
    piece_end = start[piece_row] + pieces.get_column("exposed_to_ns").to_numpy()
    ordered = _follows(row_rank, placed.get_column("stream").to_numpy(), start, duration)
    by_number = np.argsort(numbers)  # steps in time need not be numbered upward
    step = by_number[np.searchsorted(numbers[by_number], placed.get_column("step").to_numpy())]
    columns: list[list[NDArray[np.float64]]] = [[] for _ in range(6)]
    base = np.zeros(len(ranks))
    windows = steps.group_by("rank").agg(pl.col("start_ns").min().alias("first"), pl.col("end_ns").max().alias("last"))
    window = {rank: (first, last) for rank, first, last in windows.iter_rows()}
    observed = []
    for place, rank in enumerate(ranks.tolist()):
        rows = np.flatnonzero(row_rank == place)
        stretch = rows[blocks[rows]]
        mine = blocks[piece_row] & (row_rank[piece_row] == place)
        waits = merge(piece_start[mine], piece_end[mine])
        first, last = window[rank]
        offset = float(shift[rows[0]])
        base[place] = first - origin + offset
        arrive = _progress(start[rows], first, waits)
        resume = _progress(start[stretch] + duration[stretch], first, waits)
        end = _progress(np.array([last]), first, waits)
        for column, values in zip(
            columns,
            (
                np.concatenate(
                    (
                        start[rows] - origin + offset,
                        start[stretch] + duration[stretch] - origin + offset,
                        [last - origin + offset],
                    )
                ),
                np.concatenate((np.full(len(rows), _ARRIVE), np.full(len(stretch), _BLOCK), [_MARK])),
                np.full(len(rows) + len(stretch) + 1, place),
                np.concatenate((rows, stretch, [-1])),
                np.concatenate((arrive, resume, end)),
                np.concatenate((step[rows], step[stretch], [len(numbers) - 1])),
            ),
            strict=True,
        ):
            column.append(values.astype(np.float64))
        observed.append(last - first)
    time, kind, rank_of, call, progress, step_of = (np.concatenate(column) for column in columns)
    order = np.lexsort((kind, time))
    return Schedule(
        time[order], kind[order].astype(np.int8), rank_of[order].astype(np.int64), call[order].astype(np.int64), progress[order],
        step_of[order].astype(np.int64), call_instance.astype(np.int64), ordered, transfer, size,
        placed.get_column("alpha_ns").cast(pl.Float64).fill_null(float("nan")).to_numpy(),
        placed.get_column("median_ns").cast(pl.Float64).fill_null(float("nan")).to_numpy(), base, ranks, numbers, float(np.max(observed)),
    )  # fmt: skip


def _follows(
    rank: NDArray[np.int64], stream: NDArray[np.int64], start: NDArray[np.int64], duration: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each call the call before it on its stream, -1 for none or when the two overlapped: then nothing orders them."""
    order = np.lexsort((start, stream, rank))
    before = np.full(len(order), -1, np.int64)
    if len(order) > 1:
        first, second = order[:-1], order[1:]
        same = (rank[first] == rank[second]) & (stream[first] == stream[second])
        before[second] = np.where(same & (start[second] >= start[first] + duration[first]), first, -1)
    return before


def _progress(times: NDArray[np.int64], first: int, waits: Merged) -> Floats:
    """Local progress at each time: elapsed minus what was spent blocked."""
    blocked = covered_ns(waits, np.full(len(times), first, np.int64), np.maximum(times, first))
    return (times - first - blocked).astype(np.float64)


def replay(
    schedule: Schedule,
    *,
    work_scale: Mapping[tuple[int, int], float] | None = None,
    transfer: Callable[[Floats, Floats], Floats] | None = None,
) -> float:
    """Span of the replayed steps in nanoseconds: from the first start to the last end over all ranks' own spans.

    Args:
        schedule: the schedule.
        work_scale: factor on the local progress of a (rank, step), 1 where absent.
        transfer: new transfer times from (transfer_ns, size_bytes) of all calls.
    """
    duration = schedule.transfer_ns if transfer is None else transfer(schedule.transfer_ns, schedule.size_bytes)
    place_of = {int(rank): place for place, rank in enumerate(schedule.ranks)}
    step_of = {int(step): place for place, step in enumerate(schedule.steps)}
    scale = np.ones((len(schedule.ranks), len(schedule.steps)))
    for (rank, step), factor in (work_scale or {}).items():
        if rank in place_of and step in step_of:
            scale[place_of[rank], step_of[step]] = factor
    clock = schedule.base_ns.tolist()
    base = schedule.base_ns.tolist()
    progress = [0.0] * len(clock)
    latest = [-1.0] * (int(schedule.call_instance.max(initial=0)) + 1)
    length, factor_of = duration.tolist(), scale.tolist()
    instance_of, before_of = schedule.call_instance.tolist(), schedule.call_before.tolist()
    span = 0.0
    for kind, rank, call, at, step in zip(
        schedule.kind.tolist(),
        schedule.rank.tolist(),
        schedule.call.tolist(),
        schedule.progress.tolist(),
        schedule.step.tolist(),
        strict=True,
    ):
        now = clock[rank]
        if at > progress[rank]:
            now += (at - progress[rank]) * factor_of[rank][step]
            progress[rank] = at
        if kind == _ARRIVE:
            instance, arrival = instance_of[call], now
            if before_of[call] >= 0:
                before = before_of[call]
                arrival = max(now, latest[instance_of[before]] + length[before])
            latest[instance] = max(latest[instance], arrival)
        elif kind == _BLOCK:
            now = max(now, latest[instance_of[call]] + length[call])
        else:
            span = max(span, now - base[rank])
        clock[rank] = now
    return span
