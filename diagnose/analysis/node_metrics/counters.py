"""Counters to increases and rates: resets, saturation, and series that several readers saw."""

from __future__ import annotations

import re

import polars as pl

SERIES = ("metric", "host", "entity")
_BEFORE = r"(?i)(?:^|[/_.!-])(?:before|start|pre)(?:[/_.-]|$)"
_AFTER = r"(?i)(?:^|[/_.!-])(?:after|end|post)(?:[/_.-]|$)"
LATE_ORDER = 1 << 62


def with_order(frame: pl.DataFrame) -> pl.DataFrame:
    """A column ``order``: the time, else whether the file says it was taken before or after the run, else null."""
    phase = (
        pl.when(pl.col("source").str.contains(_AFTER))
        .then(pl.lit(LATE_ORDER))
        .when(pl.col("source").str.contains(_BEFORE))
        .then(pl.lit(0))
        .otherwise(pl.lit(None, dtype=pl.Int64))
    )
    return frame.with_columns(pl.coalesce("t_ns", phase).alias("order"))


def one_reader(frame: pl.DataFrame) -> pl.DataFrame:
    """Of a series that several readers saw (a scrape and a range query of it), the one with the most samples.

    Their samples lie on different clocks' grids: mixed, a counter would seem to fall.
    """
    counts = frame.group_by(*SERIES, "format").agg(pl.len().alias("samples"))
    best = (
        counts.sort([*SERIES, "samples", "format"], descending=[False, False, False, True, False], nulls_last=True)
        .group_by(*SERIES, maintain_order=True)
        .agg(pl.col("format").first())
    )
    return frame.join(best, on=[*SERIES, "format"], how="semi", nulls_equal=True)


def deltas(frame: pl.DataFrame) -> pl.DataFrame:
    """Every sample of ordered series with its increase over the one before.

    Adds ``delta`` (null for the first sample and next to a saturated one), ``dt_ns``, ``prev_t_ns`` and ``reset``. A
    value that fell is a reset: the new value is the increase. Samples without order or value are left out.
    """
    known = frame.filter(pl.col("order").is_not_null() & pl.col("value").is_not_null()).sort(
        [*SERIES, "order"], nulls_last=True, maintain_order=True
    )
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in SERIES)
    before = pl.when(same).then(pl.col("value").shift(1))
    full = (pl.col("quality") == "saturated") | (pl.col("quality").shift(1) == "saturated")
    fell = pl.col("value") < before
    return known.with_columns(
        pl.when(before.is_null() | full)
        .then(None)
        .when(fell)
        .then(pl.col("value"))
        .otherwise(pl.col("value") - before)
        .alias("delta"),
        pl.when(same).then(pl.col("t_ns") - pl.col("t_ns").shift(1)).alias("dt_ns"),
        pl.when(same).then(pl.col("t_ns").shift(1)).alias("prev_t_ns"),
        fell.fill_null(value=False).alias("reset"),
    )


def rates(frame: pl.DataFrame) -> pl.DataFrame:
    """Increases per second of timed counters: series, t_ns, rate, unit per second."""
    moved = deltas(with_order(frame)).filter(pl.col("delta").is_not_null() & (pl.col("dt_ns") > 0))
    return moved.select(*SERIES, "t_ns", (pl.col("delta") * 1e9 / pl.col("dt_ns")).alias("rate"))


def summarise(frame: pl.DataFrame, window: tuple[int, int] | None) -> pl.DataFrame:
    """One row a series over the window (all of it when None, or when no sample of the series lies in it).

    Columns: samples, nulls, saturated, resets, first_t_ns, last_t_ns, low, high, median, last, increase, span_ns
    (time that ``increase`` covers), in_window, and snapshot: a counter with nothing to subtract from.
    """
    if frame.is_empty():
        return frame.clear().select(*SERIES)
    chosen = one_reader(with_order(frame))
    moved = deltas(chosen)
    inside = _inside(window)
    touches = (
        pl.lit(value=True) if window is None else (pl.col("t_ns") >= window[0]) & (pl.col("prev_t_ns") <= window[1])
    )
    counters = _counter_part(moved, touches)
    levels = _level_part(chosen, inside)
    return (
        levels.join(counters, on=list(SERIES), how="left", nulls_equal=True)
        .with_columns(
            pl.when(pl.col("kind") == "window").then(pl.col("total")).otherwise(pl.col("increase")).alias("increase"),
            pl.col("resets").fill_null(0),
        )
        .with_columns(((pl.col("kind") == "counter") & pl.col("increase").is_null()).alias("snapshot"))
        .drop("total")
        .sort(list(SERIES), nulls_last=True)
    )


def _inside(window: tuple[int, int] | None) -> pl.Expr:
    if window is None:
        return pl.lit(value=True)
    return pl.col("t_ns").is_between(window[0], window[1])


def _counter_part(moved: pl.DataFrame, touches: pl.Expr) -> pl.DataFrame:
    """Increases of the intervals that touch the window, else of all."""
    touching = moved.with_columns(touches.fill_null(value=True).alias("use"))
    grouped = touching.with_columns(
        (pl.col("use") & pl.col("delta").is_not_null()).any().over(list(SERIES)).alias("hits")
    )
    used = grouped.filter((pl.col("use") | ~pl.col("hits")) & pl.col("delta").is_not_null())
    return used.group_by(list(SERIES)).agg(
        pl.col("delta").sum().alias("increase"),
        pl.col("dt_ns").sum().alias("span_ns"),
        pl.col("reset").sum().cast(pl.Int64).alias("resets"),
    )


def _level_part(chosen: pl.DataFrame, inside: pl.Expr) -> pl.DataFrame:
    marked = chosen.with_columns(inside.fill_null(value=False).alias("in"))
    marked = marked.with_columns(pl.col("in").any().over(list(SERIES)).alias("in_window"))
    used = marked.filter(pl.col("in") | ~pl.col("in_window")).sort("order", nulls_last=True, maintain_order=True)
    value = pl.col("value")
    return used.group_by(list(SERIES), maintain_order=True).agg(
        pl.col("unit").first(),
        pl.col("kind").first(),
        pl.len().alias("samples"),
        value.null_count().cast(pl.Int64).alias("nulls"),
        (pl.col("quality") == "saturated").sum().cast(pl.Int64).alias("saturated"),
        pl.col("t_ns").min().alias("first_t_ns"),
        pl.col("t_ns").max().alias("last_t_ns"),
        value.min().alias("low"),
        value.max().alias("high"),
        value.median().alias("median"),
        value.drop_nulls().last().alias("last"),
        value.sum().alias("total"),
        pl.col("in_window").first(),
        pl.col("source").first(),
    )


def base_entity(entity: str) -> str:
    """The device of an entity: links, priorities and instances are parts of it."""
    return re.sub(r"/(?:link|prio|gi|mode|cpu|error).*$", "", entity)
