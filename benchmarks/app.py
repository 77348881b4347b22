"""How fast the dashboard answers on a large run: first page, every page after it, and what people do on them, in a real browser.

Usage: python benchmarks/app.py [--ranks 1024] [--steps 20]     needs the extra `app`, playwright and chromium

The run has traces, communication logs and node metrics of every host; a second run of the same size stands beside it.
Time: from the request until the page stands still with its charts. Work: processor time of server and browser together
until then, which depends less on what else runs on the machine. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "app"))

from synthetic_store import RANKS_PER_HOST, add_logs, add_metrics, write_store  # noqa: E402 - lies beside the tests that share it

if TYPE_CHECKING:
    from collections.abc import Callable

    Action = Callable[[], object]

PAGES = ("Findings", "Steps", "Ranks", "Collectives", "Network", "Nodes", "What-if", "Data quality", "Runs", "Compare", "Scaling")  # fmt: skip
FIRST_LIMIT_S, NEXT_LIMIT_S = 2.0, 1.0
READ_S = 3.0
"""The first page is read before the next one is opened; meanwhile the browser loads what draws charts and tables."""
SCROLLED_MS = 700
QUIET_CHECKS = 5
"""Half seconds without work after which the server has read ahead what it reads ahead."""
STILL_S = 0.15
"""A page counts as drawn when nothing changed for this long; it is taken off the figures."""
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
  const busy = document.querySelector('[data-testid=stApp][data-test-script-state=running], [data-testid=stStatusWidget], [data-stale=true], [data-testid=stMain] [data-testid=stSkeleton]');
  const text = (main ? main.innerText.length : 0) + ':' + document.querySelectorAll('canvas, svg').length;
  const now = performance.now();
  if (!main || busy || !main.querySelector('h1') || window.__text !== text) { window.__text = text; window.__since = now; return false; }
  return now - window.__since > STILL_MS;
}""".replace("STILL_MS", str(STILL_S * 1000))


