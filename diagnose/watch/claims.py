"""One worker a job: claims are files created exclusively in the output folder, numbered, with a lease.

A claim is never taken over by removing it (two could remove, and one of them a fresh claim): the successor creates the
next number, and holds the claim if no other live one is there. Should two still work at once, after a lease ran out on
a worker that lives, publishing by rename lets one of the results in.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Claim:
    """A held claim; a thread renews it until it is released."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self.path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._renew, args=(lease_s / 4,), daemon=True, name=f"lease of {path.name}"
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let others have it."""
        self._stop.set()
        self.path.unlink(missing_ok=True)

    def _renew(self, every_s: float) -> None:
        while not self._stop.wait(every_s):
            with contextlib.suppress(OSError):
                os.utime(self.path)


def acquire(folder: Path, name: str, *, lease_s: float) -> Claim | None:
    """The claim of that name, None while a live worker holds it."""
    others = _numbers(folder, name)
    if any(_alive(path, lease_s) for path in others.values()):
        return None
    path = folder / f"{name}.{max(others, default=0) + 1:08d}"
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return None
    try:
        os.write(handle, json.dumps(_me() | {"since": time.time()}).encode())
    finally:
        os.close(handle)
    rivals = {number: rival for number, rival in _numbers(folder, name).items() if rival != path}
    if any(_alive(rival, lease_s) for rival in rivals.values()):
        path.unlink(missing_ok=True)
        return None
    for rival in rivals.values():
        rival.unlink(missing_ok=True)
    return Claim(path, lease_s)


def sweep(folder: Path, *, lease_s: float) -> None:
    """Remove claims that nobody holds; whoever is taking one over creates another and does not need it."""
    for path in folder.iterdir():
        if not _alive(path, lease_s):
            path.unlink(missing_ok=True)


def _numbers(folder: Path, name: str) -> dict[int, Path]:
    found = {}
    for path in folder.glob(f"{name}.*"):
        stem, _, number = path.name.rpartition(".")
        if stem == name and number.isdigit():
            found[int(number)] = path
    return found


def _alive(path: Path, lease_s: float) -> bool:
    """A worker of this machine lives while its process does; one elsewhere while it renews its lease."""
    try:
        age = time.time() - path.stat().st_mtime
        holder = json.loads(path.read_bytes() or b"{}")
    except (OSError, ValueError):
        holder, age = {}, _age(path)
    if not isinstance(holder, dict):
        holder = {}
    me = _me()
    if holder.get("place") == me["place"]:
        return bool(_started(int(holder["pid"])) == holder["started"])
    return age <= lease_s


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:  # released meanwhile
        return float("inf")


def _me() -> dict[str, object]:
    """This process. Process ids mean the same only within one boot of one machine and one namespace."""
    place = [socket.gethostname()]
    for source in ("/proc/sys/kernel/random/boot_id",):
        with contextlib.suppress(OSError):
            place.append(Path(source).read_text(encoding="ascii").strip())
    with contextlib.suppress(OSError):
        place.append(str(Path("/proc/self/ns/pid").readlink()))
    return {"place": place, "pid": os.getpid(), "started": _started(os.getpid())}


def _started(pid: int) -> str | None:
    """When a process started, None when there is none: a number may have been given out again."""
    try:
        state, _, rest = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .strip()
            .partition(" ")
        )
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        return _signalled(pid)
    return None if state in ("Z", "X") else rest.split()[18]


def _signalled(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "running"
    return "running"
