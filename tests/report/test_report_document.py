from __future__ import annotations

import json
import math

import jsonschema
import pytest
import report_documents as documents
from report_content import raw
from report_findings import findings

from diagnose.errors import StoreError
from diagnose.model import Finding, Impact
from diagnose.report.document import Document, decode, encode, from_raw, json_schema
from diagnose.report.measures import JobParts, Parts, RankParts, StepParts, TraceParts

CONTRACT = {
    "": "schema tool run verdict step_time collectives network clocks transports scaling what_if findings "
    "not_checked data_quality",
    "run": "name world_size ranks missing_ranks hosts backend device_names parallelism wall_time_ns steps "
    "excluded_steps",
    "verdict": "bottleneck network_bound text confidence",
    "step_time": "window steps_used median_ns breakdown trace per_rank per_step",
    "network": "tiers oversubscription suspects",
    "transports": "network by_kind gdr interfaces per_host",
    "data_quality": "sources issues",
}
ROWS = {
    "collectives": "collective process_group group_size nodes tier dtype msg_bytes count matched_ratio "
    "match_method transfer_ns wait_ns algbw_bytes_per_s busbw_bytes_per_s bound",
    "clocks": "host offset_ns drift_ppm residual_ns",
    "what_if": "scenario step_ns speedup gpu_hours_per_day explained_ratio",
    "findings": "code title severity cause ranks hosts devices steps persistence impact confidence message "
    "evidence actions explains fingerprint",
    "not_checked": "question why collect",
}


def test_the_json_has_the_contracts_keys_in_its_order(rich: Document) -> None:
    report = json.loads(encode(rich))
    for place, keys in CONTRACT.items():
        section = report[place] if place else report
        assert list(section)[: len(keys.split())] == keys.split(), place
    for place, keys in ROWS.items():
        assert list(report[place][0])[: len(keys.split())] == keys.split(), place
    assert list(report["step_time"]["per_rank"][0])[:3] == ["rank", "host", "step_ns"]
    assert list(report["step_time"]["per_step"][0])[:5] == ["rank", "step", "step_ns", "window_ns", "label"]
    assert "blocking_comm_ns" in report["step_time"]["breakdown"]


def test_every_struct_with_parts_has_the_same_parts() -> None:
    parts = Parts.__struct_fields__
    for struct in (JobParts, TraceParts, RankParts, StepParts):
        assert tuple(name for name in struct.__struct_fields__ if name in parts) == parts


def test_the_json_fits_its_published_schema(any_document: Document) -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.validate(json.loads(encode(any_document)), json_schema())


def test_the_same_document_gives_the_same_bytes_and_comes_back() -> None:
    first, second = documents.rich_document(), documents.rich_document()
    assert encode(first) == encode(second)
    assert encode(decode(encode(first))) == encode(first)


def test_order_of_free_keys_does_not_change_the_bytes() -> None:
    content = raw()
    turned = content | {
        "transports": content["transports"] | {"by_kind": dict(reversed(content["transports"]["by_kind"].items()))}
    }
    assert encode(from_raw(turned)) == encode(from_raw(content))


def test_what_is_no_number_becomes_null() -> None:
    content = raw()
    content["collectives"][0]["busbw_bytes_per_s"] = math.nan
    content["clocks"][0]["drift_ppm"] = math.inf
    report = json.loads(encode(from_raw(content)))
    assert report["collectives"][0]["busbw_bytes_per_s"] is None
    assert report["clocks"][0]["drift_ppm"] is None


def test_findings_keep_their_fingerprint(rich: Document) -> None:
    model = findings()
    assert [entry.fingerprint for entry in rich.findings] == [finding.fingerprint for finding in model]
    quiet = Finding(code="A", title="t", severity="info", cause="hang", message="m", impact=Impact())
    assert from_raw(raw() | {"findings": [quiet]}).findings[0].fingerprint == quiet.fingerprint


def test_scaling_keeps_the_keys_of_its_fit() -> None:
    content = raw()
    content["scaling"]["unit"] = "tokens/s"
    assert json.loads(encode(from_raw(content)))["scaling"]["unit"] == "tokens/s"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"verdict": {"text": "no bottleneck"}}, "verdict"),
        ({"scaling": {"points": [{"gpus": "eight"}]}}, "points"),
        ({"clocks": 3}, "clocks"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_place(change: dict, place: str) -> None:
    with pytest.raises(StoreError, match=place):
        from_raw(raw() | change)


def test_bytes_that_are_no_report_are_an_error() -> None:
    with pytest.raises(StoreError):
        decode(b"{}")
    with pytest.raises(StoreError):
        decode(b"\x00")
