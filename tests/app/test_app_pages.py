"""Every page over every kind of run: it shows something useful and says what is missing, never an exception."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import state
from app_session import texts
from app_stores import APP, STORES

PAGES = tuple(page.name for page in state.PAGES)
TITLES = {page.name: page.title for page in state.PAGES}


@pytest.mark.parametrize("store", STORES)
def test_every_page_of_a_run_shows_itself(open_app, store):
    session = open_app(run=store)
    for page in PAGES:
        session.switch_page(f"app_pages/{page}.py").run()
        assert not session.exception, page
        assert [item.value for item in session.error] == [], page
        assert session.title[0].value == TITLES[page]


MISSING = {
    "overview": "No step time", "steps": "No steps", "ranks": "No ranks", "collectives": "No collectives", "nodes": "No events", "what_if": "No scenarios",
    "scaling": "No scaling curve",
}  # fmt: skip


@pytest.mark.parametrize("store", ["nothing", "logs_only"])
def test_what_is_missing_is_said_with_how_to_get_it(open_app, store):
    session = open_app(run=store)
    for page, words in MISSING.items():
        said = texts(session.switch_page(f"app_pages/{page}.py").run())
        assert words in said, page
        assert "To see it:" in said, page


def test_logs_alone_fill_the_network_page(open_app):
    said = texts(session := open_app("network", run="logs_only"))
    assert "No connections known" not in said
    assert any("mlx5_0" in str(item.value.to_dict()) for item in session.dataframe)


def test_metrics_fill_the_nodes_page(open_app):
    session = open_app("nodes", run="whole_job")
    assert "No node metrics" not in texts(session)
    metric = next(box for box in session.selectbox if box.label == "Metric")
    assert set(metric.options) == {"gpu_sm_clock_hz", "nic_rx_bytes"}
    metric.set_value("nic_rx_bytes").run()
    assert not session.exception


def test_training_log_has_its_trend(open_app):
    assert "No training log" not in texts(open_app("steps", run="whole_job"))
    assert "No training log" in texts(open_app("steps", run="healthy"))


def test_damaged_input_is_named(open_app):
    said = texts(open_app("quality", run="damaged"))
    assert re.search(r"[1-9]\d* (partial|failed)", said)


def test_a_folder_without_stores_says_what_to_do(open_app, tmp_path):
    assert "diagnose run" in texts(open_app(root=tmp_path))


def test_a_file_that_is_no_store_leaves_the_others_usable(open_app, stores, tmp_path):
    (tmp_path / "broken.duckdb").write_bytes(b"no database" * 100)
    (tmp_path / "good.duckdb").write_bytes((stores / "nothing.duckdb").read_bytes())
    session = open_app(root=tmp_path, run="broken")
    assert "is not a run store" in session.error[0].value.replace("\\", "")
    assert str(tmp_path) not in session.error[0].value.replace("\\", "")
    session = open_app("runs", root=tmp_path, run="good")
    listed = session.dataframe[0].value
    assert list(listed["run"]) == ["broken", "good"]
    assert "not a run store" in listed["problem"][0]


def test_pages_are_short_and_hold_no_sql():
    for path in sorted((APP / "app_pages").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 120, path.name
        assert not re.search(r"\bSELECT\b|\.query\(|duckdb", text), path.name
    assert {path.stem for path in (APP / "app_pages").glob("*.py")} == set(PAGES)


def test_every_query_is_used():
    code = "\n".join(path.read_text(encoding="utf-8") for path in APP.rglob("*.py"))
    assert [path.name for path in (APP / "queries").glob("*.sql") if f'"{path.stem}"' not in code] == []


def test_every_query_says_what_it_means():
    for path in (APP / "queries").glob("*.sql"):
        assert Path(path).read_text(encoding="utf-8").startswith("-- "), path.name
