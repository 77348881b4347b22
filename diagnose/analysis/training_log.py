"""The whole run as its log tells it: slow periods, trend, jitter, restarts, goodput, and where the profile lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOW_RATIO = 1.25
"""A step counts as slow from 1.25 times the usual one: three robust sigmas of a quiet run lie well below."""

JITTER_SIGMAS = 4.0
MIN_SLOW_STEPS = 3
MIN_STEPS = 10
PERIOD_TOLERANCE = 0.2
TREND_P = 0.01
TREND_RATIO = 0.03


class Tables(Protocol):
    """The reading half of a store."""

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Run a SELECT."""
        ...


class SlowPeriod(msgspec.Struct, frozen=True):
    """Consecutive slow steps; ``lost_ns`` is their time over the usual step's. Times may be unknown."""

    first_step: int
    last_step: int
    start_ns: int | None
    end_ns: int | None
    median_ns: int
    ratio: float
    lost_ns: int
    profiled: bool | None


class Spikes(msgspec.Struct, frozen=True):
    """Single slow steps; ``every`` is their period in steps when they come regularly (checkpoints, evaluation)."""

    count: int
    every: int | None
    median_ns: int
    lost_ns: int
    steps: tuple[int, ...]


class Restart(msgspec.Struct, frozen=True):
    """The step number jumped back: ``repeated`` steps were done twice, ``down_ns`` passed without a step."""

    at_step: int
    from_step: int
    repeated: int
    down_ns: int | None


class Profile(msgspec.Struct, frozen=True):
    """Where the profiled window lies in the logged run."""

    first_step: int
    last_step: int
    logged_steps: int
    median_ns: int
    ratio_to_run: float
    """Median step in the window over that of the rest: far from 1, the profile shows another run than the job had."""


class TrainingSummary(msgspec.Struct, frozen=True):
    """One logged run. Durations in nanoseconds, ratios as ratios."""

    rank: int | None
    steps: int
    first_step: int
    last_step: int
    wall_ns: int | None
    median_ns: int
    p95_ns: int
    jitter_ratio: float
    """Robust standard deviation of usual steps over their median."""
    trend_ratio: float | None
    """Growth of the usual step from begin to end of the run, null when not significant."""
    slow_periods: tuple[SlowPeriod, ...]
    spikes: Spikes | None
    restarts: tuple[Restart, ...]
    goodput_ratio: float | None
    """Time of distinct steps at the usual duration over the wall time."""
    profile: Profile | None
    throughput: float | None
    throughput_unit: str | None


def training_summary(tables: Tables) -> TrainingSummary | None:
    """The summary of the rank that logged most (the lowest such rank), None without enough timed steps."""
    rows = reference_log(tables)
    profiled = _profiled_steps(tables)
    return summarise_log(rows, profiled)


def reference_log(tables: Tables) -> pl.DataFrame:
    """The log of one rank: the one with most steps, the lowest rank among equals."""
    counts = tables.query(
        "SELECT source, rank, count(*) AS n FROM training_log WHERE step IS NOT NULL GROUP BY ALL "
        "ORDER BY n DESC, rank NULLS LAST, source LIMIT 1"
    )
    if counts.is_empty():
        return pl.DataFrame()
    source, rank, _ = counts.row(0)
    rows = tables.query("SELECT * FROM training_log WHERE source = $source AND step IS NOT NULL", {"source": source})
    return rows.filter(pl.col("rank").eq_missing(pl.lit(rank))).sort("restart", "step")


def summarise_log(rows: pl.DataFrame, profiled: tuple[int, int] | None = None) -> TrainingSummary | None:
    """The summary of one rank's rows, ordered by restart and step; ``profiled`` are first and last profiled step."""
    if rows.is_empty():
        return None
    timed = rows.filter(pl.col("step_time_ns").is_not_null())
    if timed.height < MIN_STEPS:
        return None
    durations = timed.get_column("step_time_ns").to_numpy().astype(float)
    usual = float(np.median(durations))
    sigma = 1.4826 * float(np.median(np.abs(durations - usual)))
    limit = max(SLOW_RATIO * usual, usual + JITTER_SIGMAS * sigma)
    slow = durations > limit
    normal = durations[~slow]
    periods, single = _split(timed, slow, usual, profiled)
    wall = _wall(rows)
    distinct = rows.get_column("step").n_unique()
    first, last = int(rows.get_column("step")[0]), int(rows.get_column("step").max() or 0)  # type: ignore[arg-type]
    units = rows.get_column("throughput_unit").drop_nulls()
    middle = rows.get_column("throughput").median()
    return TrainingSummary(
        rank=rows.get_column("rank")[0],
        steps=rows.height,
        first_step=first,
        last_step=last,
        wall_ns=wall,
        median_ns=round(usual),
        p95_ns=round(float(np.quantile(durations, 0.95))),
        jitter_ratio=round(sigma / usual, 4) if usual else 0.0,
        trend_ratio=_trend(normal),
        slow_periods=periods,
        spikes=single,
        restarts=_restarts(rows),
        goodput_ratio=None if not wall else round(min(1.0, distinct * usual / wall), 4),
        profile=_profile(timed, profiled),
        throughput=float(middle) if isinstance(middle, int | float) else None,
        throughput_unit=units[0] if len(units) else None,
    )


