"""Addresses: every page, run and finding has one; what they name is resolved on the server and may be wrong."""

from __future__ import annotations

import itertools
import os
from urllib.parse import parse_qs, urlsplit

import catalog
import pytest
import state
from app_session import texts

from diagnose.config import Config
from diagnose.errors import StoreError
from diagnose.report.assemble import assemble
from diagnose.report.view import app_link
from diagnose.store.reader import Store


def report_of(path):
    with Store(path) as store:
        return assemble(store, Config())


def run_box(session):
    return next(box for box in session.selectbox if box.label == "Run")


def test_the_reports_link_opens_the_finding(open_app, stores):
    report = report_of(stores / "slow_nic.duckdb")
    finding = report.findings[0]
    link = urlsplit(app_link(report, finding, "http://localhost:8501/"))
    assert link.path == "/"
    session = open_app(**{name: values[0] for name, values in parse_qs(link.query).items()})
    assert not session.exception
    said = texts(session)
    assert session.title[0].value == "Findings"
    assert f"Fingerprint `{finding.fingerprint}`" in said
    for action in finding.actions:
        assert action in said


def test_a_run_is_found_by_its_own_name_too(open_app):
    assert run_box(open_app(run="whole job")).value == "whole_job"


def test_an_unknown_run_is_said_and_not_silently_another(open_app):
    session = open_app(run="../../etc/passwd")
    assert "is not in this folder" in texts(session)
    assert not session.exception


@pytest.mark.parametrize("finding", ["0000000000000000", "<script>", "' OR 1=1"])
def test_an_unknown_finding_is_said(open_app, finding):
    session = open_app("findings", run="healthy", finding=finding)
    assert "is not made any more" in texts(session)
    assert not session.exception


def kernel_of(path):
    with Store(path) as store:
        return str(
            store.query("SELECT signature FROM kernel_stat WHERE class = 'comm' ORDER BY signature LIMIT 1").item()
        )


def test_rank_and_kernel_stand_in_the_address(open_app, stores):
    session = open_app(run="slow_nic")
    session.switch_page("app_pages/ranks.py")
    session.query_params["rank"] = "9"
    session.run()
    rank = next(box for box in session.selectbox if box.label == "Rank")
    assert rank.value == 9
    assert "host gpu-r01n03" in texts(session)
    rank.set_value(2).run()
    assert session.query_params["rank"] == "2"
    session.query_params["kernel"] = kernel_of(stores / "slow_nic.duckdb")
    session.run()
    assert not session.exception
    assert not session.error
    assert "One kernel on every rank" in texts(session)
    assert "``nccl" in texts(session)


@pytest.mark.parametrize("run", ["slow_nic", "cpu_only"])
def test_nonsense_in_the_address_is_ignored(open_app, run):
    session = open_app(run=run)
    for page, param, value in (
        ("ranks", "rank", "999999"),
        ("ranks", "rank", "-1"),
        ("ranks", "kernel", "1;DROP TABLE run"),
        ("ranks", "host", "x"),
        ("steps", "step", "9" * 40),
        ("collectives", "instance", "9" * 40),
        ("collectives", "instance", "-1"),
        ("quality", "table", "1;DROP TABLE run"),
        ("compare", "base", "../x"),
    ):
        session.query_params[param] = value
        session.switch_page(f"app_pages/{page}.py").run()
        assert not session.exception, (page, value)
        assert not session.error, (page, value)


def test_an_instance_that_is_not_among_the_slowest_opens(open_app):
    session = open_app(run="slow_nic")
    session.switch_page("app_pages/collectives.py")
    session.query_params["instance"] = "3"
    session.run()
    assert next(box for box in session.selectbox if box.label == "Instance").value == 3


def test_addresses_are_quoted():
    assert state.address("ranks", "a b/ü&x", rank=3) == "ranks?run=a+b%2F%C3%BC%26x&rank=3"
    assert state.address("overview", "r") == "?run=r"


def test_choosing_another_run_changes_the_address_and_drops_the_old_ranks(open_app):
    session = open_app(run="slow_nic")
    session.switch_page("app_pages/ranks.py")
    session.query_params["rank"] = "9"
    session.run()
    run_box(session).set_value("healthy").run()
    assert session.query_params["run"] == "healthy"
    assert "rank" not in session.query_params
    assert not session.exception


def test_links_out_of_the_folder_are_not_opened(stores, tmp_path, open_app):
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    outside = tmp_path / "outside.duckdb"
    outside.write_bytes((stores / "nothing.duckdb").read_bytes())
    (root / "deep" / "inside.duckdb").write_bytes(outside.read_bytes())
    (root / "out.duckdb").symlink_to(outside)
    (root / "in.duckdb").symlink_to(root / "deep" / "inside.duckdb")
    (root / "folder").symlink_to(tmp_path)
    (root / ".hidden.duckdb").write_bytes(b"x")
    found = catalog.discover(root)
    assert list(found.runs) == ["in", "deep/inside"]
    assert found.rejected == ("out",)
    assert "links that lead out of the folder" in texts(open_app("runs", root=root))


def test_a_link_that_turns_outward_later_is_refused(stores, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    store = root / "run.duckdb"
    store.write_bytes((stores / "nothing.duckdb").read_bytes())
    found = catalog.discover(root)
    store.unlink()
    store.symlink_to(stores / "healthy.duckdb")
    with pytest.raises(StoreError, match="leads out of the folder"):
        catalog.open_run(found, "run")


@pytest.mark.parametrize("name", ["../run", "/etc/passwd", "run.duckdb", "", "./run"])
def test_only_listed_ids_are_opened(stores, tmp_path, name):
    (tmp_path / "run.duckdb").write_bytes((stores / "nothing.duckdb").read_bytes())
    with pytest.raises(StoreError, match="there is no run"):
        catalog.open_run(catalog.discover(tmp_path), name)


def test_two_sessions_see_a_replaced_store_at_once(stores, tmp_path, open_app):
    from synthetic_store import write_store

    store = tmp_path / "job.duckdb"
    write_store(store, ranks=4, steps=4, slow_rank=1, slower_by=0.2)
    first, second = open_app(root=tmp_path, run="job"), open_app("ranks", root=tmp_path, run="job")
    old = texts(first)
    assert report_of(store).verdict.text.split(". ")[0] in old
    # As a later analysis would: a new file moved into the old one's place.
    for number, slower in enumerate((0.6, 0.9)):
        write_store(tmp_path / "new.tmp", ranks=8, steps=5, slow_rank=2, slower_by=slower)
        os.replace(tmp_path / "new.tmp", store)  # noqa: PTH105 - what is tested
        first.run()
        second.run()
        after = texts(first)
        assert not first.exception
        assert not second.exception
        assert after != old, number
        assert "8 ranks" in after
        report = report_of(store)
        assert report.verdict.text.split(". ")[0] in after
        ranks = next(box for box in second.selectbox if box.label == "Rank")
        assert len(ranks.options) == 8
        old = after


def test_a_store_that_vanishes_is_said(stores, tmp_path, open_app):
    store = tmp_path / "job.duckdb"
    store.write_bytes((stores / "healthy.duckdb").read_bytes())
    session = open_app(root=tmp_path, run="job")
    store.unlink()
    session.run()
    assert not session.exception
    assert session.error or "No run stores here" in texts(session)


def test_page_names_are_unique_and_stable():
    names = [page.name for page in state.PAGES]
    assert names == list(dict.fromkeys(names))
    assert all(name.isidentifier() for name in names)
    assert [group for group, _ in itertools.groupby(page.group for page in state.PAGES)] == ["This run", "All runs"]
