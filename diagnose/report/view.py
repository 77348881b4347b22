"""What every renderer shows the same way: parts of a step, folded findings, subjects, costs, safe names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode

from diagnose.units import format_count, format_ns, format_ratio, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from diagnose.model import Evidence, Impact
    from diagnose.report.document import Document, FindingEntry
    from diagnose.report.measures import AnyParts

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SENTENCE = re.compile(r"(.*?(?:[.!?](?=\s+[A-Z])|$))\s*(.*)")
_BREAK = re.compile(r"[\r\n\t]+")

LONGEST = 240
"""Characters of one fact: templated kernel names alone can fill a page."""

NAME_LENGTH = 48
"""Room for a device named by its UUID."""
NETWORK_BOUND = {True: "yes", False: "no", None: "cannot say"}
SCENARIOS = {
    "no_skew": "no rank slower than its peers",
    "straggler_removed": "straggler as fast as its peers",
    "stage_rebalanced": "pipeline stages balanced",
    "perfect_overlap": "all communication hidden",
    "bandwidth_x2": "network bandwidth doubled",
    "latency_zero": "network latency zero",
    "no_input_stall": "no waiting for input",
    "no_gc": "no garbage collection pauses",
}


class Part(NamedTuple):
    """A part of the step: key in the document without its unit, letter in bars, words."""

    key: str
    letter: str
    label: str


PARTS = (
    Part("compute", "C", "compute"),
    Part("exposed_wait", "W", "waiting for peers"),
    Part("exposed_transfer", "T", "exposed transfer"),
    Part("exposed_comm", "X", "communication"),
    Part("exposed_memcpy", "M", "memory copies"),
    Part("idle_input", "I", "idle: input"),
    Part("idle_host", "H", "idle: host"),
    Part("idle_sync", "S", "idle: sync"),
    Part("idle_bubble", "B", "idle: bubble"),
    Part("idle_other", "o", "idle: other"),
)
"""``exposed_comm`` appears only where wait and transfer could not be told apart."""

_PART = {part.key: part for part in PARTS}
_IDLE = ("idle_input", "idle_host", "idle_sync", "idle_bubble")


class Slice(NamedTuple):
    """One part with its time."""

    part: Part
    ns: float


class Folded(NamedTuple):
    """A finding and those it explains, which are shown under it."""

    finding: FindingEntry
    explained: tuple[FindingEntry, ...]


def slices(parts: AnyParts) -> tuple[Slice, ...]:
    """The parts above zero, in fixed order; together they are the step window (of medians: nearly)."""
    times: dict[str, float] = {"compute": parts.compute_ns or 0, "exposed_memcpy": parts.exposed_memcpy_ns or 0}
    if parts.exposed_wait_ns is None or parts.exposed_transfer_ns is None:
        times["exposed_comm"] = parts.exposed_comm_ns or 0
    else:
        times |= {"exposed_wait": parts.exposed_wait_ns, "exposed_transfer": parts.exposed_transfer_ns}
    times |= {key: getattr(parts, f"{key}_ns") or 0 for key in _IDLE}
    named = sum(times[key] for key in _IDLE)
    rest = parts.idle_other_ns
    times["idle_other"] = max(0, (parts.idle_ns or 0) - named) if rest is None else rest
    return tuple(Slice(part, times[part.key]) for part in PARTS if times.get(part.key, 0) > 0)


def cells(values: Sequence[float], width: int) -> list[int]:
    """``width`` cells shared out in proportion (largest remainder), so that a bar is always full."""
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    exact = [value / total * width for value in values]
    counts = [int(value) for value in exact]
    order = sorted(range(len(values)), key=lambda index: (counts[index] - exact[index], index))
    for index in order[: width - sum(counts)]:
        counts[index] += 1
    return counts


def fold(findings: Sequence[FindingEntry]) -> tuple[Folded, ...]:
    """Findings in the given order, each explained one moved under the first finding that explains it."""
    explainers: dict[str, list[int]] = {}
    for index, finding in enumerate(findings):
        for code in finding.explains:
            explainers.setdefault(code, []).append(index)
    explained_by: dict[int, int] = {}
    for index in reversed(range(len(findings))):  # of findings that explain each other the first stands
        for other in explainers.get(findings[index].code, ()):
            if _speaks_of(findings[other], findings[index]) and _root(explained_by, other) != index:
                explained_by[index] = other
                break
    children: dict[int, list[FindingEntry]] = {}
    for index in sorted(explained_by):
        children.setdefault(_root(explained_by, index), []).append(findings[index])
    return tuple(
        Folded(finding, tuple(children.get(index, ())))
        for index, finding in enumerate(findings)
        if index not in explained_by
    )


def _speaks_of(explainer: FindingEntry, other: FindingEntry) -> bool:
    """A cause on one host explains nothing on another."""
    apart = bool(explainer.hosts) and bool(other.hosts) and not set(explainer.hosts) & set(other.hosts)
    return explainer.code != other.code and not apart


def _root(parents: dict[int, int], index: int) -> int:
    while index in parents:
        index = parents[index]
    return index


def clean(text: object) -> str:
    """Text from a file made safe for one line: line breaks become spaces, control and direction marks ``?``."""
    return _CONTROL.sub("?", _BREAK.sub(" ", str(text)))


def shorten(text: object, limit: int) -> str:
    """The text with its middle cut, because names of kernels and hosts differ at their ends."""
    line = clean(text)
    if len(line) <= limit:
        return line
    tail = (limit - 3) // 2
    return f"{line[: limit - 3 - tail]}...{line[len(line) - tail :]}"


def cut(text: object, limit: int) -> str:
    """A sentence or a list ended early, between two of its words or items: no name loses a part."""
    line = clean(text)
    if len(line) <= limit:
        return line
    kept = line[: limit - 4]
    for mark in ("; ", ", ", " "):
        head, found, _ = kept.rpartition(mark)
        if found and len(head) >= limit // 2:
            return f"{head} ..."
    return shorten(line, limit)


def ranges(numbers: Iterable[int], limit: int = 8) -> str:
    """``0-3, 7`` and, beyond ``limit`` ranges, ``... and N more``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:limit])
    left = sum(last - first + 1 for first, last in runs[limit:])
    return f"{shown} ... and {format_count(left)} more" if left else shown


