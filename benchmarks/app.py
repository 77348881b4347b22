"""How fast the dashboard answers on a large run: first page and every page after it, in a real browser.

Usage: python benchmarks/app.py [--ranks 1024] [--steps 20]     needs the extra `app`, playwright and chromium

Time: from the request until the page stands still with its charts. Work: processor time of server and browser together
until then, which does not depend on what else runs on the machine. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "app"))

from synthetic_store import write_store  # noqa: E402 - lies beside the tests that share it

PAGES = ("Findings", "Steps", "Ranks", "Collectives", "Network", "Nodes", "What-if", "Data quality", "Runs", "Scaling")
FIRST_LIMIT_S, NEXT_LIMIT_S = 2.0, 1.0
STILL_S = 0.15
"""Charts count as drawn when nothing changed for this long; it is taken off the figures."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
_QUIET = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  const busy = document.querySelector('[data-testid=stApp][data-test-script-state=running], [data-testid=stStatusWidget], [data-stale=true]');
  const text = (main ? main.innerText.length : 0) + ':' + document.querySelectorAll('canvas, svg').length;
  const now = performance.now();
  if (!main || busy || !main.querySelector('h1') || window.__text !== text) { window.__text = text; window.__since = now; return false; }
  return now - window.__since > STILL_MS;
}""".replace("STILL_MS", str(STILL_S * 1000))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=1024)
    options.add_argument("--steps", type=int, default=20)
    arguments = options.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs chromium")
    with tempfile.TemporaryDirectory() as folder:
        write_store(
            Path(folder) / "large.duckdb", ranks=arguments.ranks, steps=arguments.steps, slow_rank=arguments.ranks // 3
        )
        port = _free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "diagnose", "app", folder, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        try:
            _wait(port)
            _calm()
            rows = _measure(chromium, f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.wait()
    print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.\n")
    print(
        f"| {arguments.ranks} ranks x {arguments.steps} steps | time (s) | work (s) | limit (s) |\n|---|---:|---:|---:|"
    )
    for name, seconds, work, limit in rows:
        print(
            f"| {name} | {seconds:.2f} | {work:.2f} | {limit:.0f} |{' TOO SLOW' if min(seconds, work) > limit else ''}"
        )


def _measure(chromium: str, address: str) -> list[tuple[str, float, float, float]]:
    from playwright.sync_api import sync_playwright

    rows: list[tuple[str, float, float, float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        rows.append(
            (
                "first page (Overview) of a fresh server",
                *_timed(page, lambda: page.goto(address), "Overview"),
                FIRST_LIMIT_S,
            )
        )
        for name in PAGES:
            menu = page.get_by_test_id("stSidebar").get_by_role("link", name=name, exact=True)
            rows.append((f"{name}, for the first time", *_timed(page, menu.click, name), NEXT_LIMIT_S))
        for name in ("Overview", "Ranks", "Collectives"):
            menu = page.get_by_test_id("stSidebar").get_by_role("link", name=name, exact=True)
            rows.append((f"{name}, again", *_timed(page, menu.click, name), NEXT_LIMIT_S))
        page.get_by_test_id("stSidebar").get_by_role("link", name="Ranks", exact=True).click()
        _still(page, "Ranks")
        rows.append(
            (
                "Ranks: local work instead of lateness",
                *_timed(page, page.get_by_role("radio", name="Local work").click),
                NEXT_LIMIT_S,
            )
        )
        rows.append(
            (
                "Ranks: idle causes instead of kernels",
                *_timed(page, page.get_by_role("radio", name="Idle causes").click),
                NEXT_LIMIT_S,
            )
        )
        browser.close()
    return rows


def _timed(page: Any, action: Any, title: str | None = None) -> tuple[float, float]:
    page.evaluate("window.__text = null")
    start, work = time.perf_counter(), _work()
    action()
    _still(page, title)
    return time.perf_counter() - start - STILL_S, _work() - work


def _work() -> float:
    """Processor seconds that all children of this process used so far."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended in between
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for pid, seconds in used.items() if _is_ours(pid, parents))


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and parents[pid] > 1:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def _calm() -> None:
    """Wait until the server has loaded what it loads ahead."""
    before = -1.0
    while (now := _work()) - before > 0.02:
        before = now
        time.sleep(0.5)


def _still(page: Any, title: str | None = None) -> None:
    if title is not None:
        page.get_by_test_id("stMain").get_by_role("heading", name=title, exact=True).first.wait_for()
    page.wait_for_timeout(60)  # the server's answer needs a moment before anything is busy
    page.wait_for_function(_QUIET, polling=20, timeout=60_000)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


if __name__ == "__main__":
    main()
