"""Frames between polars and DuckDB as Arrow streams.

Both speak the PyCapsule interface, so nothing else is needed between them: DuckDB's own ``pl()`` goes through a pyarrow
table, which costs two milliseconds a query and the import of pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import duckdb


class Readable:
    """A frame that DuckDB can register: it sees the stream, not the class.

    A column without a type (all of it null) streams no validity bitmap, which DuckDB refuses; integers do.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame.cast({pl.Null: pl.Int32}) if pl.Null in frame.dtypes else frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


def as_frame(rows: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """All rows of a relation.

    Raises:
        duckdb.Error: the statement fails.
        polars.exceptions.PolarsError: it fails after its first rows.
    """
    return pl.DataFrame(rows)
