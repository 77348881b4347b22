"""What a check sees: the stored tables, the rules, the configuration and the run's scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from diagnose.model import Finding, Impact, NotChecked

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from diagnose.analysis.summary import JobSummary
    from diagnose.config import Config
    from diagnose.findings.rules import RuleBook

NS_PER_HOUR = 3_600_000_000_000
HOURS_PER_DAY = 24


class Tables(Protocol):
    """The reading half of a store."""

    def query(self, sql: str, parameters: dict[str, object] | None = None) -> pl.DataFrame:
        """Run a SELECT."""
        ...

    def frame(self, name: str) -> pl.DataFrame:
        """A whole table."""
        ...


class Facts(NamedTuple):
    """Input of every check. ``step_ns`` is the median step of the job, None without steps; ``job`` where it comes from."""

    tables: Tables
    rules: RuleBook
    config: Config
    world_size: int | None
    step_ns: int | None
    job: JobSummary | None = None

    def impact(self, lost_ns_per_step: float | None, *, rare: bool = False) -> Impact:
        """Lost time per step as time, share, and GPU-hours a day if the job ran all day at this rate.

        What strikes a few steps is no part of the median step: its share is that of the mean one, never above 1.
        """
        if lost_ns_per_step is None or not self.step_ns:
            return Impact()
        beside = rare or lost_ns_per_step > self.step_ns
        ratio = lost_ns_per_step / (self.step_ns + (lost_ns_per_step if beside else 0))
        hours = ratio * HOURS_PER_DAY * self.world_size if self.world_size else None
        return Impact(round(lost_ns_per_step), round(ratio, 4), None if hours is None else round(hours, 2))


class Check(Protocol):
    """Measures something in the tables and yields findings, and what it could not answer."""

    def __call__(self, facts: Facts, /) -> Iterable[Finding | NotChecked]:
        """Findings and unanswered questions; an empty table is a valid state, never an error."""
        ...
