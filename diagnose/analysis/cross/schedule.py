"""The matched schedule as a max-plus system: what each rank does by itself, where it arrives, where it blocks.

Each rank's timeline is local progress (everything but exposed communication that ended with its call) with three kinds
of events on it: a call *arrives* at its start, and the rank *blocks* at the end of an exposed stretch until the call that
ended there completes. A call completes at the latest arrival of its members plus its transfer; calls of one stream
follow one another: one that queued behind another was *ready* before, and arrives as soon as both allow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from diagnose.analysis.cross.schedule_parts import causal_order, gained, pauses_before
from diagnose.analysis.intervals import covered_ns, merge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from diagnose.analysis.intervals import Merged

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

MAX_EVENTS = 3_000_000
"""Above, whole steps from the middle of the run stand for all."""

ARRIVE, BLOCK, MARK, READY = 0, 1, 2, 3
_QUEUE_NS = 20_000
"""A call that starts within this after the one before it on its stream had been waiting for the stream."""

_TAIL_NS, _TAIL_RATIO = 50_000, 0.02
"""A call that is exposed until just before its end is waited for: some host work overlaps its completion."""


class Schedule(NamedTuple):
    """Events in an order that no event's cause comes after it. ``progress`` is local progress of the event's rank at it,
    ``typical`` the same with every kernel as long as those of its name are on average, ``local_ns`` its time on the rank's
    own clock.

    ``call_queued`` marks calls with a READY event. ``call_instance`` maps a call to its instance; ``transfer_ns``, ``size_bytes``, ``alpha_ns`` (fixed cost),
    ``fixed_ns`` (that, or the least it can be) and ``median_ns`` (median transfer of its class) are per call, NaN where unknown. ``base_ns`` is each rank's start.
    """

    kind: NDArray[np.int8]
    rank: Integers
    call: Integers
    progress: Floats
    typical: Floats
    local_ns: Integers
    step: Integers
    call_instance: Integers
    call_before: Integers
    call_queued: NDArray[np.bool_]
    transfer_ns: Floats
    size_bytes: Floats
    alpha_ns: Floats
    fixed_ns: Floats
    median_ns: Floats
    base_ns: Floats
    ranks: Integers
    steps: Integers
    observed_ns: float
    matched_ratio: float = 1.0
    """Share of communication time in whole instances: the rest holds nobody up in a replay."""

    def matrix(self, rows: pl.DataFrame) -> Floats:
        """[rank, step] of ``scale`` in rows (rank, step, scale); 1 where there is none."""
        result = np.ones((len(self.ranks), len(self.steps)))
        mine = rows.filter(pl.col("rank").is_in(self.ranks.tolist()) & pl.col("step").is_in(self.steps.tolist()))
        by_number = np.argsort(self.steps)
        column = by_number[np.searchsorted(self.steps[by_number], mine.get_column("step").to_numpy())]
        result[np.searchsorted(self.ranks, mine.get_column("rank").to_numpy()), column] = mine.get_column(
            "scale"
        ).to_numpy()
        return result


class _Axis(NamedTuple):
    """One time axis for all ranks: each rank's window in a stretch of its own."""

    first: Integers
    stride: int

    def place(self, rank: Integers, time_ns: Integers) -> Integers:
        """Place of a time of a rank, clipped to its window."""
        result: Integers = rank * self.stride + np.clip(time_ns - self.first[rank], 0, self.stride - 1)
        return result


