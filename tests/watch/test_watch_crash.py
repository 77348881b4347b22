"""A crash at any point loses nothing and repeats nothing; only between sending and marking a message comes twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from diagnose.watch.services import VARIABLE, load_services

if TYPE_CHECKING:
    from watch_support import Receiver, Room

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # of apprise

Lay = "Callable[..., Path]"
HERE = Path(__file__).parent
POINTS = [
    ("after", "diagnose.watch.claims", "acquire", 2),
    ("before", "diagnose.watch.claims:os", "write", 2),
    ("after", "diagnose.pipeline.merge", "write_traces", 2),
    ("after", "diagnose.watch.analyse", "build_run", 2),
    ("before", "diagnose.watch.analyse", "publish", 2),
    ("after", "diagnose.watch.analyse", "publish", 2),
    ("before", "diagnose.watch.loop", "write_whole", 2),
    ("before", "diagnose.watch.services", "send", 1),
    ("after", "diagnose.watch.services", "send", 1),
    ("after", "diagnose.watch.outbox", "write_whole", 1),
    ("after", "diagnose.watch.index", "write_history", 1),
    ("before", "diagnose.watch.places:os", "fsync", 5),
]


def watch(room: Room, address: str, *before: object) -> subprocess.CompletedProcess[str]:
    arguments = [room.inbox, "--out", room.out, "--once", "--settle", "0", "--jobs", "1", "--notify", "--lease", "1"]
    command = [sys.executable, *map(str, before), *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | {VARIABLE: address}, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(("when", "module", "function", "count"), POINTS)
def test_a_kill_loses_and_repeats_nothing(
    room: Room, lay: Lay, receiver: Receiver, when: str, module: str, function: str, count: int
) -> None:
    lay("job_0", seed=0)
    lay("job_1", seed=1, slow=1.2, start_s=100)
    killed = watch(room, receiver.address, HERE / "killed_at.py", when, module, function, count)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    services = load_services(None, {VARIABLE: receiver.address})
    end = room.watcher(services, notify=True, lease_s=0.0).look()
    assert not end.failed
    assert room.published() == ["job_0", "job_1"]
    again = room.watcher(services, notify=True).look()
    assert (again.published, again.failed, again.busy) == ((), (), ())
    assert room.leftovers() == []
    doubled = (when, function) == ("after", "send")
    assert len(receiver.messages) == 1 + doubled
    assert len({message["message"] for message in receiver.messages}) == 1
    history = pl.read_parquet(room.out / "history.parquet")
    assert history.get_column("name").to_list() == ["job_0", "job_1"]
    assert history.get_column("change").to_list() == ["first", "regression"]
    assert (room.out / "index.html").read_text().endswith("</html>\n")


def test_two_watchers_at_once_share_the_work(room: Room, lay: Lay, receiver: Receiver) -> None:
    for job in ("a", "b", "c"):
        for number in range(3):
            lay(f"{job}_{number}", seed=number, slow=1.2 if number == 2 else 1.0, start_s=number * 100)
    services = load_services(None, {VARIABLE: receiver.address})
    watchers = [room.watcher(services, notify=True) for _ in range(2)]
    found: list[str] = []

    def work(which: int) -> None:
        for _ in range(3):
            found.extend(record.name for record in watchers[which].look().published)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == room.published() == sorted(f"{job}_{number}" for job in "abc" for number in range(3))
    assert len(receiver.messages) == 3
    assert room.leftovers() == []
    assert pl.read_parquet(room.out / "history.parquet").height == 9
