"""The comparison as JSON, `diagnose.compare/1`: its structs, its bytes, its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from diagnose import __version__
from diagnose.analysis.compare.result import Comparison
from diagnose.findings.compare import changed_findings, compare_findings
from diagnose.report.document import FindingEntry, Tool, finding_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.findings.rules import RuleBook
    from diagnose.model import Finding

SCHEMA: Final = "diagnose.compare/1"


class RunFindings(msgspec.Struct, frozen=True, kw_only=True):
    """Findings of the runs themselves by what became of them."""

    new: tuple[FindingEntry, ...] = ()
    worse: tuple[FindingEntry, ...] = ()
    resolved: tuple[FindingEntry, ...] = ()


class CompareDocument(Comparison, frozen=True, kw_only=True):
    """The whole report: the comparison, what it found, and how the runs' own findings changed."""

    schema: Literal["diagnose.compare/1"] = SCHEMA
    tool: Tool = Tool()
    findings: tuple[FindingEntry, ...] = ()
    run_findings: RunFindings = RunFindings()


def document(
    comparison: Comparison,
    rules: RuleBook,
    *,
    before: Sequence[Sequence[Finding]] = (),
    after: Sequence[Sequence[Finding]] = (),
) -> CompareDocument:
    """The report of a comparison; ``before`` and ``after`` are the findings of each run of a side."""
    changes = changed_findings(before, after)
    fields = {name: getattr(comparison, name) for name in Comparison.__struct_fields__}
    kinds = {
        kind: tuple(finding_entry(item) for item in getattr(changes, kind)) for kind in ("new", "worse", "resolved")
    }
    findings = tuple(finding_entry(finding) for finding in compare_findings(comparison, rules))
    return CompareDocument(
        **fields, tool=Tool(version=__version__), findings=findings, run_findings=RunFindings(**kinds)
    )


def encode(report: CompareDocument) -> bytes:
    """UTF-8 JSON, schema and tool first; the same comparison gives the same bytes."""
    raw = msgspec.to_builtins(report, order="deterministic")
    ordered = {"schema": raw.pop("schema"), "tool": raw.pop("tool"), **raw}
    return msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n"


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12); every key is always written."""
    (schema,), definitions = msgspec.json.schema_components((CompareDocument,), ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
            for value in definition["properties"].values():
                value.pop("default", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema, "$defs": definitions}
