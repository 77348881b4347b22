"""A program that is killed while it reads leaves no workers behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import multiprocessing, sys
from diagnose.ingest.base import ReadOptions, Source
from diagnose.pipeline.engine import LocalEngine
from diagnose.pipeline.result import MapTask
tasks = [
    MapTask(source=Source(path=path, size_bytes=5_000_000), options=ReadOptions(), shards=sys.argv[1], number=number, rank_from=None)
    for number, path in enumerate(sys.argv[2:])
]
results = LocalEngine(2).run(tasks)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
list(results)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pipes = [tmp_path / name for name in ("rank0.json", "rank1.json")]
    for pipe in pipes:
        os.mkfifo(pipe)  # nobody writes: reading it takes for ever
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *map(str, pipes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(workers) == 2
    end = time.monotonic() + 60
    while (left := [pid for pid in workers if _lives(pid)]) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
