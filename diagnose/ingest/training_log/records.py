"""One logged step, and the rows of training_log made of a source's records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from diagnose.ingest.base import Batch, Identity, Outcome
from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.times import Clock
from diagnose.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.base import ReadOptions, Source

SCHEMA: dict[str, Any] = {
    "step": pl.Int64,
    "t_ns": pl.Int64,
    "step_time_ns": pl.Int64,
    "loss": pl.Float64,
    "throughput": pl.Float64,
    "throughput_unit": pl.String,
    "restart": pl.Int32,
    "source": pl.String,
    "rank": pl.Int32,
    "host": pl.String,
}
_RANK_OF_NAME = re.compile(r"rank[_-]?(\d+)(?=\D|$)", re.IGNORECASE)
MAX_DERIVED_GAP_STEPS = 10_000
MIN_RESOLVED_NS = 20_000_000_000
"""Times printed in whole seconds tell a step time only over at least this long: then to 5 %."""


class Step(NamedTuple):
    """What one line said. ``when`` is the printed time, not yet in a zone; ``t_ns`` a time that needs none."""

    step: int | None
    when: str | None = None
    t_ns: int | None = None
    step_time_ns: int | None = None
    loss: float | None = None
    throughput: float | None = None
    throughput_unit: str | None = None
    rank: int | None = None
    host: str | None = None


class StepLog:
    """Collects the steps of one source; times without a zone are counted as in node metrics."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source = source
        self.clock = Clock(options.timezone)
        self.rank = options.rank
        self.rank_from = "option" if options.rank is not None else None
        self.host = identity.host_name(options.host) if options.host else None
        self.cut: str | None = None
        self.steps: list[Step] = []
        match = _RANK_OF_NAME.search(source.name.name)
        if self.rank is None and match:
            self.rank, self.rank_from = int(match.group(1)), "name"

    def add(self, step: Step) -> None:
        """Take one step; its printed time becomes nanoseconds here."""
        t_ns = step.t_ns if step.t_ns is not None else (self.clock.parse(step.when) if step.when else None)
        self.steps.append(step._replace(t_ns=t_ns))

    def finish(self) -> Iterator[Batch | Issue | Outcome]:
        """The rows, the issues, the outcome."""
        frame = to_frame(self.steps, self.rank, self.host or identity.host_of_path(self.source.name), self.source.label)
        if not frame.is_empty():
            yield Batch("training_log", frame)
        if self.clock.assumed:
            text = "log times without a zone read as UTC; --timezone sets it"
            yield Issue("DQ-03", "info", self.clock.assumed, text, self.source.label)
        if self.cut:
            yield Issue("log_cut_short", "warning", 1, self.cut[:200], self.source.label)
        yield Outcome(
            status="partial" if self.cut else ("ok" if len(frame) else "skipped"),
            rows=frame.height,
            problem=self.cut or (None if len(frame) else "no step lines in it"),
            identity=self._identity(frame),
        )

    def _identity(self, frame: pl.DataFrame) -> Identity:
        low, high = frame.get_column("t_ns").min(), frame.get_column("t_ns").max()
        ranks = frame.get_column("rank").drop_nulls().unique().to_list()
        rank = self.rank if self.rank is not None else (ranks[0] if len(ranks) == 1 else None)
        how = self.rank_from or ("content" if rank is not None else None)
        return Identity(
            rank=rank,
            rank_from=how,
            host=self.host,
            host_from="option" if self.host else None,
            start_ns=low if isinstance(low, int) else None,
            end_ns=high if isinstance(high, int) else None,
        )


def to_frame(steps: list[Step], rank: int | None, host: str | None, label: str) -> pl.DataFrame:
    """Rows of training_log: restarts counted and missing step times derived, per rank."""
    rows: list[tuple[Any, ...]] = []
    last: dict[int | None, Step] = {}
    restarts: dict[int | None, int] = {}
    seen: dict[tuple[int | None, int | None, int], int] = {}
    for item in steps:
        owner = item.rank if item.rank is not None else rank
        before = last.get(owner)
        if before and before.step is not None and item.step is not None and item.step < before.step:
            restarts[owner] = restarts.get(owner, 0) + 1
            before = None
        restart = restarts.get(owner, 0)
        key = (owner, item.step, restart)
        if item.step is not None and key in seen:
            rows[seen[key]] = _merged(rows[seen[key]], item)
            continue
        seen[key] = len(rows)
        duration = item.step_time_ns if item.step_time_ns is not None else _derived(before, item)
        rows.append(
            (
                item.step,
                item.t_ns,
                duration,
                item.loss,
                item.throughput,
                item.throughput_unit,
                restart,
                label,
                owner,
                item.host or host,
            )
        )
        last[owner] = item
    return pl.DataFrame(rows, schema=SCHEMA, orient="row", strict=False)


def _merged(row: tuple[Any, ...], item: Step) -> tuple[Any, ...]:
    """Two lines of one step (DeepSpeed prints loss and timing apart) as one row."""
    new = (item.step, item.t_ns, item.step_time_ns, item.loss, item.throughput, item.throughput_unit)
    return (*(old if old is not None else other for old, other in zip(row[:6], new, strict=True)), *row[6:])


def _derived(before: Step | None, item: Step) -> int | None:
    """Time between two lines over the steps between them, where times are finer than the result needs."""
    if before is None or before.t_ns is None or item.t_ns is None or before.step is None or item.step is None:
        return None
    steps, elapsed = item.step - before.step, item.t_ns - before.t_ns
    if not 0 < steps <= MAX_DERIVED_GAP_STEPS or elapsed <= 0:
        return None
    whole_seconds = before.t_ns % 1_000_000_000 == 0 and item.t_ns % 1_000_000_000 == 0
    if whole_seconds and elapsed < MIN_RESOLVED_NS:
        return None
    return round(elapsed / steps)
