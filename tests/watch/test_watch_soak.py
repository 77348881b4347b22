"""Many runs, two watchers that are killed at random: each run analysed and told exactly once, nothing lost, nothing half."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tiny_runs import write_run

from diagnose.report.document import decode
from diagnose.store.reader import Store
from diagnose.watch.services import VARIABLE, load_services

if TYPE_CHECKING:
    from conftest import Receiver, Room

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")]

RUNS = int(os.environ.get("DIAGNOSE_SOAK_RUNS", "200"))
JOBS = 10
LIMIT_S = 900


def start(room: Room, address: str) -> subprocess.Popen[bytes]:
    arguments = [
        room.inbox,
        "--out",
        room.out,
        "--settle",
        "0",
        "--ready-file",
        "DONE",
        "--poll",
        "0.2",
        "--lease",
        "5",
        "--jobs",
        "1",
        "--notify",
    ]
    command = [sys.executable, "-W", "ignore", "-m", "diagnose", "watch", *map(str, arguments)]
    return subprocess.Popen(
        command, env=os.environ | {VARIABLE: address}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def drop(room: Room, number: int) -> None:
    """A run arrives whole under its name, as a mover does it; every tenth of a job is slow from then on."""
    job, place = number % JOBS, number // JOBS
    hidden = write_run(
        room.inbox / f".job{job}-{place:03d}",
        seed=number,
        slow=1.3 if place >= 10 else 1.0,
        ranks=1,
        start_s=place * 100.0,
    )
    hidden.rename(room.inbox / f"job{job}-{place:03d}")


def test_two_watchers_killed_at_random_do_every_run_once(room: Room, receiver: Receiver) -> None:
    dice = random.Random(4)  # noqa: S311 - when to kill
    watchers = [start(room, receiver.address) for _ in range(2)]
    kills, dropped, begun = 0, 0, time.monotonic()
    next_kill = begun + 4
    try:
        while len(list(room.out.glob("runs/*/record.json"))) < RUNS and time.monotonic() - begun < LIMIT_S:
            if dropped < RUNS:
                drop(room, dropped)
                dropped += 1
            if time.monotonic() > next_kill:
                victim = dice.randrange(2)
                watchers[victim].send_signal(dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
                watchers[victim].wait()
                watchers[victim] = start(room, receiver.address)
                kills += 1
                next_kill = time.monotonic() + dice.uniform(3, 7)
            time.sleep(0.05)
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.wait()
    end = room.watcher(load_services(None, {VARIABLE: receiver.address}), notify=True, ready_file="DONE", lease_s=0.0)
    end.look()
    assert end.look().published == ()
    expected = sorted(f"job{number % JOBS}-{number // JOBS:03d}" for number in range(RUNS))
    assert room.published() == expected
    assert list(room.out.glob("failed/*")) == []
    assert room.leftovers() == []
    _whole(room)
    _told_once(room, receiver)
    print(f"{RUNS} runs, {kills} kills, {time.monotonic() - begun:.0f} s, {len(receiver.messages)} messages")  # noqa: T201 - shown with -s


def _whole(room: Room) -> None:
    """Every published file can be read to its end."""
    for folder in room.out.glob("runs/*"):
        record = json.loads((folder / "record.json").read_bytes())
        with Store(folder / record["store"]) as tables:
            assert tables.frame("run").height == 1
        decode((folder / "report.json").read_bytes())
        assert (folder / "report.html").read_text().rstrip().endswith("</html>")
    history = pl.read_parquet(room.out / "history.parquet")
    assert history.height == history.get_column("key").n_unique() == RUNS


def _told_once(room: Room, receiver: Receiver) -> None:
    """One message a wanted alert; a kill between sending and marking may double it, with the same id."""
    alerts = [json.loads(path.read_bytes())["alert"] for path in room.out.glob("runs/*/record.json")]
    wanted = {alert["id"] for alert in alerts if alert and alert["wanted"]}
    got = Counter(message["message"].rpartition("Alert ")[2] for message in receiver.messages)
    assert set(got) == wanted
    assert len({path.name.partition(".")[0] for path in room.out.glob("sent/*.json")}) == len(wanted)
    assert sum(got.values()) - len(got) <= 2
    if RUNS >= 150:
        assert len(wanted) >= JOBS  # each job got slower once
