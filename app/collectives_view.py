"""The Collectives page's data: groups as long rows, instances by cost, what a click means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import data
import polars as pl
import state
from charts_comm import TRANSFER, WAIT
from frame import picked_row

from diagnose.units import format_bytes

if TYPE_CHECKING:
    from catalog import Run

    from diagnose.report.document import Document

MOST_GROUPS = 20
ORDERS = {"cost": "transfer + mean wait", "transfer": "transfer", "wait": "mean wait", "skew": "arrival skew"}


def groups(document: Document) -> pl.DataFrame:
    """Median wait and transfer per call of the dearest groups, long."""
    rows = []
    for row in document.collectives[:MOST_GROUPS]:
        size = "size unknown" if row.msg_bytes is None else format_bytes(row.msg_bytes)
        name = f"{row.collective}, {row.process_group or 'group not named'} of {row.group_size or '?'}, {row.dtype or 'type unknown'}, {size}"
        for order, (part, value) in enumerate(((WAIT, row.wait_ns), (TRANSFER, row.transfer_ns))):
            if value is not None:
                rows.append({"group": name, "part": part, "ns": float(value), "order": order, "count": row.count})
    frame = pl.DataFrame(
        rows, schema={"group": pl.String, "part": pl.String, "ns": pl.Float64, "order": pl.Int32, "count": pl.Int64}
    )
    return frame.group_by("group", "part", "order", maintain_order=True).agg(pl.col("ns").max(), pl.col("count").sum())


def table(document: Document) -> pl.DataFrame:
    """The report's collectives as a table."""
    rows = [{name: getattr(row, name) for name in row.__struct_fields__} for row in document.collectives]
    return pl.DataFrame(rows, infer_schema_length=None)


def row_clicked(name: str, instances: list[int]) -> None:
    """A click on an instance."""
    place = picked_row(name)
    if place is not None and place < len(instances):
        state.choose(state.INSTANCE, instances[place])


def asked(run: Run) -> list[int]:
    """The instance of the address, when the run has it: links may name any, not only the slowest."""
    text = state.in_address(state.INSTANCE)
    if text is None or not text.isdigit() or len(text) > 18:
        return []
    return data.rows(run, "collective_row", instance=int(text)).get_column("instance").to_list()
