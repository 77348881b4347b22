"""The sections of the JSON report that carry measurements: step time, collectives, network, scaling, charts.

Times are integer nanoseconds, sizes bytes, shares 0 to 1; ``None`` is "not known". Keys stand in the contract's order.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Numbers = tuple[float | None, ...]
Interval = tuple[float | None, float | None]
Points = tuple[tuple[float, float], ...]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base: frozen, built by keyword."""


class Parts(Section, frozen=True, kw_only=True):
    """The parts of a step: compute + exposed_comm + exposed_memcpy + idle = window."""

    compute_ns: int | None = None
    exposed_comm_ns: int | None = None
    exposed_wait_ns: int | None = None
    exposed_transfer_ns: int | None = None
    overlapped_comm_ns: int | None = None
    exposed_memcpy_ns: int | None = None
    idle_ns: int | None = None
    idle_input_ns: int | None = None
    idle_host_ns: int | None = None
    idle_sync_ns: int | None = None
    idle_bubble_ns: int | None = None
    idle_other_ns: int | None = None


class JobParts(Parts, frozen=True, kw_only=True):
    """The job's parts: medians, and the transfer that really blocks (exposed transfer of the critical rank)."""

    blocking_comm_ns: int | None = None


class TraceParts(Parts, frozen=True, kw_only=True):
    """The whole-trace split, first to last device activity."""

    span_ns: int | None = None


# The next two repeat the parts because a struct's own keys come after inherited ones, and here rank and step lead.
class RankParts(Section, frozen=True, kw_only=True):
    """One rank: medians over the steps used."""

    rank: int | None
    host: str | None = None
    step_ns: int | None = None
    compute_ns: int | None = None
    exposed_comm_ns: int | None = None
    exposed_wait_ns: int | None = None
    exposed_transfer_ns: int | None = None
    overlapped_comm_ns: int | None = None
    exposed_memcpy_ns: int | None = None
    idle_ns: int | None = None
    idle_input_ns: int | None = None
    idle_host_ns: int | None = None
    idle_sync_ns: int | None = None
    idle_bubble_ns: int | None = None
    idle_other_ns: int | None = None


class StepParts(Section, frozen=True, kw_only=True):
    """One step of one rank; ``label`` is normal, warm_up, checkpoint, cut, ..."""

    rank: int | None
    step: int
    step_ns: int | None = None
    window_ns: int | None = None
    label: str = "normal"
    compute_ns: int | None = None
    exposed_comm_ns: int | None = None
    exposed_wait_ns: int | None = None
    exposed_transfer_ns: int | None = None
    overlapped_comm_ns: int | None = None
    exposed_memcpy_ns: int | None = None
    idle_ns: int | None = None
    idle_input_ns: int | None = None
    idle_host_ns: int | None = None
    idle_sync_ns: int | None = None
    idle_bubble_ns: int | None = None
    idle_other_ns: int | None = None


AnyParts = Parts | RankParts | StepParts


class StepTime(Section, frozen=True, kw_only=True):
    """Where each step's time went. ``window`` says in words what a step is here."""

    window: str = ""
    steps_used: int = 0
    median_ns: int | None = None
    breakdown: JobParts = JobParts()
    trace: dict[str, TraceParts] = {}
    per_rank: tuple[RankParts, ...] = ()
    per_step: tuple[StepParts, ...] = ()


class CollectiveRow(Section, frozen=True, kw_only=True):
    """Collectives of one kind, group and size; times are medians, bandwidths as nccl-tests defines them."""

    collective: str
    process_group: str | None = None
    group_size: int | None = None
    nodes: int | None = None
    tier: str | None = None
    dtype: str | None = None
    msg_bytes: int | None = None
    count: int = 0
    matched_ratio: float | None = None
    match_method: str | None = None
    transfer_ns: int | None = None
    wait_ns: int | None = None
    algbw_bytes_per_s: float | None = None
    busbw_bytes_per_s: float | None = None
    bound: str | None = None


