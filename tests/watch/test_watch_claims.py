from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from diagnose.watch import claims

if TYPE_CHECKING:
    from pathlib import Path


def test_a_held_claim_is_refused_and_a_released_one_given(tmp_path: Path) -> None:
    first = claims.acquire(tmp_path, "job", lease_s=60)
    assert first is not None
    assert claims.acquire(tmp_path, "job", lease_s=60) is None
    assert claims.acquire(tmp_path, "job-2", lease_s=60) is not None
    first.release()
    assert claims.acquire(tmp_path, "job", lease_s=60) is not None


def test_the_claim_of_a_dead_process_is_taken_over_at_once(tmp_path: Path) -> None:
    code = f"import os, pathlib; from diagnose.watch import claims; claims.acquire(pathlib.Path({str(tmp_path)!r}), 'job', lease_s=600); os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    assert [path.name for path in tmp_path.iterdir()] == ["job.00000001"]
    assert claims.acquire(tmp_path, "job", lease_s=600) is not None
    assert [path.name for path in tmp_path.iterdir()] == ["job.00000002"]


def test_a_claim_of_another_machine_lasts_as_long_as_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "job.00000007"
    path.write_text(json.dumps({"place": ["elsewhere"], "pid": 1, "started": "1"}))
    assert claims.acquire(tmp_path, "job", lease_s=60) is None
    old = time.time() - 61
    os.utime(path, (old, old))
    assert claims.acquire(tmp_path, "job", lease_s=60) is not None


def test_a_half_written_claim_counts_until_its_lease_ends(tmp_path: Path) -> None:
    (tmp_path / "job.00000001").touch()
    assert claims.acquire(tmp_path, "job", lease_s=60) is None
    assert claims.acquire(tmp_path, "job", lease_s=-1) is not None


def test_a_reused_process_id_does_not_keep_a_claim(tmp_path: Path) -> None:
    held = claims.acquire(tmp_path, "job", lease_s=60)
    content = json.loads(held.path.read_text())
    held.path.write_text(json.dumps(content | {"started": "1"}))
    assert claims.acquire(tmp_path, "job", lease_s=60) is not None


def test_a_lease_is_renewed(tmp_path: Path) -> None:
    held = claims.acquire(tmp_path, "job", lease_s=0.4)
    before = held.path.stat().st_mtime_ns
    time.sleep(0.3)
    assert held.path.stat().st_mtime_ns > before
    held.release()


def test_of_many_only_one_holds_it(tmp_path: Path) -> None:
    inside, most, taken = [0], [0], [0]
    lock = threading.Lock()

    def compete() -> None:
        for _ in range(60):
            claim = claims.acquire(tmp_path, "job", lease_s=60)
            if claim is None:
                continue
            with lock:
                inside[0] += 1
                taken[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.0005)
            with lock:
                inside[0] -= 1
            claim.release()

    workers = [threading.Thread(target=compete) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most[0] == 1
    assert taken[0] > 5
