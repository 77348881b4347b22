"""One table of names: which device activities and host spans are communication, and which kind.

Metadata comes first (``Collective name``, category); names are the fallback. The algorithm, protocol and operator in
an NCCL kernel's name are those of the compiled specialisation, not of what ran, so they are never read.
"""

from __future__ import annotations

import re
from functools import lru_cache

UNKNOWN_KIND = "unknown"

_COMM_KERNEL = re.compile(
    r"""
      ^nccl                                   # NCCL of all eras (ncclKernel_, ncclDevKernel_, ncclSymk...), RCCL
    | ^rccl | rcclGenericKernel
    | deep_?ep::|\bep::(?:inter|intra)node(?:_ll)?::(?!get_dispatch_layout)   # DeepEP dispatch, combine, notify
    | nvshmem | rocshmem
    | multimem_(?:all_reduce|one_shot|all_gather|reduce)|(?:one|two)_shot_all_reduce   # symmetric memory
    | mscclpp | msccl_kernel
    | cross_device_reduce | custom_all_?reduce | quickreduce|allreduce_(?:two|one)shot
    | ^oneccl|^ccl_|\bxccl
    | ^hccl|^hcom_|^Hccl
    """,
    re.VERBOSE | re.IGNORECASE,
)
_NOT_COMM = re.compile(r"get_dispatch_layout|nvshmem.*(?:init|heap_setup)", re.IGNORECASE)

_COMM_SPAN = re.compile(
    r"^(?:gloo|nccl|hccl|xccl|mpi|ucc):(?P<op>[A-Za-z_]+)|^c10d::(?P<c10d>\w+)|^_c10d_functional::(?P<func>\w+)|^record_param_comms$"
)

_KINDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"reduce_?scatter", "reduce_scatter"),
        (r"all_?gather", "all_gather"),
        (r"all_?to_?all_?v|alltoallv", "all_to_allv"),
        (r"all_?to_?all|alltoall", "all_to_all"),
        (r"all_?reduce|cross_device_reduce|quickreduce", "all_reduce"),
        (r"broadcast|bcast", "broadcast"),
        (r"send_?recv|sendrecv", "send_recv"),
        (r"batch_?isend_?irecv|coalesced", "coalesced"),
        (r"\bi?send|_send\b|::send", "send"),
        (r"\bi?recv|_recv\b|::recv", "recv"),
        (r"barrier", "barrier"),
        (r"scatter", "scatter"),
        (r"gather", "gather"),
        (r"reduce", "reduce"),
        (r"dispatch", "all_to_allv"),
        (r"combine", "all_to_allv"),
    )
)
_NO_TRANSFER = frozenset(
    {"wait", "init", "wait_tensor", "monitored_barrier_init", "start_coalescing", "end_coalescing"}
)

_DTYPE_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "uint8": 1, "int8": 1, "unsigned char": 1, "signed char": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "c10::float8_e4m3fn": 1, "c10::float8_e5m2": 1,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2, "int16": 2, "uint16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "float": 4, "int": 4, "float32": 4, "int32": 4, "uint32": 4, "complexhalf": 4,
    "double": 8, "long": 8, "float64": 8, "int64": 8, "uint64": 8, "long int": 8, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


@lru_cache(maxsize=65_536)
def is_comm_kernel(name: str) -> bool:
    """Whether a device activity of this name moves data between ranks."""
    return _COMM_KERNEL.search(name) is not None and _NOT_COMM.search(name) is None


@lru_cache(maxsize=65_536)
def comm_span(name: str) -> str | None:
    """The operation of a host span that is communication (``gloo:all_reduce``, ``c10d::send``), else None."""
    match = _COMM_SPAN.match(name)
    if match is None:
        return None
    operation = next((group for group in match.groups() if group), "")
    return None if operation.strip("_") in _NO_TRANSFER else operation or UNKNOWN_KIND


@lru_cache(maxsize=65_536)
def collective_kind(name: str | None) -> str:
    """Canonical kind of a collective from any name it goes by; ``unknown`` when the name does not tell."""
    if not name or name.strip("_") in _NO_TRANSFER:
        return UNKNOWN_KIND
    for pattern, kind in _KINDS:
        if pattern.search(name):
            return kind
    return UNKNOWN_KIND


def is_transfer(name: str | None) -> bool:
    """False for records that start or end communication without moving data (``wait``, ``init``)."""
    return name is not None and name.strip("_") not in _NO_TRANSFER


def dtype_bytes(name: str | None) -> int | None:
    """Bytes of one element, None for types not in the table."""
    return None if name is None else _DTYPE_BYTES.get(name.removeprefix("torch.").removeprefix("at::").lower())
