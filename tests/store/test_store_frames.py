"""Frames that DuckDB reads as Arrow streams."""

import duckdb
import polars as pl

from diagnose.store.frames import Readable


def test_a_column_of_nulls_without_a_type_goes_into_any_column():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (n BIGINT, name VARCHAR, ranks INTEGER[], labels MAP(VARCHAR, INTEGER))")
    connection.register("frame", Readable(pl.DataFrame({"n": [1], "name": [None], "ranks": [None], "labels": [None]})))
    connection.execute("INSERT INTO t BY NAME SELECT * FROM frame")
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, None, None, None)]
