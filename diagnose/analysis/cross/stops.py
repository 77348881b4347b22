"""Stops at a regular distance in the training log: saving a checkpoint, evaluating."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

_SLOW_RATIO = 1.5
_MAX_SHARE = 0.25
"""Stops in more than a quarter of the steps are how the job runs, not an event in it."""

_ROUND = 5
"""People save every 5, 10, 50, 100 ... steps; collection of garbage knows no round numbers."""


class Stops(NamedTuple):
    """``every`` in steps; ``spans`` [start, end] in unix nanoseconds, where the log has times; ``lost_ns`` in all."""

    every: int
    steps: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    lost_ns: int
    logged_steps: int


def regular_stops(log: pl.DataFrame) -> Stops | None:
    """Stops of one rank's log, None when single slow steps are not at a regular, round distance.

    Args:
        log: rows of one rank with step, t_ns (end of the step), step_time_ns.
    """
    if log.is_empty():
        return None
    rows = log.filter(pl.col("step").is_not_null() & (pl.col("step_time_ns") > 0)).sort("step")
    if len(rows) < 2 * _ROUND:
        return None
    step, length = rows.get_column("step").to_numpy(), rows.get_column("step_time_ns").to_numpy()
    usual = float(np.median(length))
    slow = np.flatnonzero(length > _SLOW_RATIO * usual)
    slow = slow[step[slow] > step[0] + 1]  # the first steps warm up
    if len(slow) < 2 or len(slow) > _MAX_SHARE * len(rows):
        return None
    every = round(float(np.median(np.diff(step[slow]))))
    if every < _ROUND or every % _ROUND:
        return None
    phase = step[slow] % every
    usual_phase = int(np.bincount(phase).argmax())
    regular = phase == usual_phase
    if usual_phase not in (0, 1, every - 1) or regular.sum() < 2 or regular.mean() < 0.75:
        return None
    hit = slow[regular]
    times = rows.get_column("t_ns").to_list()
    spans = tuple(
        (times[place] - int(length[place]), times[place]) for place in hit.tolist() if times[place] is not None
    )
    return Stops(every, tuple(step[hit].tolist()), spans, round(float((length[hit] - usual).sum())), len(rows))


def profiled_stops(stops: Stops | None, steps: pl.DataFrame) -> frozenset[int]:
    """Profiled steps that lie at such stops: by their numbers, or by time where the profiler counts otherwise.

    Args:
        stops: regular stops.
        steps: step rows (step, host_start_ns, host_end_ns).
    """
    if stops is None or steps.is_empty():
        return frozenset()
    numbers = set(steps.get_column("step").unique().to_list())
    found = numbers & set(stops.steps)
    middle = steps.select("step", ((pl.col("host_start_ns") + pl.col("host_end_ns")) // 2).alias("middle"))
    for start, end in stops.spans:
        found |= set(middle.filter(pl.col("middle").is_between(start, end)).get_column("step").to_list())
    return frozenset(found)
