"""What an event is, by its category: the category decides, never the process, the thread or an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.store.rank_trace import COMPUTE, MEMCPY, MEMSET

if TYPE_CHECKING:
    from diagnose.ingest.kineto.events import Full

DEVICE = {
    "kernel": COMPUTE, "Kernel": COMPUTE, "mtia_ccp_events": COMPUTE,
    "gpu_memcpy": MEMCPY, "Memcpy": MEMCPY, "gpu_memset": MEMSET, "Memset": MEMSET,
}  # fmt: skip
"""Device work. ``cuda_sync``, ``gpu_user_annotation``, ``overhead``, ``cuda_event`` are none."""

OPERATOR = frozenset({"cpu_op", "Operator", "operator"})
RUNTIME = frozenset(
    {
        "cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime", "mtia_runtime", "xpu_runtime", "xpu_driver",
        "privateuse1_runtime", "privateuse1_driver",
    }
)  # fmt: skip
ANNOTATION = frozenset({"user_annotation", "collective_comm"})

FAST_RUNTIME = (b"cuda_runtime", b"cuda_driver", b"Runtime", b"mtia_runtime", b"xpu_runtime", b"xpu_driver")
FULL_OPERATORS = (
    b"record_param_comms", b"c10d::", b"_c10d_", b"nccl:", b"gloo:", b"hccl:", b"xccl:", b"Profiler", b"enumerate",
    b"Optimizer",
)  # fmt: skip
"""Names (their starts) of host operators whose arguments are needed."""

KINDS = ("device", "runtime", "operator", "annotation", "python", "overhead")

_ANNOTATION_NAMES = ("ProfilerStep#", "enumerate(DataLoader)", "Optimizer.", "## ", "[pytorch|profiler")
_PYTHON_MARKS = (b"__next__", b"gc.collect", b"<built-in function collect")


def kind(event: Full) -> str | None:
    """One of KINDS; None for what no analysis uses.

    Until 2021 annotations were operators; then the name tells.
    """
    cat, name = event.cat, event.name
    if cat in DEVICE:
        return "device"
    if cat in RUNTIME:
        return "runtime"
    if cat in OPERATOR:
        return "annotation" if isinstance(name, str) and name.startswith(_ANNOTATION_NAMES) else "operator"
    if cat in ANNOTATION:
        return "annotation"
    if cat == "overhead":
        return "overhead"
    return "python" if cat == "python_function" and isinstance(name, str) else None


def is_useful_frame(piece: bytes) -> bool:
    """Whether a Python frame is one of the few that explain idle time."""
    return any(mark in piece for mark in _PYTHON_MARKS)
