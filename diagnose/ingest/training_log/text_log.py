"""Text logs that hold step lines, among whatever else a job prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.training_log.records import StepLog
from diagnose.ingest.training_log.styles import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import ReadOptions, Record, Source

_HINT = re.compile(rb"step|iter|loss", re.IGNORECASE)
_JOB_WORDS = (b"NCCL ", b"RCCL", b"[rank", b"[Rank", b"torch", b"c10d", b"deepspeed", b"megatron")
_LOG_SUFFIXES = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")
HEAD_BYTES = 65_536
MAX_LINE_BYTES = 20_000
"""Longer lines are no step lines; they are passed over before any pattern sees them."""


class TextTrainingLog:
    """Step lines of torchtitan, Megatron-LM, DeepSpeed, nanotron, HF Trainer and plain key=value logs.

    Grain: (rank, step). Several ranks may write to one file. A log whose head is full of other messages is taken when
    it comes from a distributed job, since the first step may lie further down.
    """

    name = "training-log"
    priority = 400

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """A step line in the head, or a long log of a distributed job."""
        if head.lstrip()[:1] in (b"{", b"[") and b'"step"' in head[:4000]:
            return False
        if b"\x00" in head:
            return False
        for line in head.splitlines():
            if len(line) < MAX_LINE_BYTES and _HINT.search(line) and parse_line(line.decode("utf-8", "replace")):
                return True
        long_log = len(head) >= HEAD_BYTES and (name.suffix in _LOG_SUFFIXES or not name.suffix)
        return long_log and any(word in head for word in _JOB_WORDS)

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """All step lines."""
        log = StepLog(source, options)
        rest = b""
        with source.open() as handle:
            for block in handle.blocks(1 << 20):
                *lines, rest = re.split(rb"[\r\n]", rest + block)
                _take(lines, log)
            log.cut = handle.damage
        _take([rest], log)
        yield from log.finish()


def _take(lines: list[bytes], log: StepLog) -> None:
    for line in lines:
        if len(line) < MAX_LINE_BYTES and _HINT.search(line):
            step = parse_line(line.decode("utf-8", "replace"))
            if step is not None:
                log.add(step)
