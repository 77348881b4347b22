"""Parts of a replayable schedule: the order of its events, the time outside its steps, its kernels at typical durations."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


def pauses_before(steps: pl.DataFrame) -> pl.DataFrame:
    """Per step the time before it in which no rank was in any of the steps: what lies there is no part of the schedule.

    Args:
        steps: step, start_ns, end_ns of all ranks.
    """
    each = steps.group_by("step").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).sort("start_ns")
    idle = (pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1)).fill_null(0).clip(lower_bound=0)
    return each.select("step", idle.cum_sum().alias("idle"))


def causal_order(
    order: Integers, arrives: NDArray[np.bool_], blocks: NDArray[np.bool_], rank: Integers, instance: Integers
) -> Integers:
    """The order with no block before the arrivals that it waits for, which clocks that disagree put after it.

    Each rank keeps its own order: it stops at such a block until all have arrived. Ranks that stop for each other (calls
    matched wrongly) go on in the order given.

    Args:
        order: events by observed time.
        arrives: events at which a call of a rank starts.
        blocks: events at which a rank waits for the end of a call.
        rank: rank of each event.
        instance: instance of its call; unused where it is neither.
    """
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    last = np.full(int(instance.max(initial=0)) + 1, -1)
    np.maximum.at(last, instance[arrives], place[arrives])
    if (last[instance[blocks]] < place[blocks]).all():
        return order
    missing = np.bincount(instance[arrives], minlength=len(last)).tolist()
    queues: dict[int, deque[int]] = {}
    for event in order.tolist():
        queues.setdefault(int(rank[event]), deque()).append(event)
    arrive, block, what = arrives.tolist(), blocks.tolist(), instance.tolist()
    ready = [(int(place[queue[0]]), one) for one, queue in queues.items()]
    heapify(ready)
    stopped: dict[int, list[int]] = {}
    result = []
    while ready or stopped:
        forced = not ready
        one = _freed(stopped, queues, place) if forced else heappop(ready)[1]
        event = queues[one][0]
        if block[event] and missing[what[event]] and not forced:
            stopped.setdefault(what[event], []).append(one)
            continue
        result.append(queues[one].popleft())
        if arrive[event]:
            missing[what[event]] -= 1
            if not missing[what[event]]:
                for waiting in stopped.pop(what[event], ()):
                    heappush(ready, (int(place[queues[waiting][0]]), waiting))
        if queues[one]:
            heappush(ready, (int(place[queues[one][0]]), one))
    return np.array(result, np.int64)


def _freed(stopped: dict[int, list[int]], queues: dict[int, deque[int]], place: Integers) -> int:
    """Takes the rank whose block comes first out of those that stopped."""
    _, one, key = min((int(place[queues[one][0]]), one, key) for key, held in stopped.items() for one in held)
    stopped[key].remove(one)
    if not stopped[key]:
        del stopped[key]
    return one


def gained(start: Integers, end: Integers, typical: Floats, times: Integers) -> Floats:
    """What kernels would add before each time at their typical durations; of two at once the first counts.

    Args:
        start: starts of the kernels, ascending.
        end: their ends.
        typical: durations that they would have.
        times: where to look.
    """
    if not len(start):
        return np.zeros(len(times))
    begin = np.maximum(start, np.concatenate(([start[0]], np.maximum.accumulate(end)[:-1])))
    length = np.maximum(end - begin, 0).astype(np.float64)
    gain = length * (typical / np.maximum(end - start, 1) - 1)
    total = np.concatenate(([0.0], np.cumsum(gain)))
    place = np.searchsorted(begin, times, side="right")
    now = np.maximum(place - 1, 0)
    part = np.clip((times - begin[now]) / np.maximum(length[now], 1.0), 0.0, 1.0)
    return np.asarray(np.where(place > 0, total[now] + part * gain[now], 0.0))
