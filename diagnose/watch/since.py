"""What changed since the job's earlier runs, in one line, and the comparison behind it.

A run is compared with the runs of its level: those since the job's step time last changed. So a regression is told
once, the runs after it are compared with the new level, and going back is told as an improvement. The first runs of a
level are its anchor, so that a slow drift adds up until it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from diagnose.analysis.compare.comparable import why_not
from diagnose.analysis.compare.compare import Options, compare_runs
from diagnose.analysis.compare.facts import PARTS, RunFacts, read_run
from diagnose.analysis.compare.outcome import judge, signed
from diagnose.analysis.compare.parts import Context
from diagnose.errors import StoreError
from diagnose.findings.compare import FindingChanges, change_words, changed_findings
from diagnose.store.reader import Store
from diagnose.units import format_ns, format_ratio, opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.compare.result import Comparison, Outcome
    from diagnose.watch.places import Places
    from diagnose.watch.record import Note, Record

LEVEL_RUNS = 10
STORES = 5
"""Stores read to attribute a confirmed change."""


class Since(NamedTuple):
    """``change``: first, not comparable, or the comparison's. ``text`` is the first line of the report."""

    change: str
    text: str
    outcome: Outcome | None = None
    comparison: Comparison | None = None
    findings: FindingChanges = FindingChanges()
    base: tuple[Record, ...] = ()
    last: Record | None = None

    @property
    def level_start(self) -> bool:
        """Whether later runs are compared with this one first."""
        return self.change not in ("equivalent", "inconclusive")


def compare_with_history(
    facts: RunFacts, notes: Sequence[Note], earlier: Sequence[Record], places: Places, margin: float
) -> Since:
    """Against the job's current records that lie before the run, in their order."""
    if not earlier:
        return Since("first", "First run of this job.")
    last = earlier[-1]
    findings = changed_findings([last.findings], [notes])
    words = change_words(findings)
    refused = _refused(facts, last, places)
    if refused:
        return Since(
            "not comparable",
            _line(f"Not comparable with the last run {last.name}: {refused}", words),
            findings=findings,
            last=last,
        )
    level = _level(earlier)
    base = [_light(record) for record in level]
    context = Context(tuple(base), (facts,), sum(run.time for run in base) / len(base))
    outcome = judge(context, margin)
    if outcome.change in ("regression", "improvement"):
        comparison = _explained(facts, level, places, margin, outcome)
        where = comparison.attribution.text if comparison else ""
        sides = f"the last run {level[0].name}" if len(level) == 1 else f"the {len(level)} runs since {level[0].name}"
        size = format_ratio(abs(outcome.effect_ratio))
        head = f"{size} {'slower' if outcome.change == 'regression' else 'faster'} than {sides}"
        text = _line(f"{head}: {format_ns(outcome.base_ns)} became {format_ns(outcome.new_ns)} per step", where, words)
        return Since(outcome.change, text, outcome, comparison, findings, tuple(level), last)
    against = f" against {len(level)} runs" if len(level) > 1 else ""
    step = f"step {format_ns(facts.step_ns)}, {signed(outcome.effect_ratio)}{against}"
    same = "Nothing changed" if outcome.change == "equivalent" else "Nothing changed beyond chance"
    head = "Step time as before" if words else f"{same} since {last.name}"
    return Since(outcome.change, _line(f"{head} ({step})", words), outcome, None, findings, tuple(level), last)


def _line(*sentences: str) -> str:
    """Sentences joined, each with one full stop."""
    return " ".join(f"{opening(sentence.rstrip('.'))}." for sentence in sentences if sentence)


def _level(earlier: Sequence[Record]) -> list[Record]:
    """The first runs since the step time last changed."""
    start = max((index for index, record in enumerate(earlier) if record.level_start), default=0)
    return [record for record in earlier[start:] if record.step_ns][:LEVEL_RUNS]


def _refused(facts: RunFacts, last: Record, places: Places) -> str:
    """Why the run did other work than the last one; by its store where it is still there."""
    stored = _facts(last, places)
    if not last.step_ns:
        return f"{last.name} has no step time"
    reasons = why_not(_light(last) if stored is None else stored, facts)
    return reasons[0] if reasons else ""


def _facts(record: Record, places: Places) -> RunFacts | None:
    path = places.out / record.folder / record.store
    try:
        with Store(path) as tables:
            return read_run(tables, f"{record.folder}/{record.store}")
    except StoreError:  # retired, or of a later version
        return None


def _explained(
    facts: RunFacts, level: Sequence[Record], places: Places, margin: float, outcome: Outcome
) -> Comparison | None:
    """Parts, ranks and kernels against the newest stores of the level; the verdict stays the one of all runs."""
    import msgspec

    stored = [run for record in level[-STORES:] if (run := _facts(record, places)) is not None]
    if not stored:
        return None
    found = compare_runs(stored, [facts], Options(margin=margin))
    return msgspec.structs.replace(found, outcome=outcome)


def _light(record: Record) -> RunFacts:
    """What a record still knows of its run: enough for the verdict."""
    empty = pl.DataFrame(schema={"step": pl.Int64, "rank": pl.Int32, **dict.fromkeys(PARTS, pl.Int64)})
    kernels = pl.DataFrame(schema={"rank": pl.Int32, "signature": pl.Int64, "name": pl.String, "count": pl.Float64})
    return RunFacts(
        name=record.name, store=record.folder, world_size=record.world_size, ranks_seen=(), start_ns=record.start_ns, step_ns=record.step_ns,
        steps_used=record.steps_used, error=record.step_error, measured_from=record.measured_from, work=None, parts=empty, critical=empty,
        ranks=empty, kernels=kernels, collectives=pl.DataFrame(), comm_bytes=None, transports={}, settings={},
    )  # fmt: skip