def names(items: Sequence[str], limit: int = 4) -> str:
    """Names joined, long ones and long lists cut."""
    shown = ", ".join(shorten(item, NAME_LENGTH) for item in items[:limit])
    return f"{shown} ... and {format_count(len(items) - limit)} more" if len(items) > limit else shown


def count_of(number: int, word: str) -> str:
    """``1 rank``, ``8 ranks``."""
    return f"{format_count(number)} {word}{'' if number == 1 else 's'}"


def subject(finding: FindingEntry) -> str:
    """Whom the finding is about: ranks, hosts, devices, steps, persistence; empty for the whole job."""
    pieces = []
    if finding.ranks:
        pieces.append(f"rank{'s' if len(finding.ranks) > 1 else ''} {ranges(finding.ranks)}")
    if finding.hosts:
        pieces.append(f"on {names(finding.hosts)}")
    if finding.devices:
        pieces.append(names(finding.devices))
    if finding.steps != "all" and finding.steps:
        pieces.append(f"step{'s' if len(finding.steps) > 1 else ''} {ranges(finding.steps)}")
    if finding.persistence:
        pieces.append(finding.persistence)
    return ", ".join(pieces).replace(", on ", " on ", 1)


def cost(impact: Impact) -> str:
    """What the finding costs in words; empty when unknown."""
    pieces = []
    if impact.ns_per_step is not None:
        share = f" ({format_ratio(impact.step_ratio)} of it)" if impact.step_ratio is not None else ""
        pieces.append(f"{format_ns(impact.ns_per_step)} per step{share}")
    if impact.gpu_hours_per_day is not None:
        pieces.append(f"{hours(impact.gpu_hours_per_day)} a day")
    return ", ".join(pieces)


def hours(value: float | None) -> str:
    """GPU-hours: whole above a hundred, one decimal below."""
    if value is None:
        return "n/a"
    return f"{format_count(value)} GPU-hours" if abs(value) >= 100 else format_value(round(value, 1), "GPU-hours")


def times(value: float | None) -> str:
    """A factor such as a speedup."""
    return "n/a" if value is None else f"{value:.2f}x"


def evidence_text(item: Evidence) -> str:
    """The fact with its value, unless the sentence already contains it."""
    text = cut(item.text, LONGEST)
    if item.value is None:
        return text
    value = shorten(format_value(item.value, item.unit), LONGEST)
    return text if value in text else f"{text}: {value}"


def verdict_line(document: Document) -> str:
    """The whole verdict with its confidence."""
    return " ".join(part for part in verdict_parts(document) if part)


def verdict_parts(document: Document) -> tuple[str, str]:
    """What changed, if that is known, else the verdict's first sentence with the confidence; and the rest."""
    verdict = document.verdict
    since = clean(verdict.since)
    found = _SENTENCE.match(clean(verdict.text).removeprefix(since).lstrip())
    first, rest = found.groups() if found else ("", "")
    if verdict.bottleneck != "inconclusive":  # what is inconclusive needs none
        first = f"{first} (confidence {format_ratio(verdict.confidence)})"
    return (since, f"{first} {rest}".strip()) if since else (first, rest)


def run_facts(document: Document) -> tuple[str, ...]:
    """The run in short pieces: size, place, devices, backend, parallelism, steps."""
    run = document.run
    ranks = count_of(len(run.ranks), "rank") if run.ranks else ""
    if run.world_size is not None and run.world_size != len(run.ranks):
        ranks = f"{format_count(len(run.ranks))} of {count_of(run.world_size, 'rank')}"
    used = document.step_time.steps_used
    facts = [
        ranks,
        count_of(len(run.hosts), "host") if run.hosts else "",
        names(run.device_names, 2),
        clean(run.backend or ""),
        " x ".join(f"{clean(key)} {size}" for key, size in (run.parallelism or {}).items()),
        f"{count_of(used, 'step')} used" if used else "no steps",
    ]
    if run.excluded_steps:
        facts.append(f"{format_count(len(run.excluded_steps))} excluded")
    return tuple(fact for fact in facts if fact)


def exclusions(document: Document) -> tuple[tuple[str, str], ...]:
    """Why steps were left out, each reason with its steps."""
    grouped: dict[str, list[int]] = {}
    for item in document.run.excluded_steps:
        grouped.setdefault(clean(item.why), []).append(item.step)
    return tuple((why, f"step{'s' if len(set(steps)) > 1 else ''} {ranges(steps)}") for why, steps in grouped.items())


def missing(document: Document) -> str:
    """The ranks whose data never arrived, as a sentence; empty when all are there."""
    lost = document.run.missing_ranks
    return f"No data from {count_of(len(lost), 'rank')}: {ranges(lost)}." if lost else ""


def app_link(document: Document, finding: FindingEntry, app_address: str | None) -> str:
    """Where the app shows this finding; empty without an http address."""
    if not app_address or not app_address.startswith(("http://", "https://")):
        return ""
    query = urlencode({"run": document.run.name, "finding": finding.fingerprint}, errors="replace")
    return f"{quote(app_address, safe=':/?#[]@!$&+,;=%~')}?{query}"
