"""PyTorch Flight Recorder dumps: one rank's ring of collectives, as pickle or JSON.

A pickle is a program. It is read by an unpickler that knows no class and no function, so that only plain containers,
numbers, text, bytes, booleans and None can come out; anything else is refused and named, never executed.
Grain: flight_record (rank, group), flight_entry (rank, operation).
Source: torch/csrc/distributed/c10d/FlightRecorder.hpp, torch/distributed/flight_recorder.
"""

from __future__ import annotations

import io
import json
import pickle
import re
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from diagnose.ingest.base import Identity, Outcome
from diagnose.ingest.comm_rows import Rows
from diagnose.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import PurePosixPath

    from diagnose.ingest.base import ReadOptions, Record, Source

MAX_BYTES = 1 << 29
"""A dump of the largest ring seen in practice (20 000 entries with stacks) is below 200 MB."""
MAX_DEPTH_TEXT = 400

_PICKLE_PROTOCOLS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_NAME_WORDS = {
    "nccl",
    "comm",
    "lib",
    "trace",
    "rank",
    "fr",
    "json",
    "gz",
    "pickle",
    "pkl",
    "dump",
    "flight",
    "recorder",
}
_RANKS = re.compile(r"\d+")
_NS_PER_MS = 1_000_000


class RefusedPickleError(pickle.UnpicklingError):
    """The pickle asks for something that is not plain data."""


class _PlainUnpickler(pickle.Unpickler):
    """Loads plain data only; every way to a class or function of Python leads through these methods."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise RefusedPickleError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise RefusedPickleError(f"it asks for the persistent object {str(pid)[:60]}")


def load_plain(data: bytes) -> object:
    """The plain data of a pickle.

    Raises:
        RefusedPickleError: it holds anything but plain containers, numbers, text, bytes, booleans and None.
        ValueError: it is damaged.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except RefusedPickleError:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"the pickle is damaged: {error}") from error
    except (OverflowError, MemoryError, ImportError, RecursionError) as error:
        raise ValueError(f"the pickle is damaged: {type(error).__name__}") from error


class FlightRecorder:
    """A dump of the flight recorder."""

    name = "flight-recorder"
    priority = 200

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """Whether the content is a dump; a pickle of anything else is not."""
        if head[:2] in _PICKLE_PROTOCOLS:
            named = "trace_rank" in name.name or name.name.startswith("fr_")
            return named or (b"entries" in head and b"pg_" in head)
        text = head.lstrip()
        if text[:1] != b"{" or b"traceEvents" in head:
            return False
        marks = (b'"pg_config"', b'"pg_status"', b'"nccl_comm_state"', b'"comm_lib_version"', b'"collective_seq_id"')
        return sum(mark in head for mark in marks) >= 2

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """The groups and operations of one dump.

        Raises:
            SourceError: the file cannot be opened.
        """
        named_rank, host = name_parts(source.name)
        rank = options.rank if options.rank is not None else named_rank
        with source.open() as stream:
            data = b"".join(stream.blocks(1 << 20))
            damage = stream.damage
        try:
            dump = _load(data)
        except RefusedPickleError as error:
            text = f"not a plain dump, nothing in it was executed: {error}"
            yield Issue("pickle_refused", "error", 1, text, source.label)
            yield Outcome(status="failed", rows=0, problem=text)
            return
        except ValueError as error:
            text = f"{error}; {damage}" if damage else str(error)
            yield Issue("flight_recorder_damaged", "error", 1, text[:MAX_DEPTH_TEXT], source.label)
            yield Outcome(status="failed", rows=0, problem=text[:MAX_DEPTH_TEXT])
            return
        rows = Rows()
        count = _write(rows, source.label, dump, rank, options.host or host)
        yield from rows.rest()
        if rank is None:
            yield Issue("rank_unknown", "warning", 1, "neither the name nor the content tells the rank", source.label)
        yield Outcome(
            status="ok",
            rows=count,
            identity=Identity(
                rank=rank,
                rank_from=None if rank is None else "option" if options.rank is not None else "name",
                host=options.host or host,
                host_from="option" if options.host else "name" if host else None,
            ),
        )


FORMATS = (FlightRecorder(),)


def name_parts(name: PurePosixPath) -> tuple[int | None, str | None]:
    """Rank and host in a dump's name: nccl_trace_rank_3, fr_rank0.json.gz, comm_lib_trace_rank_3, node-07_fr_rank1."""
    rank: int | None = None
    host: list[str] = []
    stem = re.sub(r"\.(?:json|pickle|pkl|gz|zst|bin)\b", "", name.name)
    for part in reversed(stem.split("_")):
        digits = re.fullmatch(r"(?:rank|fr)?(\d{1,7})", part)
        if digits is not None and rank is None:
            rank = int(digits[1])
        elif part.lower() not in _NAME_WORDS:
            host.append(part)
    text = "_".join(reversed(host))
    is_host = re.search(r"[A-Za-z]", text) is not None and re.search(r"[\d.]", text) is not None
    return rank, text if is_host else None


