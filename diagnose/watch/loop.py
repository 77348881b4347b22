"""The watcher: look, take what is finished, analyse, publish, tell, tidy; again after a pause."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from diagnose.errors import DiagnoseError
from diagnose.findings.rules import RuleBook
from diagnose.watch import attempts, claims, index
from diagnose.watch.identity import rules_hash, run_key
from diagnose.watch.inbox import find_runs, why_ready
from diagnose.watch.options import Setup
from diagnose.watch.outbox import deliver
from diagnose.watch.places import Places, slug, write_whole
from diagnose.watch.record import Records
from diagnose.watch.retention import retire
from diagnose.watch.stop import Stop, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.watch.identity import RunKey
    from diagnose.watch.inbox import RunFolder
    from diagnose.watch.options import WatchOptions
    from diagnose.watch.record import Record
    from diagnose.watch.services import Service


INDEX_EVERY_S = 60.0
"""How old the index may get while a look works through many runs."""


class Events(NamedTuple):
    """Where news go: ``result`` a line a run, ``log`` everything else."""

    result: Callable[[str], None]
    log: Callable[[str], None]


class Look(NamedTuple):
    """What one look did. ``failed`` runs will be tried again, ``set_aside`` ones not; ``busy`` ones are with others."""

    published: tuple[Record, ...] = ()
    failed: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()

    @property
    def troubled(self) -> bool:
        """Whether somebody should be told."""
        return bool(self.failed or self.unsent)


class Watcher:
    """One watcher of one inbox; any number may share an output folder."""

    def __init__(self, options: WatchOptions, services: Sequence[Service], events: Events, stop: Stop) -> None:
        self.options = options
        self.places = Places(options.out)
        self._services = services
        self._events = events
        self._stop = stop
        book = RuleBook(options.config.thresholds)
        self._rules = rules_hash(options.config, book)
        self._setup = Setup(options, book, self.places)
        self._records = Records(self.places)

    def look(self) -> Look:
        """Take every finished run that nobody has, one after the other."""
        self.places.make()
        self.places.sweep(older_s=self.options.lease_s)
        claims.sweep(self.places.claims, lease_s=self.options.lease_s)
        found: dict[str, list[str]] = {"failed": [], "set_aside": [], "waiting": [], "busy": []}
        published = []
        shown = time.monotonic()
        for run in self._runs():
            if self._stop.asked:
                break
            outcome = self._take(run)
            if isinstance(outcome, str):
                if outcome in found:
                    found[outcome].append(run.name)
            else:
                published.append(outcome)
                self._deliver()
                if time.monotonic() - shown > INDEX_EVERY_S:
                    index.refresh(self.places, self._records)
                    shown = time.monotonic()
        unsent = () if self._stop.asked else self._deliver()
        self._tidy()
        return Look(tuple(published), unsent=unsent, **{kind: tuple(names) for kind, names in found.items()})

    def watch(self) -> None:
        """Look until a signal asks to stop."""
        while not self._stop.asked:
            self.look()
            end = time.monotonic() + self.options.poll_s
            while not self._stop.asked and time.monotonic() < end:
                time.sleep(min(0.2, self.options.poll_s))

    def rehearse(self) -> list[Record]:
        """A dry run: what would be analysed and said now. Nothing is written to the output folder."""
        shown: list[Record] = []
        known = self._records.all()
        with tempfile.TemporaryDirectory(prefix="diagnose-") as folder:
            scratch = Places(Path(folder))
            scratch.make()
            for run in self._runs():
                because = self._ready(run)
                if because is None:
                    continue
                key = run_key(run, self._rules)
                if self.places.done(run.name, key.key) or (self.places.failed / f"{key.key}.json").is_file():
                    continue
                record = self._rehearsed(run, key, [*known, *shown], scratch, because)
                if record is not None:
                    shown.append(record)
        return shown

    def _rehearsed(
        self, run: RunFolder, key: RunKey, known: list[Record], scratch: Places, because: str
    ) -> Record | None:
        from diagnose.watch import analyse as analysis  # a look at an idle inbox does without what this imports

        try:
            with self._stop.interruptible():
                built = analysis.analyse(run, key, known, scratch, self._setup, ready_because=because)
        except DiagnoseError as error:
            self._events.log(f"{run.name}: {error}")
            return None
        shutil.rmtree(built.folder)
        return built.record

    def _runs(self) -> list[RunFolder]:
        options = self.options
        runs = find_runs(options.inbox, depth=options.depth, job_from=options.job_from, ready_file=options.ready_file)
        inside = options.out.resolve()
        return [run for run in runs if not run.path.resolve().is_relative_to(inside)]

    def _ready(self, run: RunFolder) -> str | None:
        return why_ready(run, ready_file=self.options.ready_file, settle_s=self.options.settle_s, now_ns=time.time_ns())

    def _take(self, run: RunFolder) -> Record | str:
        """The run's record when it was published now, else what became of it."""
        stamp = hashlib.sha256(f"{run.listing}\0{self._rules}".encode()).hexdigest()
        seen = self.places.seen / f"{hashlib.sha256(f'{run.job}/{run.name}'.encode()).hexdigest()[:24]}"
        if seen.is_file() and seen.read_text(encoding="ascii", errors="replace") == stamp:
            return "done"
        because = self._ready(run)
        if because is None:
            return "waiting"
        try:
            key = run_key(run, self._rules)
        except DiagnoseError as error:
            self._events.log(f"{run.name}: {error}")
            return "waiting"
        if self.places.done(run.name, key.key):
            attempts.succeeded(self.places, key.key)  # a crash may have come between publishing and this
            write_whole(seen, stamp.encode())
            return "done"
        if attempts.set_aside(self.places, key.key, most=self.options.failures):
            return "set_aside"
        claim = claims.acquire(
            self.places.claims,
            f"job-{slug(run.job)}-{hashlib.sha256(run.job.encode()).hexdigest()[:8]}",
            lease_s=self.options.lease_s,
        )
        if claim is None:
            return "busy"
        with claim:
            if self.places.done(run.name, key.key):  # by another, between the look and the claim
                return "done"
            outcome = self._analyse(run, key, because)
        if not isinstance(outcome, str):
            write_whole(seen, stamp.encode())
        return outcome

    def _analyse(self, run: RunFolder, key: RunKey, because: str) -> Record | str:
        from diagnose.watch import analyse as analysis  # a look at an idle inbox does without what this imports

        tried = attempts.begin(self.places, run, key.key)
        try:
            with self._stop.interruptible():
                built = analysis.analyse(run, key, self._records.all(), self.places, self._setup, ready_because=because)
        except Stopped:
            attempts.undo(self.places, tried)
            return "stopped"
        except Exception as error:  # noqa: BLE001 - one run must not end the watch; the error is kept and told
            return self._failed(run, tried, error)
        fresh = analysis.publish(built, self.places)
        attempts.succeeded(self.places, key.key)
        if not fresh:
            return "done"
        self._events.result(
            f"{run.job}/{run.name}: {built.record.since} -> {self.places.out / built.record.folder / 'report.html'}"
        )
        return built.record

    def _failed(self, run: RunFolder, tried: attempts.Attempts, error: Exception) -> str:
        text = (
            str(error)
            if isinstance(error, DiagnoseError)
            else f"internal error ({type(error).__name__}: {error}); this is a bug, please report it"
        )
        aside = attempts.failed(self.places, tried, text, most=self.options.failures)
        what = f"set aside after {self.options.failures} failures" if aside else "failed, will be tried again"
        self._events.log(f"{run.name}: {what}: {text}")
        return "failed"

    def _deliver(self) -> tuple[str, ...]:
        if not self._services:
            return ()
        done = deliver(
            self.places,
            self._records.all(),
            self._services,
            lease_s=self.options.lease_s,
            stopped=lambda: self._stop.asked,
        )
        for text in done.unsent:
            self._events.log(f"alert not delivered, will be tried again: {text}")
        return done.unsent

    def _tidy(self) -> None:
        rule = self.options.retention
        if rule.keep_runs is not None or rule.keep_days is not None:
            for record in retire(self.places, self._records.all(), rule, self._services):
                self._events.log(f"{record.name}: store and reports removed by retention, history kept")
        if not index.up_to_date(self.places, self._records):
            index.refresh(self.places, self._records)
