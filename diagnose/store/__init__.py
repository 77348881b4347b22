"""The run store: one DuckDB file per run, its tables, how it is written, published and read."""
