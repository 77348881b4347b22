"""Many runs, two watchers that are killed at random: each run analysed and told exactly once, nothing lost, nothing half.

``DIAGNOSE_SOAK_RUNS=200 pytest tests/watch/test_watch_soak.py`` is the long one. Kills follow the progress, not the clock,
so that a busy machine sees as many a run as an idle one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest
from tiny_runs import write_run

from diagnose.report.document import decode
from diagnose.store.reader import Store
from diagnose.watch.services import VARIABLE, load_services

if TYPE_CHECKING:
    from pathlib import Path

    from watch_support import Receiver, Room

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")]

RUNS = int(os.environ.get("DIAGNOSE_SOAK_RUNS", "40"))
JOBS = 5
LIMIT_S = 120 + 3 * RUNS
"""Ten times what it takes; whatever hangs fails here."""
ENDS_S = 60
ARGUMENTS = (
    "--settle", "0", "--ready-file", "DONE", "--poll", "0.2", "--lease", "5", "--jobs", "1", "--notify",
)  # fmt: skip


class Pair(NamedTuple):
    """Two watchers and what they said."""

    room: Room
    address: str
    processes: list[subprocess.Popen[bytes]]

    @property
    def said(self) -> Path:
        return self.room.out.with_name("said.txt")

    @property
    def complained(self) -> Path:
        return self.room.out.with_name("complained.txt")

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "diagnose",
            "watch",
            self.room.inbox,
            "--out",
            self.room.out,
            *ARGUMENTS,
        ]
        with self.said.open("ab") as out, self.complained.open("ab") as errors:
            return subprocess.Popen(
                [str(word) for word in command],
                env=os.environ | {VARIABLE: self.address},
                stdout=out,
                stderr=errors,
            )

    def replace(self, which: int, number: int) -> None:
        """Kill or stop one, and start another in its place."""
        self.processes[which].send_signal(number)
        self.processes[which].wait(ENDS_S)
        self.processes[which] = self.start()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(ENDS_S)


def drop(room: Room, number: int) -> None:
    """A run arrives whole under its name, as a mover does it; the later half of each job's runs is slow."""
    job, place = number % JOBS, number // JOBS
    hidden = write_run(
        room.inbox / f".job{job}-{place:03d}",
        seed=number,
        slow=1.3 if place >= RUNS // JOBS // 2 else 1.0,
        ranks=1,
        start_s=place * 100.0,
    )
    (hidden / "DONE").touch()
    hidden.rename(room.inbox / f"job{job}-{place:03d}")


def test_two_watchers_killed_at_random_do_every_run_once(room: Room, receiver: Receiver) -> None:
    dice = random.Random(4)  # noqa: S311 - when to kill
    pair = Pair(room, receiver.address, [])
    begun, dropped, kills, done, due = time.monotonic(), 0, 0, 0, dice.randint(3, 8)
    try:
        pair.processes.extend(pair.start() for _ in range(2))
        while (done := len(list(room.out.glob("runs/*/record.json")))) < RUNS and time.monotonic() - begun < LIMIT_S:
            if dropped < RUNS:
                drop(room, dropped)
                dropped += 1
            if done >= due:
                time.sleep(dice.uniform(0, 0.5))
                pair.replace(dice.randrange(2), dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
                kills, due = kills + 1, done + dice.randint(5, 12)
            time.sleep(0.05)
    finally:
        pair.end()
    assert done >= RUNS, f"{done} of {RUNS} runs in {LIMIT_S} s: {pair.complained.read_text()[-2000:]}"
    assert kills >= RUNS // 13
    end = room.watcher(load_services(None, {VARIABLE: receiver.address}), notify=True, ready_file="DONE", lease_s=0.0)
    end.look()
    assert end.look().published == ()
    expected = sorted(f"job{number % JOBS}-{number // JOBS:03d}" for number in range(RUNS))
    assert room.published() == expected
    assert list(room.out.glob("failed/*")) == []
    assert room.leftovers() == []
    _whole(room)
    _said_once(pair, expected, kills)
    _told_once(room, receiver, kills)
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


def _said_once(pair: Pair, expected: list[str], kills: int) -> None:
    """A line a run that was published; a kill may come between publishing and saying so."""
    said = Counter(line.split(":")[0].partition("/")[2] for line in pair.said.read_text().splitlines())
    assert set(said) <= set(expected)
    assert [name for name, count in said.items() if count > 1] == []
    assert len(said) >= RUNS - kills - 2  # two more at the end
    assert "Traceback" not in pair.complained.read_text()


def _told_once(room: Room, receiver: Receiver, kills: int) -> None:
    """One message a wanted alert; a kill between sending and marking may double it, with the same id."""
    alerts = [json.loads(path.read_bytes())["alert"] for path in room.out.glob("runs/*/record.json")]
    wanted = {alert["id"] for alert in alerts if alert and alert["wanted"]}
    got = Counter(message["message"].rpartition("Alert ")[2] for message in receiver.messages)
    assert set(got) == wanted
    assert len({path.name.partition(".")[0] for path in room.out.glob("sent/*.json")}) == len(wanted)
    assert sum(got.values()) - len(got) <= max(1, kills // 5)
    assert len(wanted) >= JOBS  # each job got slower once
