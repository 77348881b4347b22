"""What is remembered of every run: one JSON beside its store, all of them as one Parquet table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from diagnose.model import Impact, Severity
from diagnose.watch.places import Places, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

FILE = "record.json"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as history needs it."""

    code: str
    severity: Severity
    title: str
    message: str
    fingerprint: str
    subject: str = ""
    impact: Impact = Impact()


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """The message of a run. ``wanted`` False: the watcher was not asked to send."""

    id: str
    title: str
    body: str
    kind: str
    wanted: bool


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``level_start``: from here on the job has another step time, and later runs are compared with these."""

    key: str
    sources_key: str
    job: str
    name: str
    input: str
    folder: str
    store: str
    analysed_ns: int
    order_ns: int
    start_ns: int | None = None
    world_size: int | None = None
    step_ns: float | None = None
    step_error: float = 0.0
    steps_used: int = 0
    measured_from: str = "nothing"
    bottleneck: str = "inconclusive"
    network_bound: bool | None = None
    verdict: str = ""
    change: str = "first"
    change_ratio: float | None = None
    interval: tuple[float, float] | None = None
    changed_part: str | None = None
    since: str = ""
    compared_with: tuple[str, ...] = ()
    level_start: bool = True
    supersedes: str | None = None
    parts: dict[str, float] = {}
    findings: tuple[Note, ...] = ()
    alert: Alert | None = None
    tool_version: str = ""
    ready_because: str = ""
    files: int = 0


def write_record(folder: Path, record: Record) -> None:
    """The record into a folder that is being built."""
    write_whole(folder / FILE, encode(record))


def encode(record: Record) -> bytes:
    """Readable JSON."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


class Records:
    """Every record of an output folder; each file is read once."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._known: dict[Path, Record] = {}

    def all(self) -> list[Record]:
        """Each run once, in the order of jobs and times; a record that cannot be read is left out."""
        found: dict[str, Record] = {}
        for path in (*self._places.retired.glob("*.json"), *self._places.runs.glob(f"*/{FILE}")):
            record = self._read(path)
            if record is not None:
                found[record.key] = record
        return sorted(found.values(), key=lambda record: (record.job, record.order_ns, record.name, record.analysed_ns))

    def _read(self, path: Path) -> Record | None:
        if path not in self._known:
            try:
                self._known[path] = msgspec.json.decode(path.read_bytes(), type=Record)
            except (OSError, msgspec.DecodeError):
                return None
        return self._known[path]


def current(records: Iterable[Record]) -> list[Record]:
    """Without those that a later analysis of the same run replaced."""
    latest: dict[tuple[str, str], Record] = {}
    for record in records:
        other = latest.get((record.job, record.name))
        if other is None or (record.analysed_ns, record.key) > (other.analysed_ns, other.key):
            latest[(record.job, record.name)] = record
    return sorted(latest.values(), key=lambda record: (record.job, record.order_ns, record.name))


PARTS = (
    "compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_comm_ns", "exposed_memcpy_ns", "idle_input_ns", "idle_host_ns", "idle_sync_ns",
    "idle_bubble_ns", "idle_other_ns", "blocking_comm_ns",
)  # fmt: skip
_SCHEMA: dict[str, type[pl.DataType] | pl.DataType] = {
    "job": pl.String, "name": pl.String, "key": pl.String, "current": pl.Boolean, "start_ns": pl.Int64, "analysed_ns": pl.Int64,
    "world_size": pl.Int32, "step_ns": pl.Float64, "step_error_ratio": pl.Float64, "steps_used": pl.Int64, "bottleneck": pl.String,
    "network_bound": pl.Boolean, "verdict": pl.String, "change": pl.String, "change_ratio": pl.Float64, "changed_part": pl.String,
    "level_start": pl.Boolean, "critical": pl.Int64, "warning": pl.Int64, "findings": pl.List(pl.String), "store": pl.String, "kept": pl.Boolean,
    "input": pl.String, "tool_version": pl.String, **dict.fromkeys(PARTS, pl.Float64),
}  # fmt: skip


def history(records: Sequence[Record], places: Places) -> pl.DataFrame:
    """One row a run; parts of the step as columns of their own."""
    newest = {record.key for record in current(records)}
    rows = [
        {
            "job": r.job, "name": r.name, "key": r.key, "current": r.key in newest, "start_ns": r.start_ns, "analysed_ns": r.analysed_ns,
            "world_size": r.world_size, "step_ns": r.step_ns, "step_error_ratio": r.step_error, "steps_used": r.steps_used,
            "bottleneck": r.bottleneck, "network_bound": r.network_bound, "verdict": r.verdict, "change": r.change, "change_ratio": r.change_ratio,
            "changed_part": r.changed_part, "level_start": r.level_start, "critical": sum(note.severity == "critical" for note in r.findings),
            "warning": sum(note.severity == "warning" for note in r.findings), "findings": [note.code for note in r.findings],
            "store": f"{r.folder}/{r.store}", "kept": (places.out / r.folder).is_dir(), "input": r.input, "tool_version": r.tool_version,
            **{name: r.parts.get(name) for name in PARTS},
        }
        for r in records
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=_SCHEMA)


def write_history(records: Sequence[Record], places: Places) -> None:
    """The table as Parquet, moved into place."""
    import io

    buffer = io.BytesIO()
    history(records, places).write_parquet(buffer)
    write_whole(places.history, buffer.getvalue())
