"""Downloads: tables as CSV and Parquet, a window for Perfetto; and texts of runs that try to be markup."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import catalog
import data
import export
import perfetto
import polars as pl
import pytest
from text import in_units, label, plain

from diagnose.store.schema import TABLES

if TYPE_CHECKING:
    from diagnose.store.writer import StoreWriter


@pytest.fixture
def slow_nic(stores, monkeypatch):
    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(stores))
    return catalog.open_run(catalog.discover(stores), "slow_nic")


@pytest.mark.parametrize("name", ["step", "collective", "process_group", "run", "kernel_stat"])
def test_every_row_of_a_table_comes_along(slow_nic, name):
    whole = data.store(slow_nic).frame(name)
    assert pl.read_parquet(io.BytesIO(export.parquet(slow_nic, name))).equals(whole)
    text = pl.read_csv(io.BytesIO(export.csv(slow_nic, name)), infer_schema=False)
    assert text.columns == whole.columns
    assert len(text) == len(whole)


def test_every_table_of_the_schema_can_be_taken(slow_nic):
    assert set(export.NAMES) == {table.name for table in TABLES}
    for name in export.NAMES:
        assert export.csv(slow_nic, name)


def test_no_spreadsheet_runs_a_cell(tmp_path, monkeypatch):
    from synthetic_store import write_empty

    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(tmp_path))
    bad = ['=HYPERLINK("http://x")', "+1", "-1+1", "@SUM(A1)", "\t=1", "fine-name"]

    def extra(writer: StoreWriter) -> None:
        writer.insert("issue", pl.DataFrame({"path": bad, "code": "c", "severity": "info", "count": 1, "example": bad}))

    write_empty(tmp_path / "r.duckdb", name="r", extra=extra)
    text = export.csv(catalog.open_run(catalog.discover(tmp_path), "r"), "issue").decode()
    read = pl.read_csv(io.StringIO(text), infer_schema=False).get_column("example").to_list()
    assert all(cell == "fine-name" or cell.startswith("'") for cell in read)


def test_the_window_holds_all_members_on_one_clock(slow_nic):
    collective = (
        data.store(slow_nic)
        .query(
            "SELECT instance, transfer_ns, members FROM collective WHERE members = seen AND members > 8 ORDER BY instance LIMIT 1"
        )
        .row(0, named=True)
    )
    trace = json.loads(perfetto.window(slow_nic, collective["instance"]))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    chosen = [event for event in slices if event["name"].endswith("(chosen)")]
    assert len(chosen) == collective["members"]
    ends = [event["ts"] + event["dur"] for event in chosen]
    residual = max(row.residual_ns or 0 for row in data.document(slow_nic).clocks)
    assert max(ends) - min(ends) < (residual * 6 + 50_000) / 1000
    # The kernel of each member lies where its collective lies: both are on the aligned clock.
    for event in chosen:
        kernels = [
            item
            for item in slices
            if item["pid"] == event["pid"]
            and item["cat"] == "comm"
            and abs(item["ts"] - event["ts"]) < 1
            and abs(item["dur"] - event["dur"]) < 1
        ]
        assert kernels, event["pid"]
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert "rank 0 on gpu-r01n01" in names
    assert "residual" in trace["otherData"]["clock"]


def test_a_window_of_many_members_keeps_the_first_and_the_last(tmp_path, monkeypatch):
    from synthetic_store import write_store

    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(tmp_path))
    write_store(tmp_path / "r.duckdb", ranks=200, steps=2, slow_rank=70)
    run = catalog.open_run(catalog.discover(tmp_path), "r")
    trace = json.loads(perfetto.window(run, 3))
    ranks = {event["pid"] for event in trace["traceEvents"]}
    assert len(ranks) == perfetto.MOST_RANKS
    assert 70 in ranks
    assert "136 of 200 members left out" in trace["otherData"]["ranks"]


def test_an_instance_without_members_is_an_empty_trace(slow_nic):
    assert json.loads(perfetto.window(slow_nic, 10**9))["traceEvents"] == []


@pytest.mark.parametrize(
    "text",
    [
        "**bold** [x](http://x)",
        "<img src=x>",
        ":material/error: :red[x] :smile:",
        "$x^2$",
        "# head",
        "a_b_c",
        "`code`",
        "1. item",
        "www.x.org",
    ],
)
def test_markup_in_a_name_stays_text(text):
    safe = plain(text)
    assert safe.replace("\\", "").replace("\u2060", "") == text
    for mark in "*[]<>`$#_|":
        assert all(safe[place - 1] == "\\" for place, letter in enumerate(safe) if letter == mark)
    assert ":material/" not in safe.replace("\\", "")


def test_labels_carry_units_and_numbers_match_them():
    frame = in_units(
        pl.DataFrame(
            {"transfer_ns": [1_500_000], "busbw_bytes_per_s": [2.5e9], "last_ratio": [0.25], "msg_bytes": [10]}
        )
    )
    assert frame.row(0) == (1.5, 2.5, 25.0, 10)
    assert [label(name) for name in frame.columns] == ["transfer (ms)", "busbw (GB/s)", "last (%)", "msg size"]
