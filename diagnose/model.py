"""The types every layer shares: causes, findings with their evidence, issues of the input, what was not checked."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

Severity = Literal["critical", "warning", "info"]
IssueSeverity = Literal["error", "warning", "info"]
Persistence = Literal["persistent", "transient", "rotating"]
SourceStatus = Literal["ok", "partial", "skipped", "failed"]

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")

BOTTLENECKS = (
    "compute",
    "network",
    "straggler",
    "input",
    "host",
    "imbalance",
    "pipeline",
    "checkpoint",
    "inconclusive",
)

CAUSES = (
    "gpu_slow",
    "gpu_memory_slow",
    "host_slow",
    "input_stall",
    "gc_pause",
    "allocator",
    "workload_imbalance",
    "stage_imbalance",
    "moe_imbalance",
    "mixed_hardware",
    "nic_slow",
    "link_errors",
    "congestion",
    "oversubscription",
    "bandwidth_bound",
    "latency_bound",
    "wrong_protocol",
    "no_rdma",
    "partial_rdma",
    "no_gdr",
    "partial_gdr",
    "wrong_interface",
    "rail_mismatch",
    "p2p_disabled",
    "intra_node_link",
    "version_mismatch",
    "comm_error",
    "hang",
    "checkpoint",
    "warm_up",
    "traffic_mixing",
    "throttling",
    "hardware_error",
    "data_quality",
    "scaling_plateau",
    "regression",
)
"""The contract's causes, plus none of our own: a rule may use only these."""


class Evidence(msgspec.Struct, frozen=True):
    """One fact behind a finding. ``source`` says where it was read: a table, a file and line, a metric."""

    text: str
    value: float | int | str | None = None
    unit: str | None = None
    source: str = ""


class Impact(msgspec.Struct, frozen=True):
    """What the finding costs: lost time per step, its share of the step, GPU-hours a day at this rate."""

    ns_per_step: int | None = None
    step_ratio: float | None = None
    gpu_hours_per_day: float | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One judged problem. The fingerprint is stable over runs: code, cause and subject, no numbers."""

    code: str
    title: str
    severity: Severity
    cause: str
    message: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    steps: tuple[int, ...] | Literal["all"] = "all"
    persistence: Persistence | None = None
    impact: Impact = Impact()
    confidence: float = 1.0
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that name this problem over runs."""
        subject = "|".join((self.code, self.cause, repr(self.ranks), repr(self.hosts), repr(self.devices)))
        return hashlib.sha256(subject.encode()).hexdigest()[:16]


class NotChecked(msgspec.Struct, frozen=True):
    """A question the data could not answer, and exactly how to collect what is missing."""

    question: str
    why: str
    collect: str


class Issue(msgspec.Struct, frozen=True):
    """Something wrong with an input, counted; ``example`` is short and says where."""

    code: str
    severity: IssueSeverity
    count: int
    example: str
    path: str = ""
    byte_offset: int | None = None
