"""Charts of time: stacked parts, heat maps, lines. Times come in ns and are drawn in the unit a person would choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import altair as alt
import polars as pl
from text import time_unit
from theme import COLOURS, DIVERGING, LABELS, PEER_COLOUR, RANK_COLOUR, REFERENCE_COLOUR, SEQUENTIAL

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LABELLED = 30
AXIS_PX, LEGEND_PX, LEGEND_LINE_PX, LEGEND_WIDTH_PX = 68, 44, 26, 860
"""What the axis with its title, and a legend without its lines, take of a chart's height."""
WIDE_LABEL = 420
"""Pixels: names of hosts and kernels are never cut."""


def names_axis(overlap: Literal["greedy"] | None = None) -> alt.Axis:
    """An axis of names, each in the middle of its row and in full; ``greedy`` leaves out those that would overlap."""
    return alt.Axis(labelLimit=WIDE_LABEL, labelOverlap=overlap or False, labelFlush=False)


def part_colours(parts: Sequence[str], columns: int = 5) -> alt.Color:
    """The palette of the parts that occur, always in the same order."""
    found = set(parts)
    known = [(name, colour) for name, colour in zip(LABELS, COLOURS, strict=True) if name in found]
    scale = alt.Scale(domain=[name for name, _ in known], range=[colour for _, colour in known])
    return alt.Color(
        "part:N", scale=scale, legend=alt.Legend(title=None, orient="top", columns=columns, labelLimit=0, symbolLimit=0)
    )


