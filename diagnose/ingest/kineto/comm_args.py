"""Arguments of a communication event, as kernels and operators carry them, in one shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.store.rank_trace import CommArgs

if TYPE_CHECKING:
    from diagnose.ingest.kineto.events import FullArgs

_CUT = "..."
_PEER_INPUT = re.compile(rb'\[\s*"[^"]*",\s*"[^"]*",\s*"(\d+)"')


def comm_args(args: FullArgs) -> CommArgs:
    """What the event says; a member list that was cut with ``...`` is dropped, its size stays known."""
    dims = bytes(args.input_dims) or bytes(args.input_dims_old)
    return CommArgs(
        collective=_text(args.collective),
        group_name=_text(args.group_name),
        group_desc=_text(args.group_desc),
        group_ranks=rank_list(args.group_ranks),
        group_size=_integer(args.group_size),
        seq=_integer(args.seq),
        dtype=_text(args.dtype),
        in_elems=_integer(args.in_elems),
        out_elems=_integer(args.out_elems),
        in_split=_split(args.in_split),
        out_split=_split(args.out_split),
        peer=_peer(bytes(args.concrete)),
        src_rank=_integer(args.src_rank),
        dst_rank=_integer(args.dst_rank),
        input_dims=None if not dims else dims.decode("utf-8", "replace"),
        input_type=bytes(args.input_type).decode("utf-8", "replace") or None,
    )


def rank_list(value: object) -> tuple[int, ...] | None:
    """Members from a list or its text; None when absent, empty or cut."""
    if isinstance(value, list):
        return tuple(sorted(item for item in value if isinstance(item, int))) or None
    if not isinstance(value, str) or _CUT in value:
        return None
    return tuple(sorted(int(digits) for digits in re.findall(r"\d+", value))) or None


def _peer(concrete: bytes) -> int | None:
    """Third concrete input, which for c10d::send and c10d::recv_ is the other end; None for other operators."""
    match = _PEER_INPUT.match(concrete)
    return int(match[1]) if match else None


def _split(value: object) -> str | None:
    text = "" if value is None else str(value)
    return None if text in ("", "[]") else text


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)
    return int(value) if isinstance(value, float) and value == value else None