def _load(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"the dump has {len(data)} bytes, above {MAX_BYTES}")
    if data[:2] in _PICKLE_PROTOCOLS:
        loaded = load_plain(data)
    else:
        try:
            loaded = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"no JSON: {error}") from error
    if isinstance(loaded, list):
        loaded = {"entries": loaded}
    if not isinstance(loaded, dict) or not isinstance(loaded.get("entries", []), list | tuple):
        raise ValueError("the dump holds no list of entries")  # noqa: TRY004 - the content is wrong, not a type of ours
    return loaded


def _write(rows: Rows, path: str, dump: Mapping[str, Any], rank: int | None, host: str | None) -> int:
    groups: dict[str, list[dict[str, object]]] = {}
    descriptions: dict[str, str] = {}
    ids: dict[str, str] = {}
    count = 0
    for position, entry in enumerate(dump.get("entries") or ()):
        if not isinstance(entry, dict):
            continue
        row = _entry(entry, position)
        group = str(row["comm_group"])
        groups.setdefault(group, []).append(row)
        pair = entry.get("process_group")
        if isinstance(pair, list | tuple) and len(pair) > 1:
            descriptions[group] = str(pair[1])
        ids[group] = str(entry.get("pg_id", group))
        rows.add("flight_entry", {"path": path, "rank": rank, **row})
        count += 1
    status = dump.get("pg_status") if isinstance(dump.get("pg_status"), dict) else {}
    known = set(ids.values()) | set(groups)
    for group in sorted(set(groups) | {str(key) for key in status or () if str(key) not in known}):
        state = (status or {}).get(ids.get(group, group), (status or {}).get(group, {}))
        rows.add(
            "flight_record",
            {
                "path": path,
                "rank": rank,
                "host": host,
                "comm_group": group,
                "description": descriptions.get(group),
                "ranks": _members(dump, group, descriptions.get(group)),
                "version": str(dump.get("version", "")) or None,
                **_summary(groups.get(group, []), state if isinstance(state, dict) else {}),
            },
        )
    return count


def _entry(entry: Mapping[str, Any], position: int) -> dict[str, object]:
    pair = entry.get("process_group")
    name = str(pair[0]) if isinstance(pair, list | tuple) and pair and pair[0] not in {"", None} else ""
    backend, _, op = str(entry.get("profiling_name", "")).rpartition(":")
    is_p2p = bool(entry.get("is_p2p", False))
    timeout = _whole(entry.get("timeout_ms"))
    return {
        "record": _whole(entry.get("record_id")) or position,
        "comm_group": name or str(entry.get("pg_id", "")),
        "op": op.split(" ", 1)[0] or None,
        "backend": backend or None,
        "is_p2p": is_p2p,
        "seq": _whole(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id"))),
        "state": str(entry.get("state", "")) or None,
        "in_sizes": json.dumps(entry.get("input_sizes"))[:MAX_DEPTH_TEXT],
        "out_sizes": json.dumps(entry.get("output_sizes"))[:MAX_DEPTH_TEXT],
        "dtype": ",".join(map(str, entry.get("input_dtypes") or ()))[:MAX_DEPTH_TEXT] or None,
        "created_ns": _whole(entry.get("time_created_ns")) or None,
        "started_ns": _whole(entry.get("time_discovered_started_ns")) or None,
        "completed_ns": _whole(entry.get("time_discovered_completed_ns")) or None,
        "timeout_ns": None if timeout is None else timeout * _NS_PER_MS,
    }


def _summary(entries: Sequence[Mapping[str, Any]], status: Mapping[str, Any]) -> dict[str, object]:
    """What a group's entries say. gloo leaves every state at "scheduled": there the last completed number decides."""
    collectives = [row for row in entries if not row["is_p2p"] and row["seq"] is not None]
    completed = _whole(status.get("last_completed_collective"))
    pending = None
    for row in collectives:
        states = row["backend"] != "gloo" and row["state"] in {"scheduled", "started"}
        behind = row["backend"] == "gloo" and completed is not None and row["seq"] > completed
        if states or behind:
            pending = row
            break
    return {
        "last_seq": max((row["seq"] for row in collectives), default=None),
        "enqueued": _whole(status.get("last_enqueued_collective")),
        "started": _whole(status.get("last_started_collective")),
        "completed": completed,
        "pending_seq": None if pending is None else pending["seq"],
        "pending_op": None if pending is None else pending["op"],
        "pending_state": None if pending is None else pending["state"],
        "entries": len(entries),
    }


def _members(dump: Mapping[str, Any], group: str, description: str | None) -> list[int] | None:
    """The members of a group; an unnamed configuration speaks for the default group."""
    config = dump.get("pg_config")
    if not isinstance(config, dict):
        return None
    item = config.get(group)
    if item is None and description == "default_pg":
        item = config.get("")
    if not isinstance(item, dict):
        return None
    ranks = [int(number) for number in _RANKS.findall(str(item.get("ranks", "")))]
    return ranks or None


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    text = str(value)
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None