class TierRow(Section, frozen=True, kw_only=True):
    """The network model of one tier and collective: latency alpha, bandwidth with its interval."""

    tier: str
    collective: str
    group_size: int | None = None
    alpha_ns: int | None = None
    busbw_bytes_per_s: float | None = None
    busbw_ci: Interval | None = None
    half_size_bytes: int | None = None
    bound: str | None = None


class Oversubscription(Section, frozen=True, kw_only=True):
    """How many times less bandwidth the upper tier has, with its interval."""

    ratio: float
    ci: Interval | None = None


class Suspect(Section, frozen=True, kw_only=True):
    """A part of the network that looks slow; ``ambiguous`` when the data fit several parts equally."""

    kind: str
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    score: float | None = None
    ambiguous: bool = False


class Network(Section, frozen=True, kw_only=True):
    """What the wire does."""

    tiers: tuple[TierRow, ...] = ()
    oversubscription: Oversubscription | None = None
    suspects: tuple[Suspect, ...] = ()


class ClockRow(Section, frozen=True, kw_only=True):
    """One host's clock against the reference host."""

    host: str
    offset_ns: int | None = None
    drift_ppm: float | None = None
    residual_ns: int | None = None


class Transports(Section, frozen=True, kw_only=True):
    """Which paths the communication library chose, from its logs."""

    network: str | None = None
    by_kind: dict[str, int] = {}
    gdr: Literal["all", "some", "none", "unknown"] = "unknown"
    interfaces: dict[str, Any] = {}
    per_host: tuple[dict[str, Any], ...] = ()


class ScalingPoint(Section, frozen=True, kw_only=True):
    """One measured size; ``why`` says why it was not used."""

    gpus: int
    value: float
    used: bool = True
    why: str | None = None


class Efficiency(Section, frozen=True, kw_only=True):
    """Scaling efficiency at one size."""

    gpus: int
    ratio: float | None


class Prediction(Section, frozen=True, kw_only=True):
    """A predicted value at a size that was not measured."""

    gpus: int
    value: float | None
    interval: Interval | None = None
    confidence: float | str | None = None


class Scaling(Section, frozen=True, kw_only=True):
    """How the job scales over sizes."""

    type: Literal["weak", "strong", "unknown"] = "unknown"
    points: tuple[ScalingPoint, ...] = ()
    fit: dict[str, Any] | None = None
    efficiency: tuple[Efficiency, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    plateau: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


class WhatIf(Section, frozen=True, kw_only=True):
    """One counterfactual: step time if the scenario held; ``explained_ratio`` is the replay's own fidelity."""

    scenario: str
    step_ns: int | None = None
    speedup: float | None = None
    gpu_hours_per_day: float | None = None
    explained_ratio: float | None = None
    cost_per_day: float | None = None
    currency: str | None = None


class Lateness(Section, frozen=True, kw_only=True):
    """``late_ns[i][j]``: how much later than its first peer ``ranks[i]`` entered collectives in ``steps[j]``."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    late_ns: tuple[Numbers, ...]


class BusbwSeries(Section, frozen=True, kw_only=True):
    """Measured (msg_bytes, busbw) points of one tier and collective, the fitted line, the reference speed."""

    tier: str
    collective: str
    points: Points
    fit: Points | None = None
    reference_bytes_per_s: float | None = None


class WaitRow(Section, frozen=True, kw_only=True):
    """Time per step a rank waited for others and others waited for it; the share of collectives it entered last."""

    rank: int
    host: str | None = None
    wait_ns: int | None = None
    caused_wait_ns: int | None = None
    last_ratio: float | None = None


class Charts(Section, frozen=True, kw_only=True):
    """Data that only pictures and tables of the reports need. ``nodes``: rows as a list of objects, unit in the key."""

    lateness: Lateness | None = None
    busbw: tuple[BusbwSeries, ...] = ()
    who_waits: tuple[WaitRow, ...] = ()
    nodes: Any = None
