"""Reading a run store: read-only, without access to anything else, safe to share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import duckdb
from polars.exceptions import PolarsError

from diagnose.errors import StoreError
from diagnose.store.frames import as_frame
from diagnose.store.schema import SCHEMA_VERSION, table

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import polars as pl

_MAGIC, _MAGIC_END = b"DUCK", 12
"""Bytes 8 to 12 of a DuckDB file, behind its checksum."""

_KEPT_RESULTS, _KEPT_BYTES = 200, 1 << 18


class Store:
    """A published run store. Each thread takes its own ``cursor()``.

    Raises:
        StoreError: the file is missing, is no run store, or was written by a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: dict[tuple[str, str], pl.DataFrame] = {}
        if not path.is_file():
            raise StoreError(f"{path} does not exist; `diagnose run PATH... -o {path}` makes one")
        _check_magic(path)
        try:
            self._connection = duckdb.connect(
                ":memory:",
                config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"},
            )
            self._connection.execute(
                f"ATTACH '{str(path.absolute()).replace(chr(39), chr(39) * 2)}' AS run (READ_ONLY)"
            ).fetchall()
            self._connection.execute("USE run").fetchall()
            self._connection.execute("SET enable_external_access = false").fetchall()
            self._connection.execute("SET lock_configuration = true").fetchall()
            version = self._connection.execute("SELECT max(schema_version) FROM run.main.run").fetchall()[0][0]
        except duckdb.Error as error:
            raise StoreError(_explain(path, error)) from error
        if version is not None and version > SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema {version}, this version reads up to {SCHEMA_VERSION}: update diagnose, or analyse the run again"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Run a SELECT; ``$name`` parameters are bound, never pasted. Safe from several threads.

        The file cannot change under this connection, and many parts of a report ask the same: small results are kept.
        """
        key = sql, repr(parameters)
        if (known := self._kept.get(key)) is not None:
            return known
        frame = self._run(sql, parameters)
        if len(self._kept) < _KEPT_RESULTS and frame.estimated_size() < _KEPT_BYTES:
            self._kept[key] = frame
        return frame

    def _run(self, sql: str, parameters: dict[str, object] | None) -> pl.DataFrame:
        cursor = self._connection.cursor()
        try:
            cursor.execute("USE run").fetchall()
            rows = cursor.sql(sql, params=parameters) if parameters else cursor.sql(sql)
            frame = None if rows is None else as_frame(rows)
        except (duckdb.Error, PolarsError) as error:
            raise StoreError(f"{self.path}: {str(error).splitlines()[0]}") from error
        finally:
            cursor.close()
        if frame is None:
            raise StoreError(f"{self.path}: the statement gives no rows: {sql[:80]!r}")
        return frame

    def frame(self, name: str) -> pl.DataFrame:
        """A whole table, ordered by its key."""
        item = table(name)
        order = f" ORDER BY {', '.join(item.key)}" if item.key else ""
        return self.query(f'SELECT * FROM run.main."{item.name}"{order}')

    def fingerprint(self) -> tuple[int, int, int]:
        """Changes whenever the file is replaced."""
        stat = self.path.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _check_magic(path: Path) -> None:
    """DuckDB would guess other formats from a file's name; a store says itself what it is."""
    try:
        with path.open("rb") as handle:
            head = handle.read(_MAGIC_END)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if not head.endswith(_MAGIC):
        raise StoreError(f"{path} is not a run store (no DuckDB file); `diagnose run PATH... -o STORE` makes one")


def _explain(path: Path, error: Exception) -> str:
    text = str(error)
    if "Conflicting lock" in text or "Could not set lock" in text:
        return f"{path} is open for writing in another program: {text.splitlines()[0]}"
    if "does not exist" in text:
        return f"{path} is a DuckDB file but no run store: {text.splitlines()[0]}"
    return f"cannot open {path}: {text.splitlines()[0]}"
