"""Charts of communication: bandwidth against size, waiting against transfer, members of one collective, the topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt
import polars as pl
from charts import legend_columns, legend_height, names_axis, rows_height
from text import time_unit
from theme import COLOURS, PEER_COLOUR, RANK_COLOUR, REFERENCE_COLOUR, TRANSPORT_COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.report.measures import BusbwSeries

WAIT, TRANSFER = "waiting for the last member", "transfer"
_KINDS = alt.Scale(domain=[WAIT, TRANSFER], range=list(COLOURS[1:3]))
_BYTES = "datum.value >= 1e9 ? format(datum.value / 1e9, '~g') + ' GB' : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' MB' : datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' kB' : format(datum.value, '~g') + ' B'"
MOST_MEMBERS = 40
APART = 1.3
"""Ratio of two speeds whose words do not touch on the logarithmic axis."""
_DASHES = {
    "GPUDirect RDMA": [1, 0],
    "partly GPUDirect RDMA": [12, 3, 3, 3],
    "no GPUDirect RDMA": [6, 5],
    "not stated": [2, 3],
}


def busbw(points: pl.DataFrame, series: Sequence[BusbwSeries]) -> alt.LayerChart:
    """Bus bandwidth against size, both logarithmic: medians with the middle eight tenths, fitted lines, reference speeds."""
    drawn = points.with_columns(
        (pl.col("collective") + ", " + pl.col("tier")).alias("kind"),
        *((pl.col(f"{name}_bytes_per_s") * 1e-9).alias(name) for name in ("busbw", "low", "high")),
    )
    x = alt.X(
        "msg_bytes:Q",
        title="message size (bytes, logarithmic)",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(labelExpr=_BYTES, tickCount=8),
    )
    kinds = drawn.get_column("kind").unique(maintain_order=True).to_list()
    legend = alt.Legend(title=None, orient="top", columns=legend_columns(kinds), labelLimit=0, symbolLimit=0)
    colour, shape = alt.Color("kind:N", sort=kinds, legend=legend), alt.Shape("kind:N", sort=kinds, legend=legend)
    axis = "bus bandwidth (GB/s, logarithmic)"
    base = alt.Chart(drawn).encode(x=x, color=colour)
    spread = base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title=axis, scale=alt.Scale(type="log")), y2="high:Q")
    dots = base.mark_point(filled=False, size=80, strokeWidth=2).encode(
        y=alt.Y("busbw:Q", title=axis), shape=shape,
        tooltip=["collective", "tier", "group_size", alt.Tooltip("msg_bytes:Q", format=",d", title="message (bytes)"), alt.Tooltip("busbw:Q", title="busbw (GB/s)", format=",.3~f"), "count"],
    )  # fmt: skip
    layers = [spread, dots]
    fits = [
        {"kind": f"{item.collective}, {item.tier}", "msg_bytes": size, "busbw": rate * 1e-9}
        for item in series
        for size, rate in item.fit or ()
        if size > 0 and rate > 0
    ]
    if fits:
        layers.append(alt.Chart(pl.DataFrame(fits)).mark_line(strokeWidth=2).encode(x=x, y="busbw:Q", color=colour))
    references = _references(series)
    if references:
        lines = alt.Chart(pl.DataFrame(references)).encode(y="rate:Q")
        layers += [
            lines.mark_rule(strokeDash=[6, 4], color=REFERENCE_COLOUR),
            lines.mark_text(align="left", dx=4, dy=-6, color=REFERENCE_COLOUR).encode(x=alt.value(0), text="words:N"),
        ]
    return alt.layer(*layers).properties(height=340 + legend_height(kinds))


def _references(series: Sequence[BusbwSeries]) -> list[dict[str, object]]:
    """Reference speeds in GB/s; of lines that lie so near that their words would touch the lowest bears the words of all."""
    lines: list[dict[str, object]] = []
    start, names = 0.0, list[str]()
    for item in sorted(series, key=lambda item: item.reference_bytes_per_s or 0):
        rate, name = (item.reference_bytes_per_s or 0) * 1e-9, f"{item.collective}, {item.tier}"
        if rate <= 0:
            continue
        if rate >= start * APART:
            start, names = rate, []
            lines.append({"rate": rate, "names": names})
        elif rate > start:
            lines.append({"rate": rate, "names": []})
        if name not in names:
            names.append(name)
    return [
        {"rate": line["rate"], "words": f"reference: {'; '.join(line['names'])}" if line["names"] else ""}
        for line in lines
    ]  # type: ignore[arg-type]


def wait_transfer(rows: pl.DataFrame) -> alt.Chart:
    """Waiting and transfer of each group and kind, per call."""
    divisor, unit = time_unit(rows.group_by("group").agg(pl.col("ns").sum()).get_column("ns").max())  # type: ignore[arg-type]
    drawn = rows.with_columns((pl.col("ns") / divisor).alias("value"))
    order = rows.get_column("group").unique(maintain_order=True).to_list()
    return alt.Chart(drawn).mark_bar(height={"band": 0.75}).encode(
        y=alt.Y("group:N", sort=order, title=None, axis=names_axis()), x=alt.X("value:Q", title=f"median time per call ({unit})"),
        color=alt.Color("part:N", scale=_KINDS, legend=alt.Legend(title=None, orient="top", labelLimit=0)), order=alt.Order("order:Q"),
        tooltip=["group", "part", alt.Tooltip("value:Q", title=f"time ({unit})", format=",.3~f"), "count"],
    ).properties(height=rows_height(len(order), 26))  # fmt: skip


def members(rows: pl.DataFrame) -> alt.Chart:
    """When each member entered one collective, how long it waited and when data moved; many members: the first and the last."""
    divisor, unit = time_unit(rows.get_column("ended_ns").max())  # type: ignore[arg-type]
    kept = (
        rows
        if len(rows) <= MOST_MEMBERS
        else pl.concat([rows.head(MOST_MEMBERS // 4), rows.tail(MOST_MEMBERS - MOST_MEMBERS // 4)])
    )
    names = kept.with_columns(
        (
            "rank "
            + pl.col("rank").cast(pl.String)
            + pl.when(pl.col("host").is_null()).then(pl.lit("")).otherwise("  " + pl.col("host"))
        ).alias("member")
    )
    middle = (pl.col("arrived_ns") + pl.col("wait_ns").fill_null(0)) / divisor
    wait = names.select(
        "member", pl.lit(WAIT).alias("part"), (pl.col("arrived_ns") / divisor).alias("from"), middle.alias("to")
    )
    move = names.select(
        "member", pl.lit(TRANSFER).alias("part"), middle.alias("from"), (pl.col("ended_ns") / divisor).alias("to")
    )
    drawn = pl.concat([wait, move]).with_columns((pl.col("to") - pl.col("from")).alias("length"))
    return alt.Chart(drawn).mark_bar(height={"band": 0.75}).encode(
        y=alt.Y("member:N", sort=names.get_column("member").to_list(), title=None, axis=names_axis()),
        x=alt.X("from:Q", title=f"after the first member's start ({unit}, aligned clocks)"), x2="to:Q",
        color=alt.Color("part:N", scale=_KINDS, legend=alt.Legend(title=None, orient="top", labelLimit=0)),
        tooltip=["member", "part", alt.Tooltip("from:Q", title=f"from ({unit})", format=",.3~f"), alt.Tooltip("length:Q", title=f"lasts ({unit})", format=",.3~f")],
    ).properties(height=rows_height(len(names), 20))  # fmt: skip


def last_arrivals(rows: pl.DataFrame) -> alt.Chart:
    """In which share of its collectives each rank came last."""
    drawn = rows.with_columns((pl.col("last_ratio") * 100).alias("share"))
    return alt.Chart(drawn).mark_circle(size=40, color=PEER_COLOUR, opacity=0.85).encode(
        x=alt.X("rank:Q", title="rank", axis=alt.Axis(format="d", tickMinStep=1)), y=alt.Y("share:Q", title="came last (%)", scale=alt.Scale(domainMin=0)),
        tooltip=["rank", "host", alt.Tooltip("share:Q", format=".1f", title="came last (%)"), "last", "collectives"],
    ).properties(height=220)  # fmt: skip


def topology(hosts: pl.DataFrame, edges: pl.DataFrame) -> alt.LayerChart:
    """Hosts with their ranks and NICs, joined by the transports they use; dashes where GPUDirect RDMA is off."""
    colour = alt.Color(
        "transport:N",
        scale=_transports(edges),
        legend=alt.Legend(title=None, orient="top", labelLimit=0),
    )
    seen = set(edges.get_column("gdr"))
    dashes = {name: pattern for name, pattern in _DASHES.items() if name in seen}
    dash = alt.StrokeDash(
        "gdr:N",
        scale=alt.Scale(domain=list(dashes), range=list(dashes.values())),
        legend=alt.Legend(title=None, orient="top", labelLimit=0),
    )
    axis = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    x, y = (
        alt.X("x:Q", axis=axis, scale=alt.Scale(domain=[-1.45, 1.45])),
        alt.Y("y:Q", axis=axis, scale=alt.Scale(domain=[-1.3, 1.45])),
    )
    lines = alt.Chart(edges).mark_rule(strokeWidth=2).encode(
        x=x, y=y, x2="x2:Q", y2="y2:Q", color=colour, strokeDash=dash, tooltip=["source_host", "target_host", "transport", "gdr", "connections", "nics"],
    )  # fmt: skip
    boxes = (
        alt.Chart(hosts)
        .mark_square(size=700, color=REFERENCE_COLOUR, opacity=1)
        .encode(x=x, y=y, tooltip=["host", "ranks", "nics", "inside"])
    )
    above, below = (
        alt.Chart(hosts).transform_filter(test).encode(x=x, y=y, text="words:N")
        for test in ("datum.y > -0.01", "datum.y <= -0.01")
    )
    names = above.mark_text(lineBreak="\n", lineHeight=15, dy=-74, fontSize=12, color=REFERENCE_COLOUR)
    more = below.mark_text(lineBreak="\n", lineHeight=15, dy=30, fontSize=12, color=REFERENCE_COLOUR)
    layers = [boxes, names, more]
    return alt.layer(*([lines] if len(edges) else []), *layers).properties(height=480 if len(hosts) > 2 else 280)


def host_matrix(edges: pl.DataFrame) -> alt.Chart:
    """Many hosts: who talks to whom by which transport."""
    return alt.Chart(edges).mark_rect().encode(
        x=alt.X("target_host:N", title="to host", axis=names_axis("greedy")),
        y=alt.Y("source_host:N", title="from host", axis=names_axis("greedy")),
        color=alt.Color("transport:N", scale=_transports(edges), legend=alt.Legend(orient="top", labelLimit=0)),
        tooltip=["source_host", "target_host", "transport", "gdr", "connections", "nics"],
    ).properties(height=520)  # fmt: skip


def tiers(rows: pl.DataFrame) -> alt.LayerChart:
    """Bus bandwidth of each tier with its interval."""
    base = alt.Chart(rows).encode(y=alt.Y("name:N", sort=None, title=None, axis=names_axis()))
    return (
        base.mark_rule(strokeWidth=4, opacity=0.45, color=PEER_COLOUR).encode(
            x=alt.X("low:Q", title="bus bandwidth (GB/s), with its interval", scale=alt.Scale(domainMin=0)), x2="high:Q"
        )
        + base.mark_point(filled=True, size=90, color=RANK_COLOUR).encode(
            x="busbw:Q", tooltip=["name", alt.Tooltip("busbw:Q", format=",.2f", title="GB/s"), "bound"]
        )
    ).properties(height=rows_height(len(rows), 30, legend=0))


def _transports(edges: pl.DataFrame) -> alt.Scale:
    found = edges.get_column("transport").unique().sort().to_list()
    spare = [colour for colour in COLOURS if colour not in TRANSPORT_COLOURS.values()]
    return alt.Scale(
        domain=found, range=[TRANSPORT_COLOURS.get(name, spare[place % len(spare)]) for place, name in enumerate(found)]
    )
