"""How the log of one rank ends: a rank that was killed leaves no message, its log just stops."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.nccl_log import job_messages
from diagnose.ingest.nccl_log.prefix import time_ns

if TYPE_CHECKING:
    from diagnose.ingest.nccl_log.consumer import Consumer
    from diagnose.ingest.nccl_log.lines import Scanner

_RANK = re.compile(r"\[(?:rank|Rank )(\d{1,7})\]|[Rr]ank (\d{1,7}) is connected")
_WORLD = re.compile(r"world(?:[_ ]size)?[=: ]+(\d{1,7})\b|Expected number of connected peers is: (?P<peers>\d{1,7})")
_BACKEND = re.compile(r"backend(?:_name)?[=: ]+'?(nccl|gloo|mpi|ucc|xccl|hccl|rccl)\b")
_SEQUENCE = re.compile(r"CollectiveFingerPrint\(SequenceNumber=(\d+)")
_STEP = re.compile(rb"(?:step|iteration|iter|global_step)[ =:#]+(\d{1,9})(?: ?/ ?(\d{1,9}))?", re.IGNORECASE)
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?")
_STAGES = (
    ("steps", ""),
    ("ddp", "DDP Initialized"),
    ("reducer", "educer initialized"),
    ("group", "CollectiveFingerPrint"),
    ("group", "is connected to"),
    ("store", "TCP client connected"),
    ("store", "server has started"),
)
_SHUTDOWN = (
    b"uv_loop cleanup finished",
    b"UV main loop done",
    b"destroy_process_group",
    b"Training finished",
    b"Finished training",
)
_END_LINES = 12
_TRACEBACK_LINES = 80


class RankLog:
    """Facts of a log that speaks for one rank; nothing when it holds several."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.world_size: int | None = None
        self.backend: str | None = None
        self.last_seq: int | None = None
        self.stage: str | None = None
        self._order = [name for name, _ in _STAGES]

    def line(self, text: str) -> None:
        """Take a line that holds a cue."""
        if (match := _RANK.search(text)) is not None:
            self.ranks.add(int(match[1] or match[2]))
        if (match := _SEQUENCE.search(text)) is not None:
            self.last_seq = int(match[1])
        for stage, needle in _STAGES[1:]:
            if needle in text and (self.stage is None or self._order.index(stage) < self._order.index(self.stage)):
                self.stage = stage
                break
        if self.world_size is None and (match := _WORLD.search(text)) is not None:
            self.world_size = int(match["peers"]) + 1 if match["peers"] else int(match[1])
        if self.backend is None:
            if (match := _BACKEND.search(text)) is not None:
                self.backend = match[1]
            elif "gloo/" in text:
                self.backend = "gloo"

    @property
    def rank(self) -> int | None:
        """The one rank of the log."""
        return next(iter(self.ranks)) if len(self.ranks) == 1 else None

    def finish(self, consumer: Consumer, scanner: Scanner) -> None:
        """Write the row of a log that speaks for one rank."""
        rank = self.rank
        if rank is None or self.stage is None:
            return
        tail = scanner.tail
        steps = list(_STEP.finditer(tail))
        times = _TIME.findall(tail)
        lines = tail.rstrip().split(b"\n")[-_END_LINES:]
        hosts = {process.host for process in consumer.processes.values() if process.host}
        consumer.rows.add(
            "rank_log",
            {
                "path": consumer.path,
                "rank": rank,
                "host": hosts.pop() if len(hosts) == 1 else None,
                "world_size": self.world_size,
                "backend": self.backend,
                "last_t_ns": time_ns(times[-1]) if times else None,
                "last_line": scanner.lines,
                "last_step": int(steps[-1][1]) if steps else None,
                "total_steps": int(steps[-1][2]) if steps and steps[-1][2] else None,
                "last_seq": self.last_seq,
                "ended": _ending(tail, consumer),
                "stage": "steps" if steps else self.stage,
                "text": lines[-1].decode("utf-8", "replace")[:200] if lines else None,
            },
        )


def _ending(tail: bytes, consumer: Consumer) -> str:
    """How the log ends, by its last traceback; one that was caught is followed by further steps."""
    for line in reversed(tail.split(b"\n")[-_TRACEBACK_LINES:]):
        if _STEP.search(line) is not None and b"rror" not in line:
            break
        found = None
        if b"rror" in line or b"xception" in line or b"nterrupt" in line:
            found = job_messages.exception(line.decode("utf-8", "replace"))
        if found is not None and job_messages.is_network_error(*found):
            return "network_error"
        if found is not None and b"Traceback (most recent call last)" in tail:
            return "exception"
    if consumer.events.has("process_exit", "segfault", "oom_killed"):
        return "signal"
    if consumer.events.has("network_exception", "gloo_peer_closed", "gloo_timeout", "torch_abort", "watchdog_timeout"):
        return "network_error"
    return "shutdown" if any(word in tail for word in _SHUTDOWN) else "open"
