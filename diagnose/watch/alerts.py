"""The message of a run: only when something changed, one a run, the worst three with a link and an id."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from diagnose.findings.compare import cost_words
from diagnose.report.view import clean, shorten
from diagnose.watch.record import Alert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.findings.compare import Found
    from diagnose.watch.record import Record
    from diagnose.watch.since import Since

WORST = 3
LINE = 300


def alert(
    job: str, name: str, key: str, since: Since, link: str, *, wanted: bool, replaced: Record | None
) -> Alert | None:
    """The message, None when nothing changed, or when an earlier analysis of the same run has already said it."""
    changed = since.change in ("regression", "improvement")
    if since.change == "first" or since.last is None:
        return None
    if not changed and not since.findings:
        return None
    kind = _kind(since, changed=changed)
    said = _id(key, since, kind)
    if replaced is not None and replaced.alert is not None and replaced.alert.kind == kind:
        return None
    worst = [*since.findings.new, *since.findings.worse]
    lines = [shorten(since.text, LINE * 2), ""]
    lines += [_item("new", item) for item in since.findings.new[:WORST]]
    lines += [_item("worse", item) for item in since.findings.worse[: max(0, WORST - len(since.findings.new))]]
    if len(worst) > WORST:
        lines.append(f"- and {len(worst) - WORST} more new or worse findings")
    lines += [_item("resolved", item) for item in since.findings.resolved[: WORST if not worst else 1]]
    lines += ["", f"Report: {link}", f"Alert {said}"]
    return Alert(
        id=said, title=shorten(f"{job}: {name}: {_title(since)}", 120), body="\n".join(lines), kind=kind, wanted=wanted
    )


def first_alert(job: str, name: str, key: str, findings: Sequence[Found], link: str, *, wanted: bool) -> Alert | None:
    """The first run of a job: what is wrong with it from the start, if anything."""
    loud = [item for item in findings if item.severity != "info"]
    if not loud:
        return None
    said = hashlib.sha256("|".join((key, *(item.fingerprint for item in loud))).encode()).hexdigest()[:16]
    lines = ["First run of this job.", "", *(_item("new", item) for item in loud[:WORST])]
    lines += [f"- and {len(loud) - WORST} more"] if len(loud) > WORST else []
    lines += ["", f"Report: {link}", f"Alert {said}"]
    title = shorten(f"{job}: {name}: {len(loud)} finding{'s' if len(loud) > 1 else ''} in the first run", 120)
    return Alert(id=said, title=title, body="\n".join(lines), kind="first", wanted=wanted)


def _kind(since: Since, *, changed: bool) -> str:
    """What the message says, without numbers: the same words are not said twice of one run."""
    pieces = [since.change if changed else ""]
    for items in since.findings:
        pieces.append(",".join(sorted(item.fingerprint for item in items)))  # noqa: PERF401 - two levels in one line read badly
    return "|".join(pieces)


def _id(key: str, since: Since, kind: str) -> str:
    return hashlib.sha256(f"{key}|{kind}|{since.last.key if since.last else ''}".encode()).hexdigest()[:16]


def _item(word: str, item: Found) -> str:
    price = cost_words(item)
    return shorten(
        f"- {word}: {item.severity} {clean(item.title)} [{item.code}]{f', {price}' if price else ''}: {clean(item.message)}",
        LINE,
    )


def _title(since: Since) -> str:
    """The shortest true thing: slower, faster, or how many findings."""
    if since.change in ("regression", "improvement") and since.outcome is not None:
        ratio = since.outcome.effect_ratio
        return f"{abs(ratio) * 100:.3g} % {'slower' if ratio > 0 else 'faster'}"
    counts = [
        f"{len(items)} {word}" for word in ("new", "worse", "resolved") if (items := getattr(since.findings, word))
    ]
    return f"findings: {', '.join(counts)}"
