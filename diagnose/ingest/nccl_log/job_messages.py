"""What the layers above the library say about communication and exits: PyTorch, gloo, launchers, Python, RAS.

Sources: PyTorch ProcessGroupNCCL.cpp, ProcessGroupGloo.cpp, ProcessGroupWrapper.cpp; gloo transport/tcp/pair.cc;
torch/distributed/elastic/multiprocessing/errors; srun(1); Open MPI orterun; NCCL ras client (ncclras).
"""

from __future__ import annotations

import re
from typing import NamedTuple

CUES = (
    b"WorkNCCL(",
    b"ast enqueued",
    b"NCCL operations have failed",
    b"Error: ",
    b"Error\n",
    b"Exception: ",
    b"monitoredBarrier",
    b"exitcode",
    b"Root Cause (first observed",
    b"(local_rank: ",
    b"  host      : ",
    b"SIG",
    b"ignal ",
    b"egmentation fault",
    b"Killed",
    b"oom-kill",
    b"c10d",
    b"gloo/",
    b"OpType=",
    b"educer initialized",
    b"DDP Initialized",
    b"UV main loop done",
    b"] MISMATCH",
    b") MISMATCH",
    b") INCOMPLETE",
    b"operation counts",
    b"launched up to operation",
    b"managed by process",
    b"RCCL version",
)
"""Byte strings of which a line must hold one to be looked at."""


class Told(NamedTuple):
    """A recognised line: columns of comm_event."""

    code: str
    role: str
    level: str
    fields: dict[str, str | int]


class _Rule(NamedTuple):
    code: str
    role: str
    level: str
    needle: str
    pattern: re.Pattern[str] | None


def _rule(code: str, role: str, level: str, needle: str, pattern: str | None = None) -> _Rule:
    return _Rule(code, role, level, needle, None if pattern is None else re.compile(pattern))


_GROUP = r"\[PG (?:ID \d+ PG GUID (?P<comm_group>[^\]]*?)|(?P<group_id>\S+)) Rank (?P<rank>\d+)\]"

_RULES = (
    _rule(
        "watchdog_timeout",
        "echo",
        "torch",
        "Watchdog caught collective operation timeout",
        r"\[Rank (?P<rank>\d+)\] Watchdog.*?SeqNum=(?P<seq>\d+), OpType=(?P<op>\w+),(?: NumelIn=(?P<elements>\d+),)?"
        r"(?: NumelOut=\d+,)? ?Timeout\(ms\)=(?P<timeout_ms>\d+)\)",
    ),
    _rule(
        "watchdog_status",
        "echo",
        "torch",
        "ast enqueued",
        _GROUP
        + r".*?(?:(?:detected by watchdog at work(?: sequence id)?: (?P<seq>\d+))|(?P<dump>Received a dump signal)).*?"
        r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)",
    ),
    _rule("torch_abort", "echo", "torch", "Some NCCL operations have failed or timed out", r"\[Rank (?P<rank>\d+)\]"),
    _rule(
        "monitored_barrier",
        "cause",
        "torch",
        "failed to pass monitoredBarrier",
        r"Ranks? (?P<peer>[\d, ]+?) failed to pass monitoredBarrier in (?P<timeout_ms>\d+) ms",
    ),
    _rule(
        "collective_mismatch",
        "cause",
        "torch",
        "Detected mismatch between collectives on ranks",
        r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\("
        r"(?:SequenceNumber=(?P<seq>\d+))?,? ?OpType=(?P<op>\w+)"
        r".*?but Rank (?P<peer>\d+)",
    ),
    _rule(
        "gloo_timeout",
        "echo",
        "gloo",
        "Timed out waiting",
        r"Timed out waiting (?P<timeout_ms>\d+)ms for (?P<detail>send|recv) operation",
    ),
    _rule(
        "gloo_peer_closed",
        "echo",
        "gloo",
        "Connection closed by peer",
        r"Connection closed by peer \[(?P<peer>[^\]]+)\]",
    ),
    _rule(
        "gloo_peer_closed",
        "echo",
        "gloo",
        "Connection reset by peer",
        r"(?:\[(?P<peer>[\d.a-f:]+)\])?:?\d* ?.*Connection reset",
    ),
    _rule("gloo_timeout", "echo", "gloo", "Application timeout caused pair closure"),
    _rule(
        "oom_killed",
        "cause",
        "launcher",
        "oom-kill",
        r"(?:error: (?P<host>[\w.\-]+): )?.*?(?P<detail>oom-kill event|oom-kill)",
    ),
    _rule(
        "process_exit",
        "cause",
        "launcher",
        "(exitcode: ",
        r"failed \(exitcode: (?P<status>-?\d+)\) local_rank: (?P<local_rank>\d+)",
    ),
    _rule("process_exit", "cause", "launcher", "exitcode  :", r"exitcode  : (?P<status>-?\d+)(?: \(pid: \d+\))?"),
    _rule(
        "process_exit",
        "cause",
        "launcher",
        ": Killed",
        r"srun: error: (?P<host>[\w.\-]+): task (?P<rank>\d+): (?P<detail>Killed)",
    ),
    _rule(
        "process_exit",
        "cause",
        "launcher",
        "egmentation fault",
        r"srun: error: (?P<host>[\w.\-]+): task (?P<rank>\d+): (?P<detail>Segmentation fault)",
    ),
    _rule("segfault", "cause", "launcher", "egmentation fault", r"(?P<detail>Segmentation fault)"),
    _rule(
        "process_exit",
        "cause",
        "launcher",
        "exited on signal",
        r"process rank (?P<rank>\d+) with PID \d+ on node (?P<host>[\w.\-]+) exited on signal (?P<status>\d+)",
    ),
    _rule(
        "process_exit",
        "cause",
        "launcher",
        "Signal ",
        r"Signal (?P<status>\d+) \((?P<detail>SIG\w+)\) received by PID",
    ),
    _rule("signal_sent", "echo", "launcher", "closing signal SIG", r"closing signal (?P<detail>SIG\w+)"),
    _rule("ras_mismatch", "cause", "ras", ") MISMATCH", r"#\d+-\d+ \((?P<subject>[0-9a-f]+)\) MISMATCH"),
    _rule("ras_incomplete", "cause", "ras", ") INCOMPLETE", r"#\d+-\d+ \((?P<subject>[0-9a-f]+)\) INCOMPLETE"),
    _rule("ras_counts", "fact", "ras", "different", r"ranks have different (?P<op>\w+) operation counts"),
    _rule(
        "ras_progress",
        "fact",
        "ras",
        "launched up to operation",
        r"(?P<elements>\d+) ranks? ha(?:ve|s) launched up to operation (?P<seq>\d+)",
    ),
    _rule(
        "ras_rank",
        "fact",
        "ras",
        "managed by process",
        r"Rank (?P<comm_rank>\d+) -- GPU \S+ managed by process \d+ on node (?P<peer>\S+)",
    ),
)

