"""The JSON report, `diagnose.report/1`: its structs, its bytes, its published schema.

Every renderer reads this document and nothing else. Times are integer nanoseconds, sizes bytes, shares 0 to 1; ``None``
is "not known". Keys stand in the order of the published contract; later versions only add keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from diagnose.errors import StoreError
from diagnose.model import Evidence, Finding, Impact, NotChecked, Persistence, Severity, SourceStatus
from diagnose.report.measures import (
    Charts,
    ClockRow,
    CollectiveRow,
    Network,
    Scaling,
    Section,
    StepTime,
    Transports,
    WhatIf,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "diagnose.report/1"
UNKNOWN_RANK = "?"
"""Key in ``step_time.trace`` of the only trace of a run, when nothing tells its rank."""


class Tool(Section, frozen=True, kw_only=True):
    """Which program wrote the report."""

    name: str = "diagnose"
    version: str = ""


class HostRanks(Section, frozen=True, kw_only=True):
    """One host and the ranks that ran there."""

    host: str
    ranks: tuple[int, ...] = ()


class ExcludedStep(Section, frozen=True, kw_only=True):
    """One step that no median uses, and why."""

    step: int
    why: str


class RunInfo(Section, frozen=True, kw_only=True):
    """What ran: size, place, devices, and which steps were looked at."""

    name: str
    world_size: int | None = None
    ranks: tuple[int, ...] = ()
    missing_ranks: tuple[int, ...] = ()
    hosts: tuple[HostRanks, ...] = ()
    backend: str | None = None
    device_names: tuple[str, ...] = ()
    parallelism: dict[str, int] | None = None
    wall_time_ns: int | None = None
    steps: tuple[int, ...] = ()
    excluded_steps: tuple[ExcludedStep, ...] = ()


class Verdict(Section, frozen=True, kw_only=True):
    """The answer: what holds the run back. ``network_bound`` None means that the data cannot say.

    ``since``: what changed since the last run, in reports of `diagnose watch`; ``text`` begins with it.
    """

    bottleneck: str
    network_bound: bool | None = None
    text: str
    confidence: float = 0.0
    since: str = ""


class FindingEntry(Section, frozen=True, kw_only=True):
    """A finding with its fingerprint, ready to print."""

    code: str
    title: str
    severity: Severity
    cause: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    steps: tuple[int, ...] | Literal["all"] = "all"
    persistence: Persistence | None = None
    impact: Impact = Impact()
    confidence: float = 1.0
    message: str = ""
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    fingerprint: str = ""


class SourceRow(Section, frozen=True, kw_only=True):
    """One input file and what became of it."""

    path: str
    kind: str | None = None
    bytes: int | None = None
    rank: int | None = None
    host: str | None = None
    rows: int | None = None
    status: SourceStatus = "ok"
    problem: str | None = None


class IssueRow(Section, frozen=True, kw_only=True):
    """One kind of problem of the input, counted."""

    code: str
    severity: str
    count: int
    example: str = ""


class DataQuality(Section, frozen=True, kw_only=True):
    """What was read, and what was wrong with it."""

    sources: tuple[SourceRow, ...] = ()
    issues: tuple[IssueRow, ...] = ()


class Document(Section, frozen=True, kw_only=True):
    """The whole report."""

    schema: Literal["diagnose.report/1"] = SCHEMA
    tool: Tool
    run: RunInfo
    verdict: Verdict
    step_time: StepTime = StepTime()
    collectives: tuple[CollectiveRow, ...] = ()
    network: Network = Network()
    clocks: tuple[ClockRow, ...] = ()
    transports: Transports = Transports()
    scaling: dict[str, Any] | None = None
    """A `measures.Scaling`, kept whole: the fit adds keys of its own."""
    what_if: tuple[WhatIf, ...] = ()
    findings: tuple[FindingEntry, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    data_quality: DataQuality = DataQuality()
    charts: Charts | None = None


def finding_entry(finding: Finding) -> FindingEntry:
    """The finding as the report prints it."""
    fields = {name: getattr(finding, name) for name in finding.__struct_fields__}
    return FindingEntry(**fields, fingerprint=finding.fingerprint)


def from_raw(raw: Mapping[str, Any]) -> Document:
    """A document from plain values; nested structs, lists and dicts may be mixed, findings may be model.Finding.

    Raises:
        StoreError: a value does not fit the schema; the message names its place.
    """
    prepared = dict(raw)
    prepared["findings"] = [
        finding_entry(item) if isinstance(item, Finding) else item for item in raw.get("findings", ())
    ]
    try:
        document = msgspec.convert(prepared, Document)
        scaling(document)
    except msgspec.ValidationError as error:
        raise StoreError(f"the report does not fit {SCHEMA}: {error}") from error
    return document


def scaling(document: Document) -> Scaling | None:
    """The typed part of the scaling section.

    Raises:
        msgspec.ValidationError: a key of the contract has a wrong type.
    """
    return None if document.scaling is None else msgspec.convert(document.scaling, Scaling)


def encode(document: Document) -> bytes:
    """The document as UTF-8 JSON: the same document gives the same bytes; NaN and infinity become null."""
    return msgspec.json.format(msgspec.json.encode(document, order="deterministic"), indent=1) + b"\n"


def decode(data: bytes) -> Document:
    """The document of a JSON report.

    Raises:
        StoreError: no JSON, or not this schema.
    """
    try:
        return msgspec.json.decode(data, type=Document)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise StoreError(f"not a {SCHEMA} report: {error}") from error


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the report. Every key is always written, so every key is required."""
    (schema, _), definitions = msgspec.json.schema_components((Document, Scaling), ref_template="#/$defs/{name}")
    schema["$defs"] = definitions
    definitions["Document"]["properties"]["scaling"] = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Scaling"}]}
    for definition in schema["$defs"].values():
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
            for value in definition["properties"].values():
                value.pop("default", None)  # a reader always finds the key
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