def parts_across(
    rows: pl.DataFrame, *, title: str = "time per step", sort: list[str] | None = None, columns: int = 5
) -> alt.LayerChart:
    """Horizontal stacked bars, one a ``place``, letters inside wide segments."""
    divisor, unit = time_unit(_longest(rows))
    drawn = _stacked(rows, divisor)
    limit = (drawn.get_column("end").max() or 0) * 0.025
    y = alt.Y("place:N", sort=sort, title=None, axis=names_axis())
    base = alt.Chart(drawn).encode(y=y)
    bars = base.mark_bar(height={"band": 0.8}).encode(
        x=alt.X("start:Q", title=f"{title} ({unit})", axis=alt.Axis(format=",.4~f")), x2="end:Q", color=part_colours(drawn["part"].to_list(), columns),
        tooltip=[alt.Tooltip("place:N", title="of"), alt.Tooltip("part:N"), alt.Tooltip("value:Q", title=f"time ({unit})", format=",.3~f"), alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    letters = base.transform_filter(alt.datum.value > limit).mark_text(fontSize=11, fontWeight="bold").encode(
        x="middle:Q", text="letter:N", color=alt.condition("datum.letter == 'C'", alt.value("#fff"), alt.value("#111")),
    )  # fmt: skip
    return (bars + letters).properties(
        height=rows_height(
            drawn.get_column("place").n_unique(), 26, legend=-(-drawn.get_column("part").n_unique() // columns)
        )
    )


def parts_along(rows: pl.DataFrame, *, title: str, places: list[str], off: bool = False) -> alt.LayerChart:
    """Upright stacked bars along ``place`` (steps, hosts); with ``off`` the bars that no median uses are faded."""
    divisor, unit = time_unit(_longest(rows.filter(pl.col("counted")) if off and rows["counted"].any() else rows))
    drawn = _stacked(rows, divisor)
    counted = drawn.filter(pl.col("counted")) if off else drawn
    top = (counted if len(counted) else drawn).get_column("end").max() or 1
    scale = alt.Scale(domain=[0, top * (1.05 if not off or drawn["counted"].all() else 1.45)], nice=False)
    extra = [alt.Tooltip("labels:N", title="label")] if off else []
    base = alt.Chart(drawn).encode(
        x=alt.X(
            "place:N",
            sort=places,
            title=title,
            axis=alt.Axis(labelOverlap="greedy", labelAngle=-40 if _wide(places) else 0, labelLimit=WIDE_LABEL),
        )
    )
    bars = base.mark_bar(clip=True).encode(
        y=alt.Y("start:Q", title=f"time per step ({unit})", scale=scale), y2="end:Q", color=part_colours(drawn["part"].to_list()),
        opacity=alt.condition("datum.counted", alt.value(1), alt.value(0.35)) if off else alt.value(1),
        tooltip=[alt.Tooltip("place:N", title=title), *extra, alt.Tooltip("part:N"), alt.Tooltip("value:Q", title=f"time ({unit})", format=",.3~f"), alt.Tooltip("share:Q", format=".1%")],
    )  # fmt: skip
    if not off or drawn["counted"].all():
        return alt.layer(bars).properties(height=340)
    marks = (
        drawn.filter(~pl.col("counted"))
        .group_by("place")
        .agg(pl.col("labels").first())
        .with_columns(pl.lit(top * 1.03).alias("y"))
    )
    words = (
        alt.Chart(marks)
        .mark_text(angle=270, align="left", fontSize=12, color=REFERENCE_COLOUR)
        .encode(x=alt.X("place:N", sort=places), y="y:Q", text="labels:N", tooltip=["labels:N"])
    )
    return (bars + words).properties(height=340)


def heat(rows: pl.DataFrame, *, title: str, diverging: bool, selectable: str) -> alt.Chart:
    """Rank (or host) by step; the value in colour and in the tooltip; a click picks a row's ``selectable`` field."""
    largest = rows.get_column("value_ns").abs().max()
    divisor, unit = time_unit(largest)  # type: ignore[arg-type]
    drawn = rows.with_columns((pl.col("value_ns") / divisor).round(4).alias("value"))
    bound = max(float(largest or 0) / divisor, 1e-9)
    scale = (
        alt.Scale(scheme=DIVERGING, domain=[-bound, bound], domainMid=0)
        if diverging
        else alt.Scale(scheme=SEQUENTIAL, domain=[0, bound])
    )
    order = rows.group_by("row").agg(pl.col("row_order").min()).sort("row_order").get_column("row").to_list()
    columns = rows.select("column", "step").unique("column").sort("step").get_column("column").to_list()
    click = alt.selection_point(name="clicked", fields=[selectable], on="click", clear="dblclick")
    height = min(1200, rows_height(len(order), 18 if len(order) <= 60 else 13 if len(order) <= 72 else 7, legend=2))
    return (
        alt.Chart(drawn)
        .mark_rect(stroke=None)
        .encode(
            x=alt.X("column:O", sort=columns, title="step", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
            y=alt.Y(
                "row:N",
                sort=order,
                title=None,
                axis=names_axis() if len(order) <= 2 * MOST_LABELLED else names_axis("greedy"),
            ),
            color=alt.Color(
                "value:Q",
                scale=scale,
                legend=alt.Legend(title=f"{title} ({unit})", orient="top", gradientLength=320, titleLimit=0),
            ),
            tooltip=[
                alt.Tooltip("rank:Q", format="d"),
                "host:N",
                alt.Tooltip("column:O", title="step"),
                alt.Tooltip("value:Q", title=f"{title} ({unit})", format=",.3~f"),
            ],
        )
        .add_params(click)
        .properties(height=height)
    )


def trend(rows: pl.DataFrame, column: str, title: str, *, factor: float = 1.0) -> alt.Chart:
    """One logged value over the steps."""
    drawn = rows.filter(pl.col(column).is_not_null()).with_columns((pl.col(column) * factor).alias("value"))
    return alt.Chart(drawn).mark_line(color=PEER_COLOUR, point=len(drawn) < 60).encode(
        x=alt.X("step:Q", title="step (training log)", axis=alt.Axis(format="d", tickMinStep=1)), y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(format=",.5~g")),
        detail="restart:N", tooltip=["step:Q", alt.Tooltip("value:Q", title=title, format=",.4~g"), "restart:Q"],
    ).properties(height=220)  # fmt: skip


def kernel_over_ranks(rows: pl.DataFrame, rank: int | None) -> alt.LayerChart:
    """Time per call of one kernel on every rank, the chosen rank marked by colour, size and shape."""
    divisor, unit = time_unit(rows.get_column("call_ns").max())  # type: ignore[arg-type]
    drawn = rows.with_columns(
        (pl.col("call_ns") / divisor).alias("value"), (pl.col("rank") == (-9 if rank is None else rank)).alias("chosen")
    )
    tips: list[Any] = [
        "rank:Q",
        "host:N",
        alt.Tooltip("value:Q", title=f"per call ({unit})", format=",.3~f"),
        alt.Tooltip("calls:Q", title="calls"),
    ]
    base = alt.Chart(drawn).encode(
        x=alt.X("rank:Q", title="rank", axis=alt.Axis(format="d", tickMinStep=1)), y=alt.Y("value:Q", title=f"time per call ({unit})", scale=alt.Scale(zero=False)), tooltip=tips
    )  # fmt: skip
    others = base.transform_filter("!datum.chosen").mark_circle(color=PEER_COLOUR, size=45, opacity=0.8)
    mine = base.transform_filter("datum.chosen").mark_point(
        color=RANK_COLOUR, shape="diamond", filled=True, size=140, opacity=1
    )
    middle = alt.Chart(drawn).mark_rule(color=REFERENCE_COLOUR, strokeDash=[6, 4]).encode(y="median(value):Q")
    return (others + middle + mine).properties(height=240)


def _stacked(rows: pl.DataFrame, divisor: float) -> pl.DataFrame:
    """Start and end of each part within its bar: stacked here, because letters must sit in the middle of segments."""
    ordered = rows.sort("place", "order", maintain_order=True).with_columns((pl.col("ns") / divisor).alias("value"))
    return ordered.with_columns(pl.col("value").cum_sum().over("place").alias("end"), (pl.col("value") / pl.col("value").sum().over("place")).alias("share")).with_columns(
        (pl.col("end") - pl.col("value")).alias("start"), (pl.col("end") - pl.col("value") / 2).alias("middle"), pl.col("part").str.slice(0, 1).alias("letter")
    )  # fmt: skip


def _longest(rows: pl.DataFrame) -> float:
    longest = rows.group_by("place").agg(pl.col("ns").sum()).get_column("ns").max() if len(rows) else 0
    return float(longest or 0)  # type: ignore[arg-type]


def _wide(places: Sequence[str]) -> bool:
    return sum(len(place) + 2 for place in places[:MOST_LABELLED]) > 150


def legend_columns(names: Sequence[str]) -> int:
    """Columns of a legend that fit beside each other above or below a chart over the page's width."""
    longest = max((len(name) for name in names), default=1)
    return max(1, min(len(names), int(LEGEND_WIDTH_PX / (longest * 7 + 34))))


def legend_height(names: Sequence[str]) -> int:
    """Height that such a legend takes of a chart in pixels."""
    return LEGEND_LINE_PX * -(-len(names) // legend_columns(names))


def rows_height(rows: int, each: int, *, legend: int = 1) -> int:
    """Height of a chart of rows in pixels: the rows, the axis below and ``legend`` lines above are fitted into it."""
    return max(1, rows) * each + 12 + AXIS_PX + (LEGEND_PX + 18 * legend if legend else 0)
