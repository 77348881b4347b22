"""Typed events: only the fields that are used are turned into Python objects; everything else is skipped in C."""

from __future__ import annotations

from typing import Any

import msgspec

_ABSENT = msgspec.Raw()

Number = int | float | str | None


class Light(msgspec.Struct, gc=False):
    """A host operator whose arguments nobody needs."""

    name: str = ""
    tid: int | str = 0
    ts: Number = None
    dur: Number = None


class ShapeArgs(msgspec.Struct, gc=False):
    """Arguments of a host operator in runs without a device, where its shapes say what work it is."""

    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_ABSENT)
    input_dims_old: msgspec.Raw = msgspec.field(name="Input dims", default=_ABSENT)


class Shaped(msgspec.Struct, gc=False):
    """A host operator with its shapes."""

    name: str = ""
    tid: int | str = 0
    ts: Number = None
    dur: Number = None
    args: ShapeArgs | None = None


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of a runtime call."""

    correlation: int | None = None


class Call(msgspec.Struct, gc=False):
    """A call of the device runtime."""

    name: str = ""
    tid: int | str = 0
    ts: Number = None
    dur: Number = None
    args: CallArgs | None = None


class FullArgs(msgspec.Struct, gc=False):
    """Arguments of device activities, communication operators and metadata. Raw ones are decoded when needed."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    name: Any = None
    grid: msgspec.Raw = _ABSENT
    block: msgspec.Raw = _ABSENT
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elems: Any = msgspec.field(name="In msg nelems", default=None)
    out_elems: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    in_split: Any = msgspec.field(name="In split size", default=None)
    out_split: Any = msgspec.field(name="Out split size", default=None)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_desc: Any = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    src_rank: Any = msgspec.field(name="Src Rank", default=None)
    dst_rank: Any = msgspec.field(name="Dst Rank", default=None)
    seq: Any = msgspec.field(name="Seq", default=None)
    rank: Any = msgspec.field(name="Rank", default=None)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_ABSENT)
    input_dims_old: msgspec.Raw = msgspec.field(name="Input dims", default=_ABSENT)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_ABSENT)
    input_type: msgspec.Raw = msgspec.field(name="Input type", default=_ABSENT)


class Full(msgspec.Struct, gc=False):
    """Any event."""

    ph: str = ""
    cat: str | None = ""
    name: Any = ""
    pid: int | float | str | None = 0
    tid: int | float | str | None = 0
    ts: Number = None
    dur: Number = None
    args: FullArgs | None = None


class ExactTime(msgspec.Struct, gc=False):
    """The times of an event as text, for files whose floats do not fit a double."""

    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT


light_decoder = msgspec.json.Decoder(list[Light])
shaped_decoder = msgspec.json.Decoder(list[Shaped])
call_decoder = msgspec.json.Decoder(list[Call])
full_decoder = msgspec.json.Decoder(list[Full])
exact_decoder = msgspec.json.Decoder(list[ExactTime])
