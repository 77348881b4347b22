"""Turns lines into facts and events: finds the records in a line, torn and joined ones included."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.comm_rows import Rows
from diagnose.ingest.nccl_log import job_messages, prefix
from diagnose.ingest.nccl_log.context import Context
from diagnose.ingest.nccl_log.events import Events
from diagnose.ingest.nccl_log.grammar import fact
from diagnose.ingest.nccl_log.prefix import MARK, PROCESS, Head, Heads
from diagnose.ingest.nccl_log.ranklog import RankLog
from diagnose.ingest.nccl_log.signatures import recognise
from diagnose.ingest.nccl_log.state import VIAS_KEPT, Process, Thread, write_process, write_vias
from diagnose.ingest.nccl_log.transport import Vias

if TYPE_CHECKING:
    from diagnose.ingest.nccl_log.lines import Scanner

_MARK_BYTES = len(b"NCCL ")
_INFO_BYTES = len(b"NCCL INFO ")
_ANSI = re.compile(rb"\x1b\[[\d;]*[A-Za-z]")
_BANNER = re.compile(rb"(?:^|[\s:>\])])(NCCL|RCCL) version ?:? (\d+\.\d+[\w.+\-]*)\s*(?:compiled.*)?$")
_CONTINUED = re.compile(rb"^\s*(?:\d+|,)?,? ?vendor[ _]err")
_ORPHAN = re.compile(rb"^(?: via |/GDRDMA|IB/\d|\d+\[[0-9a-f]+\] (?:->|\[|via))")
_HEADS_KEPT = 100_000
_VIA_WORDS = (b"Channel ", b"Ring ", b"CollNet ", b"Coll ")


class Consumer:
    """Everything learnt from one log."""

    def __init__(self, path: str, scanner: Scanner) -> None:
        self.path = path
        self.rows = Rows()
        self.events = Events(path)
        self.heads = Heads()
        self.processes: dict[tuple[bytes | None, int | None], Process] = {}
        self.ranks = RankLog()
        self.records = 0
        self.torn = 0
        self.joined = 0
        self.torn_example: tuple[int, str] | None = None
        self.nranks = 0
        self._scanner = scanner
        self._via_parser = Vias()
        self._vias = 0
        self._by_head: dict[bytes, Thread] = {}
        self._threads: dict[tuple[bytes | None, int | None, int | None, int | None], Thread] = {}
        self._hosts: dict[str | None, Process] = {}
        self._open: dict[str, object] | None = None
        self._elastic: dict[str, object] = {}

    def line(self, number: int, text: bytes, stamp: bytes) -> None:
        """Take one physical line; one whose numbers are none is torn."""
        try:
            self._line(number, text, stamp)
        except (ValueError, OverflowError):
            self._tear(number, text)

    def _line(self, number: int, text: bytes, stamp: bytes) -> None:
        if b"\x1b" in text:
            text = _ANSI.sub(b"", text)
        start = text.find(b"NCCL ")
        if start < 0 or text[start + _MARK_BYTES : start + _INFO_BYTES] != b"INFO ":
            self._other(number, text, stamp)
            return
        message = text[start + _INFO_BYTES :]
        if b"NCCL " in message and MARK.search(message) is not None:
            self._split(number, text, stamp)
            return
        before = text[:start]
        thread = self._by_head.get(before) or self._thread(before, number)
        if message.startswith(_VIA_WORDS) and b" via " in message:
            self.records += 1
            thread.process.lines += 1
            self._via(thread, message, number)
        else:
            self._info(number, thread, before, message, stamp)

    def _via(self, thread: Thread, message: bytes, number: int) -> None:
        if message not in thread.vias:
            thread.vias[message] = number
            self._vias += 1
            if self._vias >= VIAS_KEPT:
                self._flush_vias()
        else:
            thread.repeats[message] = thread.repeats.get(message, 0) + 1

    def _other(self, number: int, text: bytes, stamp: bytes) -> None:
        if MARK.search(text) is not None:
            self._split(number, text, stamp)
            return
        if (old := prefix.OLD_MARK.search(text)) is not None:
            head, message = text[: old.start(1)], text[old.end(1) + 1 :]
            if old[1] == b"INFO":
                self._record(number, head, message, stamp, glued=False)
            else:
                self._warn(number, head, message, stamp, glued=False)
            return
        if self._open is not None and _CONTINUED.match(text):
            self._open["message"] = f"{self._open['message']} {text.decode('utf-8', 'replace').strip()}"
        self._open = None
        if _ORPHAN.match(text):
            self._tear(number, text)
            return
        if (banner := _BANNER.search(text)) is not None:
            self._banner(number, banner)
            return
        self._told(number, text, stamp)

    def _split(self, number: int, text: bytes, stamp: bytes) -> None:
        """Records that share a physical line; what precedes a joined record's prefix belongs to the one before."""
        marks = list(MARK.finditer(text))
        head = text[: marks[0].start()]
        glued = False
        for index, mark in enumerate(marks):
            end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
            message = text[mark.end() : end]
            next_head, next_glued = b"", False
            if index + 1 < len(marks):
                process = None
                for process in PROCESS.finditer(message):  # noqa: B007 - the last match counts
                    pass
                self.joined += 1
                if process is None:
                    self._tear(number, message)
                    message, next_head = b"", message
                else:
                    next_glued = process.start() > 0 and message[process.start() - 1 : process.start()] not in b" \t]"
                    message, next_head = message[: process.start()], message[process.start() :]
            if next_glued and message:
                self._tear(number, message)
            elif mark[1] == b"INFO" and message:
                self._record(number, head, message.rstrip() if next_head else message, stamp, glued=glued)
            elif mark[1] == b"WARN":
                self._warn(number, head, message, stamp, glued=glued)
            head, glued = next_head, next_glued

    def _record(self, number: int, before: bytes, message: bytes, stamp: bytes, *, glued: bool) -> None:
        """An INFO record out of a line that holds several."""
        thread = self._thread(before, number, glued=glued)
        if message.startswith(_VIA_WORDS) and b" via " in message:
            self.records += 1
            thread.process.lines += 1
            self._via(thread, message, number)
        else:
            self._info(number, thread, before, message, stamp)

    def _info(self, number: int, thread: Thread, before: bytes, message: bytes, stamp: bytes) -> None:
        process, head = thread.process, thread.head
        process.lines += 1
        self.records += 1
        text = message.rstrip(b"\r").decode("utf-8", "replace")
        if fact(Context(self.rows, self.path, process, head, number), text):
            if process.last_comm is not None and process.last_comm.nranks is not None:
                self.nranks = max(self.nranks, process.last_comm.nranks)
            return
        if (match := recognise(text, warning=False)) is not None:
            self._event(match.code, match.role, "INFO", number, head, text, stamp or before, match.fields)

    def _warn(self, number: int, before: bytes, message: bytes, stamp: bytes, *, glued: bool) -> None:
        head = self.heads.parse(before, glued=glued)
        self._process(head, number).lines += 1
        self.records += 1
        text = message.decode("utf-8", "replace").strip()
        if (match := recognise(text, warning=True)) is not None:
            self._open = self._event(match.code, match.role, "WARN", number, head, text, stamp or before, match.fields)

    def _event(
        self,
        code: str,
        role: str,
        level: str,
        number: int,
        head: Head,
        text: str,
        stamp: bytes,
        fields: dict[str, str | int | float],
    ) -> dict[str, object]:
        process = self._process(head, number)
        base = {"host": process.host, "pid": process.pid, "device": head.device, "rank": process.rank}
        return self.events.add(code, role, level, line=number, text=text, stamp=stamp, fields={**base, **fields})

    def _told(self, number: int, raw: bytes, stamp: bytes) -> None:
        text = raw.decode("utf-8", "replace")
        self.ranks.line(text)
        if "(local_rank: " in text or text.startswith("  host      :") or "Root Cause" in text:
            self._elastic_line(text)
        told = job_messages.told(text)
        if told is None:
            return
        fields: dict[str, object] = dict(told.fields)
        if told.code == "process_exit" and "exitcode  :" in text:
            fields = {**self._elastic, **fields}
        if "rank" not in fields and (rank := prefix.rank_tag(raw)) is not None:
            fields["rank"] = rank
        if told.code == "process_exit" and fields.get("status") in (0, None) and "detail" not in fields:
            return
        self.records += 1
        self.events.add(
            told.code, told.role, told.level, line=number, text=text.strip(), stamp=stamp or raw, fields=fields
        )

    def _elastic_line(self, text: str) -> None:
        if "Root Cause" in text:
            self._elastic = {"detail": "root cause"}
        elif match := re.search(r"rank\s+: (\d+) \(local_rank: \d+\)", text):
            self._elastic["rank"] = int(match[1])
        elif match := re.match(r"  host\s+: (\S+)", text):
            self._elastic["host"] = match[1]

    def _banner(self, number: int, match: re.Match[bytes]) -> None:
        process = self._process(Head(None, None, None, None, None, b""), number)
        process.library, process.version = match[1].decode().lower(), match[2].decode("utf-8", "replace")
        self.records += 1

    def _thread(self, before: bytes, number: int, *, glued: bool = False) -> Thread:
        head = self.heads.parse(before, glued=glued)
        key = (head.host, head.pid, head.tid, head.device)
        thread = self._threads.get(key)
        if thread is None:
            thread = self._threads[key] = Thread(head, self._process(head, number))
        thread.process.tag(head.rank)
        if not glued and len(self._by_head) < _HEADS_KEPT:
            self._by_head[before] = thread
        return thread

    def _process(self, head: Head, number: int) -> Process:
        key = (head.host, head.pid)
        process = self.processes.get(key)
        if process is None:
            host = None if head.host is None else head.host.decode("utf-8", "replace")
            process = self.processes[key] = Process(host, head.pid, number, device=head.device)
            first = self._hosts.setdefault(host, process)
            process.nets, process.told = first.nets, first.told
        return process

    def _tear(self, number: int, text: bytes) -> None:
        self.torn += 1
        if self.torn_example is None:
            self.torn_example = (number, text.decode("utf-8", "replace")[:200])

    def _flush_vias(self) -> None:
        for thread in self._threads.values():
            if thread.vias:
                torn, example = write_vias(self.rows, self.path, thread, self._via_parser, self.nranks)
                self.torn += torn
                self.torn_example = self.torn_example or example
        self._vias = 0

    def finish(self) -> None:
        """Write everything that was kept back."""
        self._flush_vias()
        for process in self.processes.values():
            write_process(self.rows, self.path, process)
        self.events.write(self.rows)
        self.ranks.finish(self, self._scanner)
