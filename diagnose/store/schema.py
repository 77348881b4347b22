"""All tables of the run store, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.errors import StoreError
from diagnose.store.tables import analysis, comm_log, metrics, run, trace

if TYPE_CHECKING:
    from diagnose.store.table import Table

SCHEMA_VERSION = 1

TABLES: tuple[Table, ...] = (*run.TABLES, *trace.TABLES, *comm_log.TABLES, *metrics.TABLES, *analysis.TABLES)


def table(name: str) -> Table:
    """The table of that name.

    Raises:
        StoreError: no such table.
    """
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    raise StoreError(f"the run store has no table {name!r}")


def create_statements(schema: str) -> list[str]:
    """DDL of every table with its comments, for the attached database ``schema``."""
    statements = []
    for item in TABLES:
        body = ", ".join(f'"{column.name}" {column.type}' for column in item.columns)
        statements.append(f'CREATE TABLE {schema}."{item.name}" ({body})')
        statements.append(f'COMMENT ON TABLE {schema}."{item.name}" IS {_quote(f"One row: {item.grain}.")}')
        for column in item.columns:
            text = column.meaning + (f" Unit: {column.unit}." if column.unit else "")
            statements.append(f'COMMENT ON COLUMN {schema}."{item.name}"."{column.name}" IS {_quote(text)}')
    return statements


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
