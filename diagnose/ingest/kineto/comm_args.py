"""Arguments of a communication event, as kernels and operators carry them, in one shape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.kineto.numbers import small, whole
from diagnose.store.rank_trace import CommArgs

if TYPE_CHECKING:
    from diagnose.ingest.kineto.events import FullArgs

_CUT = "..."
_NOTHING = CommArgs()
_PEER_INPUT = re.compile(rb'\[\s*"[^"]*",\s*"[^"]*",\s*"(\d{1,9})"')


def comm_args(args: FullArgs) -> CommArgs:
    """What the event says; a member list that was cut with ``...`` is dropped, its size stays known."""
    dims = bytes(args.input_dims) or bytes(args.input_dims_old)
    if (
        args.collective is None
        and args.dtype is None
        and args.group_name is None
        and not dims
        and not bytes(args.concrete)
    ):
        return _NOTHING  # torch up to 2.1 writes thousands of these
    return CommArgs(
        collective=_text(args.collective),
        group_name=_text(args.group_name),
        group_desc=_text(args.group_desc),
        group_ranks=rank_list(args.group_ranks),
        group_size=small(args.group_size),
        seq=whole(args.seq),
        dtype=_text(args.dtype),
        in_elems=whole(args.in_elems),
        out_elems=whole(args.out_elems),
        in_split=_split(args.in_split),
        out_split=_split(args.out_split),
        peer=_peer(bytes(args.concrete)),
        src_rank=small(args.src_rank),
        dst_rank=small(args.dst_rank),
        input_dims=None if not dims else dims.decode("utf-8", "replace"),
        input_type=bytes(args.input_type).decode("utf-8", "replace") or None,
    )


def rank_list(value: object) -> tuple[int, ...] | None:
    """Members from a list or its text; None when absent, empty or cut."""
    if isinstance(value, list):
        return tuple(sorted(rank for item in value if (rank := small(item)) is not None)) or None
    if not isinstance(value, str) or _CUT in value:
        return None
    return tuple(sorted(rank for digits in re.findall(r"\d+", value) if (rank := small(digits)) is not None)) or None


def _peer(concrete: bytes) -> int | None:
    """Third concrete input, which for c10d::send and c10d::recv_ is the other end; None for other operators."""
    match = _PEER_INPUT.match(concrete)
    return int(match[1]) if match else None


def _split(value: object) -> str | None:
    text = "" if value is None else str(value)
    return None if text in ("", "[]") else text


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
