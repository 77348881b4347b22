"""What surrounds the events: the job, the devices, the base of times. Keys may stand before or after the events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.ingest.kineto.comm_args import rank_list
from diagnose.ingest.kineto.repair import repaired
from diagnose.store.rank_trace import ProcessGroup, TraceHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVENTS_OPEN = re.compile(rb'"traceEvents"\s*:\s*\[\s*$')
_VERSION_KEYS = (
    "nccl_version", "cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version",
    "hip_driver_version", "roctracer_version", "vllm_version",
)  # fmt: skip
_SALVAGE_KEYS = (b"distributedInfo", b"deviceProperties", b"baseTimeNanoseconds", b"host_name", b"with_stack")


def parse_metadata(header: bytes, trailer: bytes) -> tuple[dict[str, Any], bool]:
    """All top-level keys but the events, and whether the text was sound.

    A damaged text is searched for the keys that matter, one by one.
    """
    if header.rstrip().endswith(b"[") and not _EVENTS_OPEN.search(header):
        return {}, True
    text = header + trailer if trailer else header + b"]}"
    for candidate in (text, repaired(text)[0]):
        try:
            value = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return (value if isinstance(value, dict) else {}), candidate is text
    return _search(text), False


def trace_header(metadata: Mapping[str, Any]) -> TraceHeader:
    """The fields the analysis uses; what has an unexpected type is left out."""
    info = metadata.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world = info.get("rank"), info.get("world_size")
    config = info.get("pg_config")
    base = metadata.get("baseTimeNanoseconds")
    host = metadata.get("host_name")
    versions = {key: str(metadata[key]) for key in _VERSION_KEYS if metadata.get(key) is not None}
    if info.get("nccl_version"):
        versions["nccl_version"] = str(info["nccl_version"])
    return TraceHeader(
        rank=rank if isinstance(rank, int) and rank >= 0 else None,
        world_size=world if isinstance(world, int) and world > 0 else None,
        backend=str(info["backend"]) if info.get("backend") else None,
        host=host if isinstance(host, str) and host else None,
        devices=_devices(metadata),
        groups=tuple(_group(entry) for entry in config if isinstance(entry, dict)) if isinstance(config, list) else (),
        base_ns=base if isinstance(base, int) else 0,
        versions=versions,
        with_stack=bool(metadata.get("with_stack")),
    )


def _devices(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    entries = metadata.get("deviceProperties") or metadata.get("computeProperties")
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry.get("name", "")) for entry in entries if isinstance(entry, dict))


def _group(entry: Mapping[str, Any]) -> ProcessGroup:
    ranks = rank_list(entry.get("ranks"))
    size = entry.get("pg_size")
    return ProcessGroup(
        str(entry.get("pg_name", "")),
        None if entry.get("pg_desc") is None else str(entry["pg_desc"]),
        ranks,
        size if isinstance(size, int) else len(ranks) if ranks else None,
    )


def _search(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _SALVAGE_KEYS:
        match = re.search(rb'"' + key + rb'"\s*:\s*', text)
        if match is None:
            continue
        for end in range(match.end() + 1, min(len(text), match.end() + (1 << 20))):
            if text[end : end + 1] not in (b",", b"}", b"\n", b"]"):
                continue
            tail = end + 1 if text[end : end + 1] in (b"}", b"]") else end
            try:
                found[key.decode()] = msgspec.json.decode(text[match.end() : tail])
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            break
    return found
