"""Real files of many tools: the values, times and findings that their index expects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml
from node_metrics_support import DATA, Ingested, file_source

from diagnose.ingest.node_metrics import identity

CORPUS = DATA / "node_metrics"
ENTRIES = yaml.safe_load((CORPUS / "index.yaml").read_text())["samples"] if (CORPUS / "index.yaml").is_file() else []

pytestmark = pytest.mark.skipif(
    not ENTRIES, reason="the corpus of real metric files is not here (../shared/data/node_metrics)"
)

OTHER_NAMES = {
    "gpu:index:0": ("gpu:GPU-00000020-0000-4000-8000-000000000000", "gpu:GPU-00000040-0000-4000-8000-000000000000"),
    "nic:agg/1": ("agg:Mellanox_Technologies_Aggregation_Node/1",),
    "node-a/gpu:index:0/link:0": ("gpu:index:0/link:0",),
}
"""The index names some GPUs by index although the file gives the uuid, which is the better name."""


def same_entity(found: str, host: str | None, wanted: str) -> bool:
    names = {wanted, *OTHER_NAMES.get(wanted, ())}
    names |= {
        wanted.replace(short, name)
        for short, others in OTHER_NAMES.items()
        for name in others
        if wanted.startswith(f"{short}/")
    }
    names |= {f"node:{host}"} if found == "node" else set()
    plain = {name.lower() for name in names}
    if found.lower() in plain or (found == "node" and f"node:{host}" in plain):
        return True
    if "pci:" not in wanted or "pci:" not in found:
        return False
    return identity.pci_id(found.split("pci:")[1]) == identity.pci_id(wanted.split("pci:")[1])


def unix_ns(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1e6) * 1000


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"] for entry in ENTRIES])
def test_values(entry, ingest: Ingested):
    ingest.read([file_source(CORPUS / entry["file"])])
    rows = ingest.samples()
    for want in entry["expect"].get("values", []):
        if isinstance(want["value"], str):
            continue  # names are no numbers: they are in node_event and in the entity
        wanted_ns = unix_ns(want["ts"]) if want["ts"] else None
        found = [
            row[4]
            for row in rows
            if row[0] == want["metric"] and same_entity(row[2], row[1], want["entity"]) and row[3] == wanted_ns
        ]
        assert found, (want, sorted({row[1:4] for row in rows if row[0] == want["metric"]}, key=str)[:5])
        if want["value"] is None:
            assert None in found
        else:
            assert any(value is not None and value == pytest.approx(want["value"], rel=1e-12) for value in found), (
                want,
                found,
            )


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["file"] for entry in ENTRIES])
def test_finding(entry, ingest: Ingested):
    ingest.read([file_source(CORPUS / entry["file"])])
    wanted = entry["expect"]["finding"]
    if wanted == "healthy":
        assert [code for code in ingest.loud() if not code.startswith("DQ")] == []
    else:
        assert wanted in ingest.codes()
        severity = next((item.severity for item in ingest.findings() if item.code == wanted), "info")
        if (
            wanted != "NIC-SAT-01"
        ):  # the index is louder there than the rule table, which says it is no evidence either way
            assert severity == entry["expect"]["severity"]


def test_every_file_is_claimed_by_one_reader_first(ingest: Ingested):
    ingest.read([file_source(CORPUS / entry["file"]) for entry in ENTRIES])
    assert [label for label, names in ingest.claims.items() if not names] == []


def test_derived_numbers_of_the_index(ingest: Ingested):
    ingest.read(
        [
            file_source(CORPUS / "30-efa-hwcounters-bracket.txt"),
            file_source(CORPUS / "02-nvsmi-csv-l40s-powercap-counter.csv"),
        ]
    )
    from diagnose.analysis.node_metrics.counters import summarise

    rows = {(row["metric"], row["entity"]): row for row in summarise(ingest.frame(), None).iter_rows(named=True)}
    assert rows["nic.efa.retrans_pkts_total", "nic:efa_0"]["increase"] == 2623
    assert rows["nic.efa.retrans_timeout_total", "nic:efa_1"]["increase"] == 395
    capped = rows["gpu.throttle.sw_power_seconds_total", "gpu:GPU-00000002-0000-4000-8000-000000000000"]
    assert capped["increase"] == pytest.approx(3.902601)
    assert capped["increase"] / (capped["span_ns"] / 1e9) == pytest.approx(0.2659, abs=1e-4)
