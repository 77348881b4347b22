"""One run from its files to a published folder: store, reports, comparison, record, all or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose import __version__
from diagnose.analysis.compare.facts import read_run
from diagnose.pipeline.build import build_run
from diagnose.report.assemble import assemble
from diagnose.report.render import render
from diagnose.report.view import clean, shorten, subject
from diagnose.store.reader import Store
from diagnose.watch.alerts import alert, first_alert
from diagnose.watch.places import Places, slug, sync_folder, write_whole
from diagnose.watch.record import PARTS, Note, Record, current, write_record
from diagnose.watch.since import Since, compare_with_history

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from diagnose.analysis.compare.facts import RunFacts
    from diagnose.report.document import Document, FindingEntry
    from diagnose.watch.identity import RunKey
    from diagnose.watch.inbox import RunFolder
    from diagnose.watch.options import Setup


class Analysed(NamedTuple):
    """A run built and not yet published."""

    folder: Path
    record: Record


def analyse(
    run: RunFolder, key: RunKey, known: Sequence[Record], places: Places, setup: Setup, *, ready_because: str
) -> Analysed:
    """Build everything in a folder of its own below ``.work``; whoever holds the job's claim may remove older remains.

    Raises:
        DiagnoseError: the run cannot be read or its store not be written.
    """
    staging = places.work / f"{places.folder(run.name, key.key).name}.{os.getpid()}"
    for remains in places.work.glob(f"{places.folder(run.name, key.key).name}.*"):
        shutil.rmtree(remains, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        return Analysed(staging, _build(run, key, known, setup, staging, ready_because))
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _build(
    run: RunFolder, key: RunKey, known: Sequence[Record], setup: Setup, staging: Path, ready_because: str
) -> Record:
    options, rules, places = setup
    store = staging / f"{slug(run.name)}.duckdb"
    with _scratch(staging / "scratch"):
        build_run([str(run.path)], store, options.config, msgspec.structs.replace(options.run, name=run.name))
    with Store(store) as tables:
        document = assemble(tables, options.config, rules)
        facts = read_run(tables, run.name)
    replaced = next((record for record in reversed(known) if record.job == run.job and record.name == run.name), None)
    order_ns = facts.start_ns or run.oldest_ns
    earlier = [
        record
        for record in current(known)
        if record.job == run.job and record.name != run.name and record.order_ns <= order_ns
    ]
    notes = tuple(_note(finding) for finding in document.findings)
    since = compare_with_history(facts, notes, earlier, places, options.margin)
    record = _record(run, key, document, facts, since, notes, places, replaced, ready_because)
    link = (
        f"{options.link_prefix.rstrip('/')}/{record.folder}/report.html"
        if options.link_prefix
        else str(places.out / record.folder / "report.html")
    )
    message = (
        first_alert(run.job, run.name, key.key, notes, link, wanted=options.notify)
        if since.change == "first" and replaced is None
        else alert(run.job, run.name, key.key, since, link, wanted=options.notify, replaced=replaced)
    )
    record = msgspec.structs.replace(record, alert=message)
    _write_reports(staging, document, since, replaced, setup)
    write_record(staging, record)
    return record


@contextmanager
def _scratch(folder: Path) -> Iterator[None]:
    """Temporary files of the analysis below ``folder``, so that a killed process leaves none elsewhere."""
    folder.mkdir()
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = None  # the default again, found anew: another thread's folder must not come back
        shutil.rmtree(folder, ignore_errors=True)


def _record(
    run: RunFolder, key: RunKey, document: Document, facts: RunFacts, since: Since, notes: tuple[Note, ...], places: Places, replaced: Record | None,
    ready_because: str,
) -> Record:  # fmt: skip
    folder = places.folder(run.name, key.key)
    breakdown = msgspec.to_builtins(document.step_time.breakdown)
    return Record(
        key=key.key, sources_key=key.sources, job=run.job, name=run.name, input=str(run.path), folder=folder.relative_to(places.out).as_posix(),
        store=f"{slug(run.name)}.duckdb", analysed_ns=time.time_ns(), order_ns=facts.start_ns or run.oldest_ns, start_ns=facts.start_ns, world_size=facts.world_size,
        step_ns=facts.step_ns, step_error=facts.error, steps_used=facts.steps_used, measured_from=facts.measured_from,
        bottleneck=document.verdict.bottleneck, network_bound=document.verdict.network_bound, verdict=document.verdict.text, change=since.change,
        change_ratio=since.outcome.effect_ratio if since.outcome else None, interval=since.outcome.interval if since.outcome else None,
        changed_part=since.comparison.attribution.part if since.comparison else None, since=since.text,
        compared_with=tuple(record.key for record in since.base), level_start=since.level_start, supersedes=replaced.key if replaced else None,
        parts={name: float(value) for name in PARTS if isinstance(value := breakdown.get(name), int | float)}, findings=notes,
        tool_version=__version__, ready_because=ready_because, files=len(run.files),
    )  # fmt: skip


def _note(finding: FindingEntry) -> Note:
    return Note(
        code=finding.code, severity=finding.severity, title=finding.title, message=shorten(finding.message, 300), fingerprint=finding.fingerprint,
        subject=subject(finding), impact=finding.impact,
    )  # fmt: skip


def _write_reports(staging: Path, document: Document, since: Since, replaced: Record | None, setup: Setup) -> None:
    """The reports of the run, what changed in their first line; and the comparison where there is one."""
    line = clean(
        since.text
        if replaced is None
        else f"{since.text} Supersedes the analysis of the same run from before its files changed."
    )
    verdict = msgspec.structs.replace(document.verdict, text=f"{line} {document.verdict.text}", since=line)
    findings = document.findings
    if since.comparison is not None:
        from diagnose.report.compare_document import document as compare_document
        from diagnose.report.compare_render import render as render_comparison

        report = compare_document(since.comparison, setup.rules)
        for format_ in ("json", "html"):
            write_whole(staging / f"compare.{format_}", render_comparison(report, format_).encode())
        loud = tuple(finding for finding in report.findings if finding.severity != "info")
        facts = tuple(finding for finding in report.findings if finding.severity == "info")
        findings = (*loud, *findings, *facts)  # what changed comes first; history keeps the run's own findings alone
    changed = msgspec.structs.replace(document, verdict=verdict, findings=findings)
    for format_, name in (("json", "report.json"), ("html", "report.html"), ("md", "report.md")):
        text = render(changed, format_, rules=setup.rules, app_address=setup.options.config.app_address)
        write_whole(staging / name, text.encode())


def publish(analysed: Analysed, places: Places) -> bool:
    """Move the folder into place. False when the same key is there already: then this one is dropped."""
    target = places.out / analysed.record.folder
    try:
        analysed.folder.rename(target)
    except OSError:
        if not (target / "record.json").is_file():
            raise
        shutil.rmtree(analysed.folder, ignore_errors=True)
        return False
    sync_folder(target.parent)
    return True
