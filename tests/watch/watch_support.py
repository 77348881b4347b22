"""What the tests of the watcher share: one test's folders, and services that take messages."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple

from diagnose.pipeline.build import RunOptions
from diagnose.watch.loop import Events, Watcher
from diagnose.watch.options import WatchOptions
from diagnose.watch.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from diagnose.watch.services import Service


class Room(NamedTuple):
    """One test's folders, and what its watchers said."""

    inbox: Path
    out: Path
    results: list[str]
    log: list[str]

    def watcher(self, services: tuple[Service, ...] = (), **options: object) -> Watcher:
        settings = {
            "inbox": self.inbox,
            "out": self.out,
            "settle_s": 0.0,
            "run": RunOptions(jobs=1),
            "lease_s": 2.0,
        } | options
        return Watcher(WatchOptions(**settings), services, Events(self.results.append, self.log.append), Stop())

    def published(self) -> list[str]:
        return sorted(path.parent.name.rpartition("-")[0] for path in self.out.glob("runs/*/record.json"))

    def leftovers(self) -> list[str]:
        """Everything that only a broken-off run leaves behind."""
        partial = [
            *self.out.glob(".work/*"),
            *self.out.glob("claims/*"),
            *self.out.glob("attempts/*"),
            *self.out.rglob("*.tmp"),
        ]
        return sorted(path.relative_to(self.out).as_posix() for path in partial)


class Receiver(NamedTuple):
    """A web hook that answers."""

    address: str
    messages: list[dict[str, str]]
    answers: list[int]
    """Status codes to answer with, 200 when used up."""


@contextmanager
def web_hook() -> Iterator[Receiver]:
    """A real HTTP server on this machine that keeps what it is sent."""
    messages: list[dict[str, str]] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers.pop(0) if answers else 200
            if status == 200:
                messages.append(json.loads(body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Receiver(f"json://127.0.0.1:{server.server_port}/hook/secret-token", messages, answers)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
