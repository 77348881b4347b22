"""Reading and analysing traces: this tool against HolisticTraceAnalysis, and against plain decompression.

Same files, same machine, one run. The files are copies of one trace with the rank replaced, so that both tools see a job
of several ranks. Wall and CPU time are of the whole process tree; memory is the peak of the proportional set size (PSS)
of all its processes together, sampled every 20 ms.

    python benchmarks/ingest.py TRACE.json.gz --ranks 8 --hta PYTHON_WITH_HTA

``--grow GB`` instead writes one trace of that size (the events repeated with shifted times) and reads it alone.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

HTA_CODE = """
import sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
"""
FLOOR_CODE = (
    "import sys, isal.igzip as g\nfor p in sys.argv[1:]:\n    f = g.open(p)\n    while f.read(1 << 20):\n        pass\n"
)
SAMPLE_S = 0.02


class Measured(NamedTuple):
    """One command: wall and CPU seconds, peak PSS in bytes of the process tree."""

    wall_s: float
    cpu_s: float
    pss_bytes: int


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="one Kineto trace, .json or .json.gz, with distributedInfo")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--hta", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts")
    parser.add_argument("--grow", type=float, metavar="GB", help="one trace of this size instead")
    arguments = parser.parse_args()
    raw = (
        gzip.decompress(arguments.trace.read_bytes())
        if arguments.trace.suffix == ".gz"
        else arguments.trace.read_bytes()
    )
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.grow:
            grow(raw, arguments.grow, Path(scratch), arguments.repeat)
        else:
            compare(raw, arguments, Path(scratch))


def compare(raw: bytes, arguments: argparse.Namespace, scratch: Path) -> None:
    """Both tools on the same ranks."""
    folder = scratch / "traces"
    folder.mkdir()
    for rank in range(arguments.ranks):
        text = re.sub(rb'("rank":\s*)\d+', rb"\g<1>%d" % rank, raw, count=1)
        text = re.sub(rb'("world_size":\s*)\d+', rb"\g<1>%d" % arguments.ranks, text, count=1)
        with gzip.open(folder / f"rank-{rank}.json.gz", "wb", compresslevel=6) as handle:
            handle.write(text)
    size = len(raw) * arguments.ranks
    files = sorted(map(str, folder.glob("*.gz")))
    events = raw.count(b'"ph"') * arguments.ranks
    print(
        f"{arguments.ranks} ranks, {size / 1e6:.0f} MB of JSON, {events:,} events, {os.cpu_count()} cores, best of {arguments.repeat}\n"
    )
    results = {"decompression alone": best([sys.executable, "-c", FLOOR_CODE, *files], arguments.repeat)}
    results["diagnose run"] = best(
        [tool(), "run", str(folder), "-o", str(scratch / "r.duckdb"), "--force"], arguments.repeat
    )
    if arguments.hta:
        results["HTA parse + breakdown + overlap"] = best(
            [arguments.hta, "-c", HTA_CODE, str(folder)], arguments.repeat
        )
    ours = results["diagnose run"]
    print("| what | wall s | CPU s | peak memory MB | MB of JSON per core second | wall ratio | memory ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, one in results.items():
        rate = size / 1e6 / one.cpu_s if one.cpu_s else float("nan")
        print(
            f"| {name} | {one.wall_s:.2f} | {one.cpu_s:.2f} | {one.pss_bytes / 1e6:.0f} | {rate:.0f} | "
            f"{one.wall_s / ours.wall_s:.2f} | {one.pss_bytes / ours.pss_bytes:.2f} |"
        )


def grow(raw: bytes, gigabytes: float, scratch: Path, repeat: int) -> None:
    """Events per second and memory as one file grows: the events again and again, later each time."""
    print("| JSON | events | wall s | events per s | peak memory MB |")
    print("|---|---|---|---|---|")
    start = raw.index(b"[", raw.index(b'"traceEvents"')) + 1
    end = raw.rindex(b"]")
    body = raw[start:end].strip().rstrip(b",")
    stamps = [int(value) for value in re.findall(rb'"ts": (\d{10,})', body)]
    span = max(stamps) - min(stamps) + 1000
    copies = max(int(gigabytes * 1e9 / len(body)), 1)
    for count in dict.fromkeys((1, max(copies // 10, 1), copies)):
        path = scratch / "trace.json"
        with path.open("wb") as handle:
            handle.write(raw[:start])
            for number in range(count):
                handle.write(b",\n" if number else b"\n")
                handle.write(shifted(body, number * span, number))
            handle.write(b"\n]" + raw[end + 1 :])
        measured = best(
            [tool(), "run", str(path), "-o", str(scratch / "g.duckdb"), "--force", "--keep", "stats"],
            repeat if count == 1 else 1,
        )
        events = body.count(b'"ph"') * count
        size = path.stat().st_size
        print(
            f"| {size / 1e6:.0f} MB | {events:,} | {measured.wall_s:.2f} | {events / measured.wall_s:,.0f} | {measured.pss_bytes / 1e6:.0f} |",
            flush=True,
        )
        path.unlink()


def shifted(body: bytes, offset_us: int, number: int) -> bytes:
    """The events later by an offset, with correlations and steps of their own."""
    if not number:
        return body
    text = re.sub(rb'("ts": )(\d+)', lambda match: match[1] + b"%d" % (int(match[2]) + offset_us), body)
    text = re.sub(
        rb'("correlation": |"id": )(\d+)', lambda match: match[1] + b"%d" % (int(match[2]) + number * 10_000_000), text
    )
    return re.sub(rb"ProfilerStep#(\d+)", lambda match: b"ProfilerStep#%d" % (int(match[1]) + 100 * number), text)


def tool() -> str:
    """The installed command, beside this interpreter or on the path."""
    beside = Path(sys.executable).with_name("diagnose")
    return str(beside) if beside.exists() else str(shutil.which("diagnose"))


def best(command: list[str], repeat: int) -> Measured:
    """The fastest of several runs."""
    return min((measure(command) for _ in range(repeat)), key=lambda one: one.wall_s)


def measure(command: list[str]) -> Measured:
    """Run a command and watch its process tree."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        root = psutil.Process(process.pid)
        while not done.is_set():
            total = 0
            try:
                for one in (root, *root.children(recursive=True)):
                    total += one.memory_full_info().pss
            except psutil.Error:
                pass
            peak = max(peak, total)
            time.sleep(SAMPLE_S)

    before = os.times()
    thread = threading.Thread(target=watch)
    thread.start()
    _, error = process.communicate()
    wall = time.perf_counter() - started
    done.set()
    thread.join()
    after = os.times()
    if process.returncode:
        sys.exit(f"{command[0]} failed: {error.decode()[-400:]}")
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Measured(wall, cpu, peak)


if __name__ == "__main__":
    main()