class Timed(NamedTuple):
    """One line of the table."""

    name: str
    seconds: float
    work_s: float
    limit_s: float


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=1024)
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--collectives", type=int, default=40, help="collectives in a step")
    arguments = options.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs chromium")
    with tempfile.TemporaryDirectory() as folder:
        _write_runs(Path(folder), arguments.ranks, arguments.steps, arguments.collectives)
        port = _free_port()
        server = subprocess.Popen(
            [sys.executable, "-m", "diagnose", "app", folder, "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            _wait(port)
            _calm()
            before = os.getloadavg()[0]
            rows = _measure(chromium, f"http://127.0.0.1:{port}", arguments.ranks)
        finally:
            server.terminate()
            server.wait()
    print(f"Load of the machine before: {before:.1f} on {os.cpu_count()} processors.\n")
    print(
        f"| {arguments.ranks} ranks x {arguments.steps} steps | time (s) | work (s) | limit (s) |\n|---|---:|---:|---:|"
    )
    for row in rows:
        print(
            f"| {row.name} | {row.seconds:.2f} | {row.work_s:.2f} | {row.limit_s:.0f} |{' TOO SLOW' if row.seconds > row.limit_s else ''}"
        )


def _write_runs(folder: Path, ranks: int, steps: int, collectives: int) -> None:
    hosts = max(1, ranks // RANKS_PER_HOST)

    def extra(writer: Any) -> None:
        add_logs(writer, hosts=hosts)
        add_metrics(writer, hosts=hosts)

    for name, slow in (("large-1", ranks // 3), ("large-2", None)):
        write_store(
            folder / f"{name}.duckdb", ranks=ranks, steps=steps, slow_rank=slow, name=name, collectives=collectives, extra=extra
        )  # fmt: skip


def _measure(chromium: str, address: str, ranks: int) -> list[Timed]:
    from playwright.sync_api import Error as PlaywrightError
    from playwright.sync_api import sync_playwright

    rows: list[Timed] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto("about:blank")
        first = _timed(page, lambda: page.goto(address), "Overview")
        rows.append(Timed("first page (Overview), fresh server and browser", *first, FIRST_LIMIT_S))
        time.sleep(READ_S)
        _calm()
        for again in ("for the first time", "again"):
            rows += [Timed(f"{name}, {again}", *_timed(page, _menu(page, name), name), NEXT_LIMIT_S) for name in PAGES]
        last = None
        for name, words, action in _interactions(page, ranks):
            if name != last:
                _timed(page, _menu(page, name), name)
                last = name
            try:
                rows.append(Timed(f"{name}: {words}", *_timed(page, action()), NEXT_LIMIT_S))
            except PlaywrightError as error:
                print(f"{name}: {words}: not measured, {str(error).splitlines()[0]}", file=sys.stderr)
        browser.close()
    return rows


def _interactions(page: Any, ranks: int) -> list[tuple[str, str, Callable[[], Action]]]:
    """What people do on the pages, by page: what brings the mouse to the place, which is not timed, gives the action."""

    def radio(name: str) -> Callable[[], Action]:
        return lambda: lambda: page.get_by_role("radio", name=name).click()

    return [
        ("Findings", "filter by words", lambda: lambda: _type(page, "textbox", "Contains", "rank 3")),
        ("Steps", "another rank", lambda: lambda: _type(page, "spinbutton", "Rank", str(ranks // 2))),
        ("Steps", "another step", lambda: lambda: _type(page, "combobox", "Step", "step 7")),
        ("Ranks", "local work instead of lateness", radio("Local work")),
        ("Ranks", "click a host of the heat map", lambda: _click_chart(page)),
        ("Ranks", "another rank", lambda: lambda: _type(page, "spinbutton", "Rank", str(ranks // 2))),
        ("Ranks", "click a kernel", lambda: _click_row(page, 1)),
        ("Ranks", "idle causes instead of kernels", radio("Idle causes")),
        ("Collectives", "other order", radio("arrival skew")),
        ("Collectives", "click an instance", lambda: _click_row(page, 1)),  # the first table is folded away
        ("Nodes", "another metric", lambda: lambda: _type(page, "combobox", "Metric", "nic_rx_bytes")),
        ("Data quality", "another table", lambda: lambda: _type(page, "combobox", "Table", "kernel_stat")),
    ]


def _menu(page: Any, name: str) -> Action:
    menu = page.get_by_test_id("stSidebar").get_by_role("link", name=name, exact=True)
    return lambda: menu.click()


def _type(page: Any, role: str, label: str, words: str) -> None:
    page.get_by_test_id("stMain").get_by_role(role, name=re.compile(label)).first.fill(words)
    page.keyboard.press("Enter")


def _click_chart(page: Any) -> Action:
    chart = page.get_by_test_id("stVegaLiteChart").first
    chart.scroll_into_view_if_needed()
    page.wait_for_timeout(SCROLLED_MS)
    return lambda: chart.click(position={"x": 500, "y": 320})


def _click_row(page: Any, table: int) -> Action:
    """A click into the box before a row of a table, which is a canvas."""
    grid = page.get_by_test_id("stMain").get_by_test_id("stDataFrame").nth(table)
    grid.scroll_into_view_if_needed()
    page.wait_for_timeout(SCROLLED_MS)
    box = grid.bounding_box()
    before = page.url

    def click() -> None:
        page.mouse.click(box["x"] + 18, box["y"] + 35 + 18 + 35)
        page.wait_for_function("before => location.href !== before", arg=before, polling=20, timeout=10_000)

    return click


def _timed(page: Any, action: Action, title: str | None = None) -> tuple[float, float]:
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
    before, quiet = -1.0, 0
    while quiet < QUIET_CHECKS:
        now = _work()
        quiet = quiet + 1 if now - before <= 0.02 else 0
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
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    sys.exit("the server did not start")


if __name__ == "__main__":
    main()