_EXCEPTION = re.compile(
    r"^(?:\[\w*rank\d+\]: ?|\(\w[^)]*pid=\d+[^)]*\) |\w[\w.\-]*: )*"
    r"(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))"
    r"(?:: (?P<text>.*))?$"
)
_RANK = re.compile(r"\[(?:rank|Rank )(\d{1,7})\]")
_NETWORK_TEXT = (
    "NCCL error",
    "NCCL communicator was aborted",
    "Connection closed by",
    "Connection reset by",
    "Timed out waiting",
    "monitoredBarrier",
    "Broken pipe",
    "collective operation timeout",
    "gloo",
    "TCPStore",
    "store.get",
    "wait timeout",
    "Socket Timeout",
)
_LAUNCHER_TYPES = ("ChildFailedError", "SignalException", "ChildProcessError", "CalledProcessError")


def told(line: str) -> Told | None:
    """What a line says about communication or an exit, None for nothing."""
    for rule in _RULES:
        if rule.needle not in line:
            continue
        if rule.pattern is None:
            return Told(rule.code, rule.role, rule.level, _with_rank({}, line))
        match = rule.pattern.search(line)
        if match is None:
            continue
        return Told(rule.code, rule.role, rule.level, _with_rank(_fields(match), line))
    return _exception(line)


def exception(line: str) -> tuple[str, str] | None:
    """Type and text of the last line of a traceback."""
    match = _EXCEPTION.match(line.strip())
    return None if match is None else (match["type"].rsplit(".", 1)[-1], match["text"] or "")


def is_network_error(kind: str, text: str) -> bool:
    """Whether an exception reports what another process did: such a rank is a victim, not the cause."""
    return kind in {"DistBackendError", "DistNetworkError", "DistStoreError"} or any(
        word in text for word in _NETWORK_TEXT
    )


def _exception(line: str) -> Told | None:
    found = exception(line)
    if found is None:
        return None
    kind, text = found
    fields: dict[str, str | int] = {"subject": kind, "detail": text[:200]}
    _with_rank(fields, line)
    if kind.startswith("nccl"):
        return Told("network_exception", "echo", "python", fields)
    if kind in _LAUNCHER_TYPES:
        return Told("launcher_error", "echo", "launcher", fields)
    if is_network_error(kind, text):
        return Told("network_exception", "echo", "python", fields)
    if "out of memory" in text or kind == "OutOfMemoryError":
        return Told("cuda_oom", "cause", "python", fields)
    if "CUDA error" in text or kind == "AcceleratorError":
        return Told("cuda_error", "cause", "python", fields)
    stopped = kind in {"KeyboardInterrupt", "SystemExit"}
    return Told("exception", "fact" if stopped else "cause", "python", fields)


def _fields(match: re.Match[str]) -> dict[str, str | int]:
    fields: dict[str, str | int] = {}
    for name, value in match.groupdict().items():
        if value is None:
            continue
        if name == "timeout_ms":
            fields["timeout_ns"] = int(value) * 1_000_000
        elif name == "group_id":
            fields["comm_group"] = value
        elif name == "dump":
            fields["detail"] = "dump signal"
        elif name == "local_rank":
            fields["detail"] = f"local_rank {value}"
        elif name in {"rank", "seq", "elements", "enqueued", "completed", "status", "comm_rank"}:
            fields[name] = int(value)
        else:
            fields[name] = value.strip()
    return fields


def _with_rank(fields: dict[str, str | int], line: str) -> dict[str, str | int]:
    if "rank" not in fields and (match := _RANK.search(line)):
        fields["rank"] = int(match[1])
    return fields