def build_schedule(
    calls: pl.DataFrame,
    members: pl.DataFrame,
    collective: pl.DataFrame,
    steps: pl.DataFrame,
    kernels: pl.DataFrame | None = None,
) -> Schedule | None:
    """The schedule of the steps given, all ranks together; None without a matched collective.

    Args:
        calls: comm_call rows (rank, call, step, stream, start_ns, dur_ns, ready_ns, collective, is_p2p, exposed_from_ns,
            exposed_to_ns, exposed_late_ns): what is exposed before the host launches what follows is local progress.
        members: collective_rank rows (instance, rank, call, start_ns aligned).
        collective: whole collectives (instance, transfer_ns, msg_bytes, alpha_ns, fixed_ns, median_ns).
        steps: step rows of normal steps (rank, step, start_ns, end_ns).
        kernels: compute kernels of these steps (rank, step, start_ns, dur_ns, typical_ns), for ``typical``.
    """
    calls = calls.join(steps.select("rank", "step"), on=["rank", "step"]).sort("rank", "start_ns")
    if calls.is_empty() or steps.is_empty():
        return None
    calls = calls.with_columns(pl.coalesce("exposed_late_ns", "exposed_from_ns").alias("exposed_from_ns"))
    aligned = members.select("rank", "call", "instance", pl.col("start_ns").alias("aligned_ns"))
    placed = calls.join(aligned, on=["rank", "call"], how="left", maintain_order="left").join(
        collective.select("instance", "transfer_ns", "msg_bytes", "alpha_ns", "fixed_ns", "median_ns"),
        on="instance", how="left", maintain_order="left",
    )  # fmt: skip
    if placed.get_column("transfer_ns").null_count() == len(placed):
        return None
    # Members end one by one: each completes its own time after the last arrival. The shortest duration bounds it below.
    after = pl.col("aligned_ns") + pl.col("dur_ns") - pl.col("aligned_ns").max().over("instance")
    floor = pl.when(pl.col("is_p2p")).then(0).otherwise(pl.min_horizontal("transfer_ns", "dur_ns"))
    known = pl.col("transfer_ns").is_not_null()
    matched = placed.select((pl.col("dur_ns") * known).sum() / pl.col("dur_ns").sum()).item() or 0.0
    placed = placed.with_columns(pl.when(known).then(pl.max_horizontal(after, floor)).alias("transfer_ns"))
    shift = (
        placed.filter(pl.col("aligned_ns").is_not_null()).group_by("rank")
        .agg((pl.col("aligned_ns") - pl.col("start_ns")).median().alias("shift"))
    )  # fmt: skip
    placed = placed.join(shift, on="rank", how="left", maintain_order="left").with_row_index("row")
    # A call without whole instance is an instance of its own, as long as it was.
    own = pl.col("row").cast(pl.Int64) + (placed.get_column("instance").max() or 0) + 1
    placed = placed.with_columns(
        pl.col("shift").fill_null(0), pl.when(known).then(pl.col("instance")).otherwise(own).alias("instance"),
        pl.when(known).then(pl.col("transfer_ns")).otherwise(pl.col("dur_ns")).alias("transfer_ns"),
    )  # fmt: skip
    return _events(placed, steps, kernels)._replace(matched_ratio=float(matched))


