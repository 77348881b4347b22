"""The main journeys in a real browser: open, pick a run, verdict to finding to rank to kernel, links, downloads.

Screenshots of every page are written to the folder named by DIAGNOSE_SCREENSHOTS, when it is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import state

from diagnose.config import Config
from diagnose.report.assemble import assemble
from diagnose.report.document import decode
from diagnose.store.reader import Store

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SETTLED = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  const busy = document.querySelector('[data-testid=stApp][data-test-script-state=running], [data-testid=stStatusWidget], [data-stale=true]');
  const text = (main ? main.innerText : '') + document.querySelectorAll('canvas, svg').length;
  const now = performance.now();
  if (!main || busy || !main.querySelector('h1') || window.__text !== text) { window.__text = text; window.__since = now; return false; }
  return now - window.__since > 350;
}"""
"""The page stands still: no script runs, and neither words nor charts changed for a third of a second."""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def address(stores):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "diagnose", "app", str(stores), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=stores,
    )
    try:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health") as answer:
                    assert answer.status == 200
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("the server did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def page(browser, address):
    """A page that fails its test on any error of the console and any request to elsewhere."""
    context = browser.new_context(viewport={"width": 1366, "height": 768}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(20_000)
    wrong = []
    # On the address of a page the client first asks below that address where the server is; its 404 is part of that.
    page.on(
        "response",
        lambda answer: (
            answer.status >= 400
            and not re.search(r"/\w+/_stcore/(health|host-config)$", answer.url)
            and wrong.append(f"{answer.status} {answer.url}")
        ),
    )
    page.on(
        "console", lambda message: message.type == "error" and "404" not in message.text and wrong.append(message.text)
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            not request.url.startswith((address, "data:", "blob:")) and wrong.append(f"outside: {request.url}")
        ),
    )
    page.on(
        "websocket",
        lambda socket_: (
            not socket_.url.startswith(address.replace("http", "ws")) and wrong.append(f"outside: {socket_.url}")
        ),
    )
    yield page
    context.close()
    assert wrong == []


def settle(page, title=None):
    if title is not None:
        main(page).get_by_role("heading", name=title, exact=True).first.wait_for()
    page.wait_for_timeout(100)
    page.wait_for_function(SETTLED, polling=50)
    assert page.get_by_test_id("stException").count() == 0
    assert not re.search("This page failed|This run cannot be shown", main(page).inner_text())


def open_page(page, address, name="overview", **params):
    page.goto(f"{address}/{state.address(name, params.pop('run'), **params)}")
    settle(page, next(item.title for item in state.PAGES if item.name == name))


def main(page):
    return page.get_by_test_id("stMain")


def click_row(page, table, row=0):
    """A click into the box before a row of a table, which is a canvas."""
    grid = main(page).get_by_test_id("stDataFrame").nth(table)
    grid.scroll_into_view_if_needed()
    page.wait_for_timeout(700)
    box = grid.bounding_box()
    page.mouse.click(box["x"] + 18, box["y"] + 35 + 18 + 35 * row)
    settle(page)


def report_of(stores, name):
    with Store(stores / f"{name}.duckdb") as store:
        return assemble(store, Config())


def test_from_the_verdict_to_one_kernel_on_one_rank(page, address, stores):
    report = report_of(stores, "slow_nic")
    finding = next(item for item in report.findings if item.ranks)
    page.goto(address)
    settle(page)
    page.get_by_test_id("stSidebar").get_by_role("combobox").click()
    page.get_by_role("option", name="slow_nic", exact=True).click()
    page.wait_for_url("**run=slow_nic*")
    settle(page)
    assert "run=slow_nic" in page.url
    assert report.verdict.text.split(":")[0] in main(page).inner_text()
    place = [item.fingerprint for item in report.findings].index(finding.fingerprint)
    main(page).get_by_role("link", name="Evidence and actions").nth(place).click()
    settle(page, "Findings")
    assert f"finding={finding.fingerprint}" in page.url
    assert finding.actions[0] in main(page).inner_text()
    main(page).get_by_role("link", name=f"Rank {finding.ranks[0]} beside its peers").click()
    settle(page, "Ranks")
    assert f"rank={finding.ranks[0]}" in page.url
    assert f"rank{finding.ranks[0]}_trace" in main(page).inner_text()
    click_row(page, 1)
    main(page).get_by_role("heading", name="One kernel on every rank").wait_for()
    settle(page)
    assert "kernel=" in page.url
    assert "One kernel on every rank" in main(page).inner_text()
    assert re.search(r"^ncclDevKernel_\w+\(", main(page).inner_text(), re.MULTILINE)


def test_an_address_survives_reload_and_back(page, address):
    open_page(page, address, "ranks", run="slow_nic", rank=9)
    assert "rank9_trace" in main(page).inner_text()
    page.reload()
    settle(page)
    assert "rank9_trace" in main(page).inner_text()
    page.get_by_test_id("stSidebar").get_by_role("link", name="Steps", exact=True).click()
    settle(page, "Steps")
    assert main(page).locator("h1").inner_text() == "Steps"
    assert "run=slow_nic" in page.url
    page.go_back()
    settle(page, "Ranks")
    assert main(page).locator("h1").inner_text() == "Ranks"
    assert "slow_nic" in main(page).inner_text()
    assert "rank9_trace" in main(page).inner_text()


def test_a_run_opens_from_the_list(page, address):
    open_page(page, address, "runs", run="healthy")
    main(page).get_by_role("textbox", name="Contains").fill("slow_nic")
    page.keyboard.press("Enter")
    settle(page)
    click_row(page, 0)
    page.wait_for_url("**run=slow_nic*")
    settle(page, "Overview")
    assert main(page).locator("h1").inner_text() == "Overview"
    assert "Network-bound" in main(page).inner_text()


def test_downloads(page, address, stores, tmp_path):
    open_page(page, address, run="slow_nic")
    for words, name in (("JSON report", "r.json"), ("HTML report", "r.html")):
        with page.expect_download() as download:
            main(page).get_by_test_id("stDownloadButton").get_by_role("button", name=words).click()
        download.value.save_as(tmp_path / name)
    report = report_of(stores, "slow_nic")
    assert decode((tmp_path / "r.json").read_bytes()).verdict == report.verdict
    assert (tmp_path / "r.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    open_page(page, address, "collectives", run="slow_nic")
    with page.expect_download() as download:
        main(page).get_by_test_id("stDownloadButton").get_by_role("button", name="Window for Perfetto").click()
    download.value.save_as(tmp_path / "window.json")
    assert json.loads((tmp_path / "window.json").read_bytes())["traceEvents"]
    open_page(page, address, "quality", run="slow_nic", table="step")
    with page.expect_download() as download:
        main(page).get_by_test_id("stDownloadButton").get_by_role("button", name="Table as CSV").click()
    download.value.save_as(tmp_path / "step.csv")
    assert len((tmp_path / "step.csv").read_text(encoding="utf-8").splitlines()) == 1 + 16 * 6


def test_every_page_draws_without_an_error(page, address):
    folder = os.environ.get("DIAGNOSE_SCREENSHOTS")
    for run in ("healthy", "straggler", "slow_nic", "logs_only", "whole_job") if folder else ("whole_job",):
        open_page(page, address, run=run)
        for item in state.PAGES:
            page.get_by_test_id("stSidebar").get_by_role("link", name=item.title, exact=True).click()
            settle(page, item.title)
            assert main(page).locator("h1").inner_text() == item.title
            assert page.evaluate("document.documentElement.scrollWidth") <= 1366
            if folder:
                page.wait_for_timeout(1000)
                page.screenshot(path=Path(folder) / f"{run}-{item.name}.png")
