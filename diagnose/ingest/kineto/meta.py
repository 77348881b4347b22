"""What surrounds the events: the job, the devices, the base of times. Keys may stand before or after the events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from diagnose.ingest.kineto.comm_args import rank_list
from diagnose.ingest.kineto.layout import closing
from diagnose.ingest.kineto.numbers import small, whole
from diagnose.ingest.kineto.repair import repaired
from diagnose.store.rank_trace import ProcessGroup, TraceHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_DEVICES = re.compile(rb'"deviceProperties"\s*:\s*\[\s*\]')
_VERSION_KEYS = (
    "nccl_version", "cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version",
    "hip_driver_version", "roctracer_version", "vllm_version",
)  # fmt: skip
_SALVAGE_KEYS = (b"distributedInfo", b"deviceProperties", b"baseTimeNanoseconds", b"host_name", b"with_stack")
_SALVAGE_BYTES = 1 << 20


class Metadata(NamedTuple):
    """All top-level keys but the events; ``kinds`` of damage that were mended; ``sound`` False when keys had to be
    searched for; ``extra`` is text behind the end of the document.
    """

    values: dict[str, Any]
    kinds: Mapping[str, int]
    sound: bool
    extra: bytes


def may_lack_devices(header: bytes, *, is_list: bool) -> bool:
    """Whether the text before the events says that the process saw no accelerator, or leaves that to the text after them."""
    silent = not is_list and b'"deviceProperties"' not in header
    return silent or _NO_DEVICES.search(header) is not None


def parse_metadata(header: bytes, trailer: bytes, *, is_list: bool) -> Metadata:
    """The metadata around the events; ``trailer`` is what follows the last event, empty when the file is cut.

    A damaged text is mended, and else searched for the keys that matter, one by one.
    """
    end = closing(trailer, 1 if is_list else 2)
    extra = b"" if end is None else trailer[end:].strip(b" \t\r\n\0")
    if is_list:
        return Metadata({}, {}, sound=True, extra=extra)
    header = header.removeprefix(b"\xef\xbb\xbf")
    document = header + (trailer[:end] if trailer else b"]}")
    value = _decoded(document)
    if value is not None:
        return Metadata(value, {}, sound=True, extra=extra)
    for text in (document, header + trailer):
        mended, kinds = repaired(text)
        if (value := _decoded(mended)) is not None:
            lost = {key: found for key, found in _search(text).items() if key not in value}
            return Metadata({**value, **lost}, kinds, sound=not lost, extra=extra if text is document else b"")
    return Metadata(_search(header + trailer), {}, sound=False, extra=b"")


def trace_header(metadata: Mapping[str, Any]) -> TraceHeader:
    """The fields the analysis uses; what has an unexpected type is left out."""
    info = metadata.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    config = info.get("pg_config")
    host = metadata.get("host_name")
    world = small(info.get("world_size"))
    versions = {key: str(metadata[key]) for key in _VERSION_KEYS if metadata.get(key) is not None}
    if info.get("nccl_version"):
        versions["nccl_version"] = str(info["nccl_version"])
    return TraceHeader(
        rank=_rank(info),
        world_size=world if world is not None and world > 0 else None,
        backend=str(info["backend"]) if info.get("backend") else None,
        host=host.strip() or None if isinstance(host, str) else None,
        devices=_devices(metadata),
        groups=tuple(_group(entry) for entry in config if isinstance(entry, dict)) if isinstance(config, list) else (),
        base_ns=whole(metadata.get("baseTimeNanoseconds")) or 0,
        versions=versions,
        with_stack=bool(metadata.get("with_stack")),
    )


def _rank(info: Mapping[str, Any]) -> int | None:
    """``rank``; traces made on demand may only have ``ranks``, which names one when the process has one."""
    rank = small(info.get("rank"))
    if rank is None:
        several = rank_list(info.get("ranks"))
        rank = several[0] if several and len(several) == 1 else None
    return rank if rank is not None and rank >= 0 else None


def _devices(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    entries = metadata.get("deviceProperties") or metadata.get("computeProperties")
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry.get("name", "")) for entry in entries if isinstance(entry, dict))


def _group(entry: Mapping[str, Any]) -> ProcessGroup:
    ranks = rank_list(entry.get("ranks"))
    size = small(entry.get("pg_size"))
    return ProcessGroup(
        str(entry.get("pg_name", "")),
        None if entry.get("pg_desc") is None else str(entry["pg_desc"]),
        ranks,
        size if size is not None else len(ranks) if ranks else None,
    )


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


def _search(text: bytes) -> dict[str, Any]:
    """The values of the keys that matter, each from its first place where a whole value follows."""
    found: dict[str, Any] = {}
    for key in _SALVAGE_KEYS:
        match = re.search(rb'"' + key + rb'"\s*:\s*', text)
        if match is None:
            continue
        first = text[match.end() : match.end() + 1]
        if first in (b"{", b"["):
            end = closing(text[match.end() : match.end() + _SALVAGE_BYTES], 0)
        else:
            stop = re.search(rb"[,}\]\n]", text[match.end() : match.end() + _SALVAGE_BYTES])
            end = stop.start() if stop else None
        if end is None:
            continue
        try:
            found[key.decode()] = msgspec.json.decode(repaired(text[match.end() : match.end() + end])[0])
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found
