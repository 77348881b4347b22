"""Writing a run store: built beside its name, checked, then moved into place, so a crash leaves nothing half-made."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import duckdb
from polars.exceptions import PolarsError

from diagnose.errors import StoreError
from diagnose.store.frames import Readable, as_frame
from diagnose.store.names import check_free, taken
from diagnose.store.schema import TABLES, create_statements, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    import polars as pl

MEMORY_LIMIT_BYTES = 2_000_000_000
"""Enough for the merge to stay in memory up to some ten million activities; above, DuckDB spills beside the store."""

_LEFTOVER_S = 86_400


class StoreWriter:
    """One writer of one new store. Use as a context manager; ``publish`` makes the file appear.

    Raises:
        StoreError: the folder cannot be written, the name is taken, or the disk is full.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path
        self._force = force
        check_free(path, force=force)
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(path)
            self._connection = duckdb.connect(str(self.temporary))
        except (OSError, duckdb.Error) as error:
            self._remove_temporary()
            raise StoreError(_explain(path, error)) from error
        try:
            self._execute("SET preserve_insertion_order = false")
            self._execute(f"SET memory_limit = '{MEMORY_LIMIT_BYTES}B'")
            self._execute("SET autoinstall_known_extensions = false")
            self._execute("BEGIN")
            self._execute(";".join(create_statements("main")))
        except StoreError:
            self.discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def insert(self, name: str, frame: pl.DataFrame) -> None:
        """Append a frame; columns the table has and the frame lacks become null, others are an error."""
        if frame.is_empty():
            return
        self._check_columns(name, frame.columns)
        with self._registered("frame", frame):
            self._execute(f'INSERT INTO main."{name}" BY NAME SELECT * FROM frame')

    def insert_parquet(self, name: str, paths: Sequence[Path]) -> None:
        """Append Parquet shards with the columns of the table."""
        if paths:
            files = [str(path) for path in paths]
            self._execute(
                f'INSERT INTO main."{name}" BY NAME SELECT * FROM read_parquet($files, union_by_name = true)',
                {"files": files},
            )

    def insert_ranked(self, name: str, files: Mapping[str, int]) -> None:
        """Append Parquet shards that lack the rank; ``files`` gives it for each."""
        import polars as pl

        owners = pl.DataFrame(
            {"file": list(files), "rank": list(files.values())}, schema={"file": pl.String, "rank": pl.Int32}
        )
        with self._registered("owners", owners):
            self._execute(
                f'INSERT INTO main."{name}" BY NAME SELECT owners.rank, shards.* EXCLUDE (filename) '
                "FROM read_parquet($files, filename = true, union_by_name = true) AS shards "
                "JOIN owners ON shards.filename = owners.file",
                {"files": list(files)},
            )

    def update_hosts(self, name: str, found: pl.DataFrame) -> None:
        """Set the host of rows that have none from (source, found)."""
        with self._registered("found_hosts", found):
            self._execute(
                f'UPDATE main."{name}" AS t SET host = f.found FROM found_hosts AS f '
                "WHERE t.host IS NULL AND t.source = f.source"
            )

    def replace(self, name: str, frame: pl.DataFrame) -> None:
        """Put a frame in the place of a table's rows."""
        self._execute(f'DELETE FROM main."{name}"')
        self.insert(name, frame)

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Read back what was written so far."""
        try:
            return as_frame(self._connection.sql(sql, params=parameters) if parameters else self._connection.sql(sql))
        except (duckdb.Error, PolarsError) as error:
            raise StoreError(_explain(self.path, error)) from error

    def execute(self, sql: str, parameters: dict[str, object] | None = None) -> None:
        """Run a statement that returns nothing."""
        self._execute(sql, parameters)

    def publish(self) -> Path:
        """Commit, check, flush to disk and move into place."""
        self._execute("COMMIT")
        self._execute("CHECKPOINT")
        self._connection.close()
        try:
            check = duckdb.connect(str(self.temporary), read_only=True)
            tables = {row[0] for row in check.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
            check.close()
            if missing := {item.name for item in TABLES} - tables:
                raise StoreError(f"the new store lacks the tables {sorted(missing)}; {self.path} was not written")
            with self.temporary.open("rb") as handle:
                os.fsync(handle.fileno())
            self._move_into_place()
            with contextlib.suppress(OSError):
                folder = os.open(self.path.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
        except (OSError, duckdb.Error) as error:
            raise StoreError(_explain(self.path, error)) from error
        return self.path

    def discard(self) -> None:
        """Remove what was not published."""
        with contextlib.suppress(duckdb.Error):
            self._connection.close()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        with contextlib.suppress(OSError):
            for suffix in ("", ".wal"):
                Path(f"{self.temporary}{suffix}").unlink(missing_ok=True)

    def _move_into_place(self) -> None:
        """Without ``force`` a store that appeared meanwhile stays: of two runs at once the first wins."""
        if not self._force:
            try:
                self.path.hardlink_to(self.temporary)
            except FileExistsError as error:
                raise StoreError(taken(self.path)) from error
            except OSError:  # a file system without hard links: the name was free when the run began
                self.temporary.replace(self.path)
                return
            self.temporary.unlink()
            return
        self.temporary.replace(self.path)

    @contextlib.contextmanager
    def _registered(self, name: str, frame: pl.DataFrame) -> Iterator[None]:
        """A frame that statements inside can name. After an error the transaction is gone, and so is the name."""
        self._connection.register(name, Readable(frame))
        try:
            yield
        finally:
            with contextlib.suppress(duckdb.Error):
                self._connection.unregister(name)

    def _check_columns(self, name: str, names: Sequence[str]) -> None:
        if unknown := set(names) - set(table(name).column_names):
            raise StoreError(f"table {name} has no columns {sorted(unknown)}")

    def _execute(self, sql: str, parameters: dict[str, object] | None = None) -> None:
        try:
            result = self._connection.execute(sql, parameters) if parameters else self._connection.execute(sql)
            result.fetchall()
        except duckdb.Error as error:
            raise StoreError(_explain(self.path, error)) from error


def _remove_leftovers(path: Path) -> None:
    """Unpublished files of runs that were killed a day ago or earlier."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp*"):
        with contextlib.suppress(OSError):
            if left.is_file() and time.time() - left.stat().st_mtime > _LEFTOVER_S:
                left.unlink()


def _explain(path: Path, error: Exception) -> str:
    number = getattr(error, "errno", None)
    text = str(error)
    if number == errno.ENOSPC or "No space left" in text:
        return f"no space left for {path}: free some, or write the store elsewhere with -o; nothing was kept there"
    if number in (errno.EACCES, errno.EROFS) or "Permission denied" in text or "Read-only file system" in text:
        return f"cannot write {path}: the folder is not writable; choose another place with -o"
    return f"cannot write {path}: {text.splitlines()[0] if text else type(error).__name__}"
