"""NCCL Inspector: JSON lines that NCCL's profiler plugin writes, one a finished collective of one rank.

Grain: inspector_coll (communicator, rank, coll_sn). Times include waiting for peers; bandwidths as printed, GB = 10^9.
Source: NVIDIA/nccl, ext-profiler/inspector/README.md (format v4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.base import Identity, Outcome
from diagnose.ingest.comm_rows import Rows
from diagnose.model import Issue
from diagnose.units import GB, US

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from diagnose.ingest.base import ReadOptions, Record, Source

BLOCK_BYTES = 1 << 20
_CHECK_ROWS = 8_192


class NcclInspector:
    """JSON lines of NCCL's inspector plugin."""

    name = "nccl-inspector"
    priority = 205

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - the content decides
        """Whether it holds a record of a collective with its header."""
        return head.lstrip()[:1] == b"{" and b'"coll_perf"' in head and b'"coll_sn"' in head

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """One row a record; damaged lines are counted.

        Raises:
            SourceError: the file cannot be opened.
        """
        rows = Rows()
        bad, example, kept, ranks, hosts = 0, "", 0, set[int](), set[str]()
        with source.open() as stream:
            for number, line in _objects(stream.blocks(BLOCK_BYTES)):
                row = _row(line)
                if row is None:
                    bad, example = bad + 1, example or f"line {number}: {line[:120].decode('utf-8', 'replace')}"
                    continue
                kept += 1
                if isinstance(row["host"], str):
                    hosts.add(row["host"])
                if isinstance(row["comm_rank"], int):
                    ranks.add(row["comm_rank"])
                rows.add("inspector_coll", {"path": source.label, "line": number, **row})
                if rows.count >= _CHECK_ROWS:
                    rows.count = 0
                    yield from rows.full()
            damage = stream.damage
        yield from rows.rest()
        if bad:
            yield Issue("inspector_bad_record", "warning", bad, example, source.label)
        host = options.host or (next(iter(hosts)) if len(hosts) == 1 else None)
        yield Outcome(
            status="partial" if damage or bad else "ok",
            rows=kept,
            problem=damage or (f"{bad} records are no valid JSON" if bad else None),
            identity=Identity(rank=options.rank, host=host, host_from="content" if host else None),
        )


FORMATS = (NcclInspector(),)


def _objects(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Records with the line they begin in: one a line, or pretty-printed over several."""
    carry, number, parts, start = b"", 0, list[bytes](), 1
    for block in blocks:
        lines = (carry + block).split(b"\n")
        carry = lines.pop()
        for line in lines:
            number += 1
            text = line.strip()
            if not text:
                continue
            if not parts and text[:1] == b"{" and text[-1:] == b"}":
                yield number, text
                continue
            start = number if not parts else start
            parts.append(text)
            if line[:1] == b"}" or len(parts) > 10_000:
                yield start, b" ".join(parts)
                parts = []
    if carry.strip() or parts:
        yield number + 1 if not parts else start, b" ".join([*parts, carry.strip()])


def _row(text: bytes) -> dict[str, object] | None:
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    header, meta, perf = (record.get(key) for key in ("header", "metadata", "coll_perf"))
    if not isinstance(header, dict) or not isinstance(perf, dict):
        return None
    meta = meta if isinstance(meta, dict) else {}
    micros, stamp = _number(perf.get("coll_exec_time_us")), _number(meta.get("dump_timestamp_us"))
    rank, nranks = _number(header.get("rank")), _number(header.get("n_ranks"))
    if micros is None or (rank is not None and nranks is not None and rank >= nranks):
        return None
    return {
        "host": meta.get("hostname") if isinstance(meta.get("hostname"), str) else None,
        "pid": _whole(_number(meta.get("pid"))),
        "comm_id": str(header.get("id")),
        "comm_rank": _whole(rank),
        "nranks": _whole(nranks),
        "nnodes": _whole(_number(header.get("nnodes"))),
        "collective": str(perf.get("coll")),
        "seq": _whole(_number(perf.get("coll_sn"))),
        "size_bytes": _whole(_number(perf.get("coll_msg_size_bytes"))),
        "dur_ns": round(micros * US),
        "timing_source": perf.get("coll_timing_source") if isinstance(perf.get("coll_timing_source"), str) else None,
        "algbw_bytes_per_s": _rate(perf.get("coll_algobw_gbs")),
        "busbw_bytes_per_s": _rate(perf.get("coll_busbw_gbs")),
        "t_ns": None if stamp is None else round(stamp) * US,
    }


def _number(value: Any) -> float | None:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _rate(value: object) -> float | None:
    number = _number(value)
    return None if number is None else number * GB