def chosen_steps(steps: pl.DataFrame, calls: int) -> list[int]:
    """Steps that every rank has, in order, as many as the event budget allows, from the middle.

    Args:
        steps: step rows of normal steps (rank, step, start_ns).
        calls: calls of all ranks in all of them.
    """
    ranks = steps.get_column("rank").n_unique()
    common = (
        steps.group_by("step").agg(pl.len().alias("n"), pl.col("start_ns").min().alias("at"))
        .filter(pl.col("n") == ranks).sort("at").get_column("step").to_list()
    )  # fmt: skip
    if not common:
        return []
    per_step = max(calls / max(steps.get_column("step").n_unique(), 1), 1)
    keep = max(int(MAX_EVENTS / (2 * per_step)), 1)
    first = max((len(common) - keep) // 2, 0)
    return common[first : first + keep]


def _events(placed: pl.DataFrame, steps: pl.DataFrame, kernels: pl.DataFrame | None) -> Schedule:
    windows = steps.group_by("rank").agg(pl.col("start_ns").min().alias("first"), pl.col("end_ns").max().alias("last"))
    windows = windows.join(placed.group_by("rank").agg(pl.col("shift").first()), on="rank").sort("rank")
    ranks = windows.get_column("rank").to_numpy().astype(np.int64)
    first, last = windows.get_column("first").to_numpy(), windows.get_column("last").to_numpy()
    offset = windows.get_column("shift").to_numpy().astype(np.float64)
    pauses = pauses_before(steps)
    numbers, idle = pauses.get_column("step").to_numpy(), pauses.get_column("idle").to_numpy()
    start, duration = placed.get_column("start_ns").to_numpy(), placed.get_column("dur_ns").to_numpy()
    row_rank = np.searchsorted(ranks, placed.get_column("rank").to_numpy())
    by_number = np.argsort(numbers)  # steps in time need not be numbered upward
    step = by_number[np.searchsorted(numbers[by_number], placed.get_column("step").to_numpy())]
    blocks = _blocking(placed, duration)
    axis = _Axis(first, int((last - first).max()) + int(duration.max(initial=0)) + 2)
    stretch = np.flatnonzero(blocks)
    waits = _waits(placed, axis, row_rank, start, blocks)
    before = _follows(row_rank, placed.get_column("stream").to_numpy(), start, duration)
    ready = placed.get_column("ready_ns").fill_null(placed.get_column("start_ns")).to_numpy()
    behind = (before >= 0) & (ready < start) & (start <= start[before] + duration[before] + _QUEUE_NS)
    queued, marks = np.flatnonzero(behind), np.arange(len(ranks))
    rank = np.concatenate((row_rank, row_rank[stretch], marks, row_rank[queued]))
    local = np.concatenate((start, start[stretch] + duration[stretch], last, ready[queued]))
    sizes = ((ARRIVE, len(start)), (BLOCK, len(stretch)), (MARK, len(ranks)), (READY, len(queued)))
    kind = np.concatenate([np.full(count, one, np.int8) for one, count in sizes])
    call = np.concatenate((np.arange(len(start)), stretch, np.full(len(ranks), -1), queued))
    steps_of = np.concatenate((step, step[stretch], np.full(len(ranks), len(numbers) - 1), step[queued]))
    at = axis.place(rank, local)
    progress = (
        at - rank * axis.stride - covered_ns(waits, rank * axis.stride, np.maximum(at, rank * axis.stride))
    ).astype(np.float64)
    progress -= idle[steps_of]
    typical = progress if kernels is None else progress + _gained(kernels, axis, ranks, numbers, rank, at)
    origin = int(start.min())
    time = (local - origin) + offset[rank]
    instance = np.unique(placed.get_column("instance").to_numpy(), return_inverse=True)[1].astype(np.int64)
    fixed, least, median = (
        placed.get_column(name).cast(pl.Float64).fill_null(float("nan")).to_numpy()
        for name in ("alpha_ns", "fixed_ns", "median_ns")
    )
    order = causal_order(np.lexsort((kind, time)), kind == ARRIVE, kind == BLOCK, rank, instance[call])
    return Schedule(
        kind[order], rank[order].astype(np.int64), call[order].astype(np.int64), progress[order], typical[order], local[order], steps_of[order].astype(np.int64),
        instance, before, behind,
        placed.get_column("transfer_ns").to_numpy().astype(np.float64), placed.get_column("msg_bytes").fill_null(0).to_numpy().astype(np.float64),
        fixed, least, median, first - origin + offset, ranks, numbers,
        float((last - first).max() - idle.max(initial=0)),
    )  # fmt: skip


def _gained(
    kernels: pl.DataFrame, axis: _Axis, ranks: Integers, steps: Integers, rank: Integers, at: Integers
) -> Floats:
    """Progress gained before each place of the axis, since the start of its rank, with kernels at their typical durations."""
    mine = kernels.filter(pl.col("rank").is_in(ranks.tolist()) & pl.col("step").is_in(steps.tolist())).sort(
        "rank", "start_ns"
    )
    of, start = np.searchsorted(ranks, mine.get_column("rank").to_numpy()), mine.get_column("start_ns").to_numpy()
    low, high = axis.place(of, start), axis.place(of, start + mine.get_column("dur_ns").to_numpy())
    typical = mine.get_column("typical_ns").to_numpy()
    return gained(low, high, typical, at) - gained(low, high, typical, rank * axis.stride)


def _blocking(placed: pl.DataFrame, duration: Integers) -> NDArray[np.bool_]:
    """Calls that are exposed until their end. A send is not waited for; what looks exposed beside it is another's doing."""
    to = placed.get_column("exposed_to_ns").list.last().fill_null(-1).to_numpy()
    since = placed.get_column("exposed_from_ns").list.last().fill_null(0).to_numpy()
    near_end = to >= duration - np.maximum(_TAIL_NS, _TAIL_RATIO * duration)
    result: NDArray[np.bool_] = near_end & (to > since) & (placed.get_column("collective") != "send").to_numpy()
    return result


def _waits(placed: pl.DataFrame, axis: _Axis, row_rank: Integers, start: Integers, blocks: NDArray[np.bool_]) -> Merged:
    """Exposed stretches of blocking calls on the common axis."""
    pieces = (
        placed.select("row", "exposed_from_ns", "exposed_to_ns").filter(pl.Series(blocks))
        .explode("exposed_from_ns", "exposed_to_ns").drop_nulls()
    )  # fmt: skip
    row = pieces.get_column("row").to_numpy().astype(np.int64)
    low = axis.place(row_rank[row], start[row] + pieces.get_column("exposed_from_ns").to_numpy())
    high = axis.place(row_rank[row], start[row] + pieces.get_column("exposed_to_ns").to_numpy())
    return merge(low, high)


def _follows(rank: Integers, stream: Integers, start: Integers, duration: Integers) -> Integers:
    """For each call the call before it on its stream, -1 for none or when the two overlapped: then nothing orders them."""
    order = np.lexsort((start, stream, rank))
    before = np.full(len(order), -1, np.int64)
    if len(order) > 1:
        one, two = order[:-1], order[1:]
        same = (rank[one] == rank[two]) & (stream[one] == stream[two])
        before[two] = np.where(same & (start[two] >= start[one] + duration[one]), one, -1)
    return before
