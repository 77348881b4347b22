"""The job that report documents speak of: its ranks, hosts and steps, and how a step adds up."""

from __future__ import annotations

from typing import NamedTuple

from report_findings import MS

STEP_NS = 412 * MS


class Job(NamedTuple):
    """``of`` is the host of each rank, ``waits`` the share of the step each waits, ``numbers`` the steps."""

    ranks: int
    hosts: list[str]
    of: list[str]
    waits: list[float]
    numbers: list[int]


def parts(step_ns: int, *, wait: float = 0.1, noise: float = 0.0) -> dict[str, int]:
    """A step split that adds up exactly."""
    shares = {
        "compute_ns": 0.5 + noise,
        "exposed_wait_ns": wait,
        "exposed_transfer_ns": 0.12,
        "exposed_memcpy_ns": 0.02,
        "idle_input_ns": 0.05,
        "idle_host_ns": 0.06,
        "idle_sync_ns": 0.02,
        "idle_bubble_ns": 0.01,
    }
    split = {key: round(share * step_ns) for key, share in shares.items()}
    split["idle_other_ns"] = max(0, step_ns - sum(split.values()))
    split["exposed_comm_ns"] = split["exposed_wait_ns"] + split["exposed_transfer_ns"]
    split["idle_ns"] = sum(value for key, value in split.items() if key.startswith("idle_"))
    return split | {"overlapped_comm_ns": step_ns // 5}
