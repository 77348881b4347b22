"""What a comparison says, as it stands in the JSON: times in ns per step (or per unit of work), shares 0 to 1."""

from __future__ import annotations

from typing import Literal

import msgspec

Change = Literal["regression", "improvement", "equivalent", "inconclusive"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One measured thing on both sides. ``change_ns`` is per step; ``interval_ns`` its 95 % interval.

    ``changed``: the p-value, corrected for having looked at many things (Holm), is below 5 %, and the change is not tiny.
    """

    base_ns: float | None
    new_ns: float | None
    change_ns: float | None
    step_ratio: float | None
    """Change as a share of the base's step."""
    interval_ns: tuple[float, float] | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    changed: bool = False


class PartItem(Item, frozen=True, kw_only=True):
    """A part of the step: the median rank's, or with ``view`` critical the one of the rank that nobody waits for."""

    part: str
    view: Literal["median", "critical"] = "median"


class RankItem(Item, frozen=True, kw_only=True):
    """Work that waits for nobody on one rank, beyond that of the reference rank (a quarter of the ranks have less)."""

    rank: int
    host: str | None = None
    part: str | None = None
    """The part of that work which changed most."""


class HostItem(Item, frozen=True, kw_only=True):
    """The same for all ranks of a host."""

    host: str
    ranks: tuple[int, ...] = ()


class KernelItem(Item, frozen=True, kw_only=True):
    """One kernel signature: the same name, grid and block. ``ratio`` is new over base minus one."""

    name: str
    signature: str
    state: Literal["both", "appeared", "vanished"] = "both"
    ratio: float | None = None
    count_base: float | None = None
    count_new: float | None = None
    rank: int | None = None
    """Set where the comparison is of one rank only."""


class CollectiveItem(Item, frozen=True, kw_only=True):
    """One kind and size of collective: transfer of one call. ``change_ns`` is per call times the calls of a step."""

    collective: str
    group_size: int | None = None
    tier: str | None = None
    msg_bytes: int | None = None
    state: Literal["both", "appeared", "vanished"] = "both"
    ratio: float | None = None
    calls_base: float | None = None
    calls_new: float | None = None
    wait_base_ns: float | None = None
    wait_new_ns: float | None = None


class TransportItem(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the connections that use one transport."""

    transport: str
    base_ratio: float
    new_ratio: float
    changed: bool


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, version or place that differs."""

    what: str
    base: str
    new: str


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a side."""

    name: str
    store: str
    step_ns: float
    steps_used: int
    error_ratio: float
    """Uncertainty of its median step from its own steps."""
    world_size: int | None = None
    work_per_step: float | None = None
    start_ns: int | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. Ratios are of the base's step time; positive is slower."""

    change: Change
    text: str
    effect_ratio: float
    interval: tuple[float, float]
    equivalence_interval: tuple[float, float]
    margin_ratio: float
    bound_ratio: float
    """A change beyond this, up or down, is ruled out."""
    p_value: float
    smallest_effect_ratio: float
    method: str
    between_run_sd_ratio: float
    base_ns: float
    new_ns: float
    unit: str
    measured_from: str
    detail: str


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """Where a confirmed change comes from; ``part`` None where no part changed beyond chance."""

    part: str | None = None
    change_ns: float | None = None
    share: float | None = None
    """Of the step's change."""
    also: tuple[str, ...] = ()
    """Other parts with at least a fifth of the change."""
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    others_wait: bool = False
    text: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a comparison of two sides found."""

    base: tuple[Side, ...]
    new: tuple[Side, ...]
    outcome: Outcome
    attribution: Attribution
    parts: tuple[PartItem, ...] = ()
    ranks: tuple[RankItem, ...] = ()
    hosts: tuple[HostItem, ...] = ()
    kernels: tuple[KernelItem, ...] = ()
    collectives: tuple[CollectiveItem, ...] = ()
    transports: tuple[TransportItem, ...] = ()
    configuration: tuple[Setting, ...] = ()
    not_compared: tuple[str, ...] = ()
