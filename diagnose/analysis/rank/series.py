"""Arrays of a rank as polars columns: nulls for sentinels, numbers of steps, values as lists by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray


def nullable(values: NDArray[np.int64], absent: int) -> pl.Series:
    """Null in the place of the value that stands for absence."""
    return pl.Series(values, dtype=pl.Int64).set(pl.Series(values == absent), None)


def step_numbers(group: NDArray[np.int64], number: NDArray[np.int64]) -> pl.Series:
    """Step number of each row, null outside any step."""
    if not len(number):
        return pl.Series([None] * len(group), dtype=pl.Int64)
    return pl.Series(number[np.maximum(group, 0)], dtype=pl.Int64).set(pl.Series(group < 0, dtype=pl.Boolean), None)


def lists_by_row(row: NDArray[np.int64], value: NDArray[np.int64], count: int) -> pl.Series:
    """Values by row, in their order, as one list for each of ``count`` rows; building lists from Python ones costs more
    than finding them.
    """
    parts = pl.DataFrame({"row": row, "value": value}).group_by("row", maintain_order=True).agg("value")
    rows = pl.DataFrame({"row": np.arange(count)}).join(parts, on="row", how="left", maintain_order="left")
    return rows.get_column("value").fill_null(pl.Series([[]], dtype=pl.List(pl.Int64)))
