"""The format of NCCL and RCCL logs: one process or thousands of ranks in one stream, streaming and linear.

Grain: the tables of store/tables/comm_log.py. Source: NCCL src/debug.cc for the records; the other modules name theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.base import Identity, Outcome, Source
from diagnose.ingest.nccl_log import job_messages
from diagnose.ingest.nccl_log.consumer import Consumer
from diagnose.ingest.nccl_log.lines import Scanner
from diagnose.ingest.nccl_log.prefix import OLD_MARK
from diagnose.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import ReadOptions, Record

BLOCK_BYTES = 1 << 20

_RECORD = re.compile(
    rb"NCCL (?:INFO|WARN|TRACE|CALL) "
    rb"|(?:^|[\s\"])(?:NCCL|RCCL) version ?:? \d+\.\d+"
    rb"|ProcessGroup(?:NCCL|Gloo|Wrapper)?\.cpp|ProcessGroupNCCL"
    rb"|\[c10d(?: - \w+)?\]"
    rb"|WorkNCCL\("
    rb"|gloo/transport/tcp|third_party/gloo"
    rb"|torch\.distributed\.DistBackendError"
    rb"|reducer\.cpp:\d+\]"
    rb"|torch\.distributed\.elastic\.multiprocessing"
    rb"|exitcode  : -?\d"
    rb"|failed \(exitcode: -?\d+\) local_rank"
    rb"|srun: error: \S+ task \d+: "
    rb"|slurmstepd: error: .*oom"
)
_TRACEBACK = re.compile(rb"^(?:\[\w*rank\d+\]: ?)?Traceback \(most recent call last\)", re.MULTILINE)
_NAME_RANK = re.compile(r"(?:^|[^a-z])rank[_\-.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_BINARY = b"\0"


class NcclLog:
    """Text with records of NCCL or RCCL, of c10d or gloo, or with what a launcher says about a rank's exit."""

    name = "nccl-log"
    priority = 210

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """Whether a record is in sight. Profiler JSON that merely names a process group is none."""
        if _BINARY in head[:4096] or _is_document(head):
            return False
        if _RECORD.search(head) is not None or OLD_MARK.search(head) is not None:
            return True
        return _NAME_RANK.search(name.name) is not None and _TRACEBACK.search(head) is not None

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Rows of the communication tables, torn and cut lines as issues, then how it went.

        Raises:
            SourceError: the log cannot be opened.
        """
        scanner = Scanner(b"NCCL ", job_messages.CUES)
        consumer = Consumer(source.label, scanner)
        if (match := _NAME_RANK.search(source.name.name)) is not None:
            consumer.ranks.ranks.add(int(match[1]))
        if options.rank is not None:
            consumer.ranks.ranks = {options.rank}
        with source.open() as stream:
            for _ in scanner.scan(stream.blocks(BLOCK_BYTES), consumer.line):
                if consumer.rows.count >= _CHECK_ROWS:
                    consumer.rows.count = 0
                    yield from consumer.rows.full()
            damage = stream.damage
        consumer.finish()
        yield from consumer.rows.rest()
        yield from _issues(source, consumer, damage)
        yield Outcome(
            status="partial" if damage else "ok",
            rows=consumer.records,
            problem=damage,
            identity=_identity(consumer, options),
        )


_CHECK_ROWS = 8_192


def _is_document(head: bytes) -> bool:
    """A JSON document (a trace, an API's answer) or metrics text; a JSON line a record is a log."""
    text = head.lstrip()[:4096]
    if text[:1] == b"[" and text[1:2] in b'{\n "':
        return True
    if text[:1] == b"{":
        first = text.split(b"\n", 1)[0].rstrip()
        return not (first.endswith(b"}") and b"NCCL " in head)
    return text.startswith((b"# HELP ", b"# TYPE "))


def _identity(consumer: Consumer, options: ReadOptions) -> Identity:
    hosts = {process.host for process in consumer.processes.values() if process.host}
    rank, host = consumer.ranks.rank, options.host or (next(iter(hosts)) if len(hosts) == 1 else None)
    return Identity(
        rank=rank,
        rank_from=None if rank is None else "option" if options.rank is not None else "content",
        host=host,
        host_from=None if host is None else "option" if options.host else "content",
        world_size=consumer.ranks.world_size,
    )


def _issues(source: Source, consumer: Consumer, damage: str | None) -> Iterator[Issue]:
    if consumer.torn:
        line, text = consumer.torn_example or (0, "")
        yield Issue("torn_lines", "warning", consumer.torn, f"line {line}: {text[:160]}", source.label)
    if consumer.joined:
        yield Issue(
            "joined_lines",
            "info",
            consumer.joined,
            "several records share one line; they were told apart",
            source.label,
        )
    if damage:
        yield Issue("source_damaged", "warning", 1, damage, source.label)
