"""Output of nccl-tests (text and JSON) and DeepSpeed's communication summary: the bandwidth reference of the network.

Grain: bandwidth_reference (table, size, in place or not). S, algbw and busbw are as nccl-tests defines them.
Sources: NVIDIA/nccl-tests src/common.cu and src/util.cu; deepspeed/utils/comms_logging.py (message sizes in 1024s).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.base import Identity, Outcome
from diagnose.ingest.comm_rows import Rows
from diagnose.model import Issue
from diagnose.units import GB, MS, US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import PurePosixPath

    from diagnose.ingest.base import ReadOptions, Record, Source

BLOCK_BYTES = 1 << 20
BITS_PER_BYTE = 8

_NUMBER = r"(?:\d+(?:\.\d+)?(?:e[+\-]\d+)?|N/A)"
_HALF = (
    r"\s+(?P<time{n}>\d+(?:\.\d+)?(?:e\+\d+)?)\s+(?P<alg{n}>\d+(?:\.\d+)?)\s+(?P<bus{n}>\d+(?:\.\d+)?)"
    rf"(?:\s+(?P<wrong{{n}}>{_NUMBER}))?"
)
_ROW = re.compile(
    r"(?:^|[>:\])|] ?|Z (?:std(?:out|err) [FP] )?|\d\d:\d\d:\d\d[.,\d]* )\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z]\w+)(?:\s+(?P<redop>[a-z]+)\s+(?P<root>-?\d+))?"
    + _HALF.format(n=1)
    + "(?:"
    + _HALF.format(n=2)
    + r")?\s*$"
)
_HEADER = re.compile(
    rb"#\s+n[Tt]hread \d+|# nccl-tests version|#\s+size\s+count\s+type|# Out of bounds values|\"out_of_bounds\""
)
_PROGRAM = re.compile(r"Collective test starting: (\w+?)_perf|\b(\w+?)_perf(?:_mpi)?\b")
_DEVICE = re.compile(r"#\s+Rank\s+(\d+) (?:Group\s+\d+ )?Pid\s+\d+ on\s+(\S+) device\s+(\d+)")
_FOOTER = re.compile(r"# Out of bounds values\s*: (\d+) (OK|FAILED)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: ([\d.]+)")
_FAILURE = re.compile(r"(?P<host>[\w.\-]+): Test (?P<kind>NCCL failure|CUDA failure|timeout) (?P<text>.*)")
_DEEPSPEED = "Comm. Op            Message Size"
_DEEPSPEED_ROW = re.compile(
    r"^\s+(?P<size>[\d.]+) (?P<unit>[KMGT]?B)\s+(?P<count>\d+)\s+(?P<total>[\d.]+)\s+(?P<mean>[\d.]+)"
    r"\s+(?P<alg>[\d.]+)\s+(?P<bus>[\d.]+)"
)
_UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_OPS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce", "alltoall": "all_to_all", "sendrecv": "send_recv", "gather": "gather", "scatter": "scatter",
    "hypercube": "hypercube",
}  # fmt: skip


class NcclTests:
    """Tables of nccl-tests and of DeepSpeed's summary, alone or inside a log."""

    name = "nccl-tests"
    priority = 215

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - the content decides
        """Whether a table's header is in sight."""
        if b"\0" in head[:4096]:
            return False
        text = head.lstrip()[:1]
        if text == b"{":
            return b'"out_of_place"' in head and b'"bus_bw"' in head
        return _HEADER.search(head) is not None or _DEEPSPEED.encode() in head

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Rows of all tables, wrong results and failures as events, then how it went.

        Raises:
            SourceError: the output cannot be opened.
        """
        table = _Tables(source.label)
        with source.open() as stream:
            blocks = stream.blocks(BLOCK_BYTES)
            first = next(blocks, b"")
            if first.lstrip()[:1] == b"{" and b'"out_of_place"' in first:
                damage = _read_json(table, first + b"".join(blocks))
            else:
                for number, line in enumerate(_lines(first, blocks), 1):
                    table.line(number, line)
                damage = None
            damage = damage or stream.damage
        yield from table.rows.rest()
        if damage:
            yield Issue("nccl_tests_damaged", "warning", 1, damage, source.label)
        yield Outcome(
            status="partial" if damage else "ok",
            rows=table.kept,
            problem=damage,
            identity=Identity(host=options.host, host_from="option" if options.host else None),
        )


FORMATS = (NcclTests(),)


def _lines(first: bytes, blocks: Iterator[bytes]) -> Iterator[str]:
    carry = b""
    block = first
    while block:
        lines = (carry + block).split(b"\n")
        carry = lines.pop()
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        block = next(blocks, b"")
    if carry:
        yield carry.decode("utf-8", "replace")


class _Tables:
    """The tables of one output."""

    def __init__(self, path: str) -> None:
        self.rows = Rows()
        self.kept = 0
        self._path = path
        self._test = 0
        self._op: str | None = None
        self._devices: dict[int, str] = {}
        self._deepspeed = ""

    def line(self, number: int, text: str) -> None:
        """Take one line."""
        if "#" in text:
            self._comment(number, text)
        elif text.startswith(_DEEPSPEED):
            self._test, self._deepspeed = self._test + 1, "?"
        elif self._deepspeed:
            self._deepspeed_line(number, text)
        elif "_perf" in text and (match := _PROGRAM.search(text)):
            self._op = _OPS.get(match[1] or match[2] or "", self._op)
        elif match := _ROW.search(text):
            self._row(number, match.groupdict())
        elif ": Test " in text and (match := _FAILURE.search(text)):
            self.event(number, "nccl_tests_failure", text.strip(), host=match["host"], detail=match["kind"])

    def _comment(self, number: int, text: str) -> None:
        if "nThread" in text or "# nccl-tests version" in text:
            self._devices.clear()
        if match := _PROGRAM.search(text):
            self._op = _OPS.get(match[1] or match[2] or "", self._op)
        elif match := _DEVICE.search(text):
            self._devices[int(match[1])] = match[2]
        elif re.search(r"#\s+size\s+count\s+type", text):
            self._test += 1
        elif (match := _FOOTER.search(text)) and match[2] == "FAILED":
            self.event(number, "nccl_tests_wrong", text.strip(), elements=int(match[1]), op=self._op)

    def _row(self, number: int, row: dict[str, Any]) -> None:
        for half, in_place in (("1", False), ("2", True)):
            if row[f"time{half}"] is None:
                continue
            wrong = row[f"wrong{half}"]
            self.add(
                number,
                in_place=in_place,
                size=int(row["size"]),
                dtype=row["type"],
                redop=row["redop"],
                micros=float(row[f"time{half}"]),
                alg=float(row[f"alg{half}"]),
                bus=float(row[f"bus{half}"]),
                wrong=None if wrong in {None, "N/A"} else float(wrong),
            )

    def add(
        self,
        number: int,
        *,
        in_place: bool,
        size: int,
        dtype: str | None,
        redop: str | None,
        micros: float,
        alg: float,
        bus: float,
        wrong: float | None,
        calls: int | None = None,
        tool: str = "nccl-tests",
    ) -> None:
        """Add a row; bandwidths in GB/s."""
        self.kept += 1
        self.rows.add(
            "bandwidth_reference",
            {
                "path": self._path, "line": number, "tool": tool, "test": self._test, "collective": self._op,
                "size_bytes": size, "dtype": dtype, "reduction": redop if redop != "none" else None,
                "gpus": len(self._devices) or None, "hosts": len(set(self._devices.values())) or None,
                "in_place": in_place, "time_ns": round(micros * US), "algbw_bytes_per_s": alg * GB,
                "busbw_bytes_per_s": bus * GB, "wrong": wrong, "calls": calls,
            },
        )  # fmt: skip

    def event(self, number: int, code: str, text: str, **fields: object) -> None:
        """Add a failure of the test itself."""
        base = {
            "path": self._path,
            "line": number,
            "last_line": number,
            "code": code,
            "role": "cause",
            "level": "nccl-tests",
        }
        self.rows.add("comm_event", {**base, "message": text[:400], "count": 1, **fields})

    def devices(self, devices: Sequence[tuple[int, str]], op: str | None) -> None:
        """Set ranks with hosts, and the operation, of what follows."""
        self._test += 1
        self._devices, self._op = dict(devices), op

    def _deepspeed_line(self, number: int, text: str) -> None:
        if re.fullmatch(r"[a-z][\w ]*", text.strip()) and not text.startswith(" "):
            self._deepspeed = text.strip()
        elif match := _DEEPSPEED_ROW.match(text):
            self._op = self._deepspeed
            size = round(float(match["size"]) * _UNITS[match["unit"]])
            alg, bus = (float(match[key]) / BITS_PER_BYTE for key in ("alg", "bus"))
            micros = float(match["mean"]) * MS / US
            self.add(
                number, in_place=False, size=size, dtype=None, redop=None, micros=micros, alg=alg, bus=bus, wrong=None,
                calls=int(match["count"]), tool="deepspeed",
            )  # fmt: skip
        elif text.strip():
            self._deepspeed = ""


def _read_json(table: _Tables, data: bytes) -> str | None:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"no valid JSON: {error}"
    if not isinstance(document, dict):
        return "the JSON is no object"
    program = next((str(value) for value in _strings(document) if "_perf" in value), "")
    match = _PROGRAM.search(program)
    devices = [
        (item["rank"], str(item.get("hostname")))
        for item in _objects(document)
        if isinstance(item.get("rank"), int) and "hostname" in item
    ]
    table.devices(devices, _OPS.get((match[1] or match[2] or "") if match else ""))
    for number, row in enumerate(
        (item for item in _objects(document) if "out_of_place" in item or "in_place" in item), 1
    ):
        for key, in_place in (("out_of_place", False), ("in_place", True)):
            _json_half(table, number, row, row.get(key), in_place=in_place)
    bounds = document.get("out_of_bounds")
    if isinstance(bounds, dict) and bounds.get("okay") is False:
        table.event(1, "nccl_tests_wrong", f"out of bounds values: {bounds.get('count')}", elements=bounds.get("count"))
    return None


def _json_half(table: _Tables, number: int, row: dict[str, Any], half: Any, *, in_place: bool) -> None:  # noqa: ANN401 - JSON
    if not isinstance(half, dict) or not isinstance(row.get("size"), int):
        return
    micros, alg, bus, wrong = (half.get(key) for key in ("time", "alg_bw", "bus_bw", "nwrong"))
    if micros is None:
        micros = half.get("cpu_time")
    if not all(isinstance(value, int | float) for value in (micros, alg, bus)):
        return
    table.add(
        number, in_place=in_place, size=row["size"], dtype=str(row.get("type")), redop=str(row.get("redop")),
        micros=float(micros or 0), alg=float(alg or 0), bus=float(bus or 0),
        wrong=float(wrong) if isinstance(wrong, int | float) else None,
    )  # fmt: skip


def _objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _strings(value: object) -> Iterator[str]:
    for item in _objects(value):
        for text in item.values():
            if isinstance(text, str):
                yield text
            elif isinstance(text, list):
                yield from (part for part in text if isinstance(part, str))
