"""Charts of node metrics, scaling, counterfactuals and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl
from charts import legend_columns, legend_height, names_axis, rows_height
from text import time_unit
from theme import PEER_COLOUR, RANK_COLOUR, REFERENCE_COLOUR

if TYPE_CHECKING:
    from nodes_view import Series

MOST_JOBS = 8
"""Jobs that colours and shapes can tell apart."""
OTHER_JOBS = "other runs"


def metric(found: Series, window: pl.DataFrame, title: str) -> alt.LayerChart:
    """Lines of hosts before the band of their peers; the traced steps shaded."""
    axis = f"{title} ({found.unit})"
    x = alt.X("seconds:Q", title="seconds from the first traced step")
    y = alt.Y("value:Q", title=axis, scale=alt.Scale(zero=False), axis=alt.Axis(format=".4~s"))
    shade = alt.Chart(window).mark_rect(opacity=0.12, color=PEER_COLOUR).encode(x="from:Q", x2="to:Q")
    band = (
        alt.Chart(found.band)
        .mark_area(opacity=0.18, color=REFERENCE_COLOUR)
        .encode(x=x, y=alt.Y("low:Q", title=axis), y2="high:Q")
    )
    middle = alt.Chart(found.band).mark_line(color=REFERENCE_COLOUR, strokeDash=[6, 4]).encode(x=x, y="middle:Q")
    names = found.lines.get_column("line").unique().to_list()
    legend = alt.Legend(
        title=None, orient="bottom", columns=legend_columns(names), labelLimit=0, symbolType="stroke", symbolSize=400
    )
    few = found.lines.get_column("seconds").n_unique() < 20
    lines = alt.Chart(found.lines).mark_line(point=few).encode(
        x=x, y=y, color=alt.Color("line:N", legend=legend), strokeDash=alt.StrokeDash("line:N", legend=legend),
            detail="who:N", tooltip=["host", "entity", alt.Tooltip("seconds:Q", format=".2f"), alt.Tooltip("value:Q", title=axis, format=",.4~g")],
    )  # fmt: skip
    return alt.layer(shade, band, middle, lines).properties(height=320 + legend_height(names))


def what_if(rows: pl.DataFrame, measured_ns: float | None) -> alt.LayerChart:
    """Step time if one thing were fixed, beside the measured one."""
    divisor, unit = time_unit(max(measured_ns or 0, rows.get_column("step_ns").max() or 0))  # type: ignore[type-var]
    drawn = rows.with_columns(
        (pl.col("step_ns") / divisor).alias("value"),
        pl.col("speedup").map_elements(lambda item: f"{item:.2f}x", return_dtype=pl.String).alias("words"),
    )
    base = alt.Chart(drawn).encode(y=alt.Y("scenario:N", sort=None, title=None, axis=names_axis()))
    bars = base.mark_bar(height={"band": 0.7}, color=PEER_COLOUR).encode(
        x=alt.X("value:Q", title=f"step time ({unit}); dashed: as measured"), tooltip=["scenario", alt.Tooltip("value:Q", format=",.3~f", title=f"step ({unit})"), "words"]
    )  # fmt: skip
    words = base.mark_text(align="right", dx=-6, color="#fff", fontWeight="bold").encode(x="value:Q", text="words:N")
    layers = [bars, words]
    if measured_ns:
        layers.append(
            alt.Chart(pl.DataFrame({"value": [measured_ns / divisor]}))
            .mark_rule(strokeDash=[6, 4], color=RANK_COLOUR, strokeWidth=2)
            .encode(x="value:Q")
        )
    return alt.layer(*layers).properties(height=rows_height(len(rows), 30, legend=0))


def scaling(points: pl.DataFrame, predicted: pl.DataFrame, unit: str) -> alt.LayerChart:
    """Measured and predicted values over the number of GPUs, both logarithmic."""
    sizes = sorted({*points.get_column("gpus"), *predicted.get_column("gpus")})
    x = alt.X(
        "gpus:Q",
        title="GPUs (logarithmic)",
        scale=alt.Scale(type="log", base=2, nice=False, padding=24),
        axis=alt.Axis(values=sizes, format="d"),
    )
    y = alt.Y(
        "value:Q",
        title=f"{unit} (logarithmic)",
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=alt.Axis(format=".3~s"),
    )
    kinds = ["measured", "measured, not used", "predicted"]
    legend = alt.Legend(title=None, orient="top", labelLimit=0)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=["circle", "cross", "diamond"]), legend=legend)
    colour = alt.Color(
        "kind:N", scale=alt.Scale(domain=kinds, range=[PEER_COLOUR, REFERENCE_COLOUR, RANK_COLOUR]), legend=legend
    )
    layers = []
    if len(predicted):
        layers.append(
            alt.Chart(predicted)
            .mark_rule(strokeWidth=3, opacity=0.5, color=RANK_COLOUR)
            .encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
        )
        layers.append(
            alt.Chart(predicted)
            .mark_point(size=90, filled=True, opacity=1)
            .encode(x=x, y=y, shape=shape, color=colour, tooltip=["gpus", "value", "low", "high"])
        )
    layers.append(alt.Chart(points).mark_line(color=PEER_COLOUR).encode(x=x, y=y))
    layers.append(
        alt.Chart(points)
        .mark_point(size=90, filled=True, opacity=1)
        .encode(x=x, y=y, shape=shape, color=colour, tooltip=["gpus", "value", "kind", "why"])
    )
    return alt.layer(*layers).properties(height=340)


def efficiency(rows: pl.DataFrame) -> alt.Chart:
    """Scaling efficiency over the number of GPUs."""
    drawn = rows.with_columns((pl.col("ratio") * 100).alias("percent"))
    return alt.Chart(drawn).mark_line(point=True, color=PEER_COLOUR).encode(
        x=alt.X("gpus:Q", title="GPUs (logarithmic)", scale=alt.Scale(type="log", base=2, nice=False, padding=24), axis=alt.Axis(values=sorted(drawn.get_column("gpus")), format="d")), y=alt.Y("percent:Q", title="efficiency (%)", scale=alt.Scale(domainMin=0)),
        tooltip=["gpus", alt.Tooltip("percent:Q", format=".1f")],
    ).properties(height=280)  # fmt: skip


def runs(rows: pl.DataFrame) -> alt.Chart:
    """Median step of every run over time; the jobs with most runs are told apart, the others are points of one colour."""
    divisor, unit = time_unit(rows.get_column("step_ns").max())  # type: ignore[arg-type]
    jobs = rows.group_by("job").len().sort("len", "job", descending=[True, False]).get_column("job").to_list()
    told = jobs if len(jobs) <= MOST_JOBS else jobs[: MOST_JOBS - 1]
    is_told = pl.col("job").is_in(told)
    drawn = rows.with_columns(
        (pl.col("step_ns") / divisor).alias("value"),
        pl.when(is_told).then("job").otherwise("run").alias("line"),
        pl.when(is_told).then("job").otherwise(pl.lit(OTHER_JOBS)).alias("job"),
    )
    names = told if len(told) == len(jobs) else [*told, OTHER_JOBS]
    legend = alt.Legend(title=None, orient="bottom", columns=legend_columns(names), labelLimit=0)
    return alt.Chart(drawn).mark_line(point={"size": 70, "filled": True}).encode(
        x=alt.X("started:T", title="start of the run (UTC)", scale=alt.Scale(type="utc", padding=14), axis=alt.Axis(format="%Y-%m-%d %H:%M", labelOverlap="greedy", tickCount=6)),
        y=alt.Y("value:Q", title=f"median step ({unit})", scale=alt.Scale(zero=False)),
        color=alt.Color("job:N", sort=names, legend=legend), shape=alt.Shape("job:N", sort=names, legend=legend), detail="line:N",
        tooltip=["run", alt.Tooltip("value:Q", title=f"median step ({unit})", format=",.3~f"), alt.Tooltip("ranks:Q"), alt.Tooltip("started:T", format="%Y-%m-%d %H:%M:%S")],
    ).properties(height=270 + legend_height(names))  # fmt: skip