def _split(
    timed: pl.DataFrame, slow: NDArray[np.bool_], usual: float, profiled: tuple[int, int] | None
) -> tuple[tuple[SlowPeriod, ...], Spikes | None]:
    """Runs of slow steps as periods, shorter ones as spikes."""
    durations = timed.get_column("step_time_ns").to_numpy().astype(float)
    steps = timed.get_column("step").to_list()
    times = timed.get_column("t_ns").to_list()
    periods: list[SlowPeriod] = []
    single: list[int] = []
    index = 0
    while index < len(slow):
        end = index
        while end < len(slow) and slow[end]:
            end += 1
        if end - index >= MIN_SLOW_STEPS:
            part = durations[index:end]
            start = times[index] - int(durations[index]) if times[index] is not None else None
            periods.append(
                SlowPeriod(
                    first_step=steps[index],
                    last_step=steps[end - 1],
                    start_ns=start,
                    end_ns=times[end - 1],
                    median_ns=round(float(np.median(part))),
                    ratio=round(float(np.median(part)) / usual, 3),
                    lost_ns=round(float((part - usual).sum())),
                    profiled=None
                    if profiled is None
                    else steps[index] <= profiled[1] and steps[end - 1] >= profiled[0],
                )
            )
        else:
            single += range(index, end)
        index = max(end, index + 1)
    return tuple(periods), _spikes(single, steps, durations, usual)


def _spikes(single: list[int], steps: list[int], durations: NDArray[np.float64], usual: float) -> Spikes | None:
    if not single:
        return None
    numbers = [steps[place] for place in single]
    gaps = np.diff(numbers)
    every = None
    if len(gaps) >= 2:
        middle = float(np.median(gaps))
        regular = np.abs(gaps - middle) <= max(1.0, PERIOD_TOLERANCE * middle)
        if middle >= 2 and regular.mean() >= 0.75:
            every = round(middle)
    values = durations[single]
    return Spikes(
        len(single), every, round(float(np.median(values))), round(float((values - usual).sum())), tuple(numbers[:50])
    )


def _trend(normal: NDArray[np.float64]) -> float | None:
    """Theil-Sen growth over the run as a share of its start, when Kendall's test says it is no chance."""
    from scipy import stats

    if len(normal) < 2 * MIN_STEPS:
        return None
    thinned = normal[:: max(1, len(normal) // 500)]
    place = np.arange(len(thinned))
    if np.ptp(thinned) == 0:
        return None
    _, p_value = stats.kendalltau(place, thinned)
    slope, intercept, _, _ = stats.theilslopes(thinned, place)
    growth = float(slope * (len(thinned) - 1) / intercept) if intercept > 0 else 0.0
    return round(growth, 4) if p_value < TREND_P and abs(growth) >= TREND_RATIO else None


def _restarts(rows: pl.DataFrame) -> tuple[Restart, ...]:
    found: list[Restart] = []
    for number in range(1, int(rows.get_column("restart").max() or 0) + 1):  # type: ignore[arg-type]
        before, after = rows.filter(pl.col("restart") == number - 1), rows.filter(pl.col("restart") == number)
        if before.is_empty() or after.is_empty():
            continue
        last, first = int(before.get_column("step")[-1]), int(after.get_column("step")[0])
        ended, began = before.get_column("t_ns")[-1], after.get_column("t_ns")[0]
        down = None if ended is None or began is None else int(began - ended)
        found.append(Restart(at_step=first, from_step=last, repeated=max(0, last - first + 1), down_ns=down))
    return tuple(found)


def _wall(rows: pl.DataFrame) -> int | None:
    times = rows.get_column("t_ns").drop_nulls()
    if len(times) < 2:
        return None
    first = rows.get_column("step_time_ns")[0] or 0
    low, high = times.min(), times.max()
    return int(high - low + first) if isinstance(low, int) and isinstance(high, int) else None


def _profile(timed: pl.DataFrame, profiled: tuple[int, int] | None) -> Profile | None:
    if profiled is None:
        return None
    within = pl.col("step").is_between(*profiled)
    inside, outside = timed.filter(within), timed.filter(~within)
    if inside.is_empty() or outside.is_empty():
        return None
    here, there = inside.get_column("step_time_ns").median(), outside.get_column("step_time_ns").median()
    if not isinstance(here, int | float) or not isinstance(there, int | float) or not there:
        return None
    return Profile(profiled[0], profiled[1], timed.height, round(here), round(here / there, 4))


def _profiled_steps(tables: Tables) -> tuple[int, int] | None:
    """Profiled steps by their numbers where the log has them at the same times, else by the times."""
    row = tables.query(
        "SELECT min(l.step), max(l.step) FROM training_log l, "
        "(SELECT min(coalesce(host_start_ns, start_ns)) AS low, max(coalesce(end_ns, host_end_ns)) AS high "
        "FROM step) w "
        "WHERE l.t_ns BETWEEN w.low AND w.high"
    ).row(0)
    return None if row[0] is None else (int(row[0]), int(row[1]))
