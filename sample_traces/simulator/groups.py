"""Process groups of a job and how long a transfer over them takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator.ops import DTYPE_BYTES, Collective, PointToPoint
from simulator.timeline import Group
from simulator.topology import Groups, Topology, wire_factor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.conditions import Conditions
    from simulator.config import Job

    Array = NDArray[np.float64]


class GroupBook:
    """All process groups, their numbering and their transfer times."""

    def __init__(self, job: Job, topology: Topology, *, free: bool) -> None:
        self.job, self.topology, self.free = job, topology, free
        self.groups: list[Group] = []
        self._of: dict[str, NDArray[np.int64]] = {}
        self._at: dict[tuple[str, int], Groups] = {}
        self._hops: dict[tuple[int, int], Groups] = {}
        self._world_step = -1
        for order, (kind, members) in enumerate(topology.mesh().items()):
            index = np.full(job.ranks, -1)
            for ranks in members:
                index[ranks] = len(self.groups)
                self.groups.append(_group(job, kind, order, len(self.groups), ranks))
            self._of[kind] = index

    def at(self, kind: str, stage: int) -> Groups:
        """The groups of a dimension in a stage."""
        key = (kind, 0 if kind == "world" else stage)
        if key not in self._at:
            self._at[key] = self.topology.groups(*key)
        return self._at[key]

    def group_of(self, kind: str) -> NDArray[np.int64]:
        """Index into groups per rank."""
        return self._of[kind]

    def world_done(self, step: int) -> bool:
        """Whether this step's job-wide collective has been executed."""
        return self._world_step == step

    def mark_world(self, step: int) -> None:
        """Remembers that this step's job-wide collective has been executed."""
        self._world_step = step

    def transfer(
        self,
        op: Collective,
        groups: Groups,
        start: Array,
        given: Conditions,
        step: int,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        """When the last member arrived and when each member leaves, per rank of the job."""
        noise, members = self.job.noise, groups.members
        draws = rng.random((members.shape[0], 4))
        arrive = start[members].max(axis=1)
        payload = op.nelems * DTYPE_BYTES[op.dtype] * np.ones(len(members))
        if op.collective == "all_to_allv":
            payload = payload * given.tokens[:, step][members].max(axis=1)
        rate = self.topology.bandwidth(groups, given.nic[:, step], given.nvlink[:, step], op.collective)
        cost = self.topology.alpha_ns(groups) + 1e9 * wire_factor(op.collective, groups.size) * payload / rate
        cost = cost * (1 + noise.transfer_jitter * (2 * draws[:, 0] - 0.5).clip(0))
        cost = cost * self._trouble(groups, given, draws, rng)
        if self.free:
            cost = np.full_like(cost, 1_000.0)
        low, high = noise.end_skew
        spread = np.minimum((low + (high - low) * draws[:, 1]) * cost, noise.end_skew_cap_ns)
        shape = members.shape
        skew = spread[:, None] * rng.random(shape) + noise.end_skew_floor_ns * rng.random(shape) ** 2
        whole_arrive, whole_end = start.copy(), start.copy()
        whole_arrive[members] = arrive[:, None]
        whole_end[members] = (arrive + cost)[:, None] + skew
        return whole_arrive, whole_end

    def _trouble(self, groups: Groups, given: Conditions, draws: Array, rng: np.random.Generator) -> Array:
        """Factor on the transfer time from lossy links and moving congestion."""
        factor = np.ones(len(groups.members))
        if groups.hosts == 1:
            return factor
        for rank, (probability, low, high) in given.tail.items():
            hit = (groups.members == rank).any(axis=1) & (draws[:, 2] < probability)
            factor = np.where(hit, factor * (low + (high - low) * rng.random(len(factor))), factor)
        if given.congestion:
            probability, low, high = given.congestion
            hit = draws[:, 3] < probability
            factor = np.where(hit, factor * (low + (high - low) * draws[:, 2]), factor)
        return factor

    def hop_ns(
        self,
        op: PointToPoint,
        sender: NDArray[np.int64],
        receiver: NDArray[np.int64],
        given: Conditions,
        step: int,
        rng: np.random.Generator,
    ) -> Array:
        """Time of a transfer between neighbouring stages."""
        key = (int(sender[0]), int(receiver[0]))
        if key not in self._hops:
            self._hops[key] = self.topology.describe("pp", np.stack([sender, receiver], axis=1))
        groups = self._hops[key]
        rate = self.topology.bandwidth(groups, given.nic[:, step], given.nvlink[:, step], op.direction)
        cost = self.topology.alpha_ns(groups) + 1e9 * op.nelems * DTYPE_BYTES[op.dtype] / rate
        jitter = 1 + self.job.noise.transfer_jitter * rng.random(len(sender))
        return np.full(len(sender), 1_000.0) if self.free else cost * jitter


def _group(job: Job, kind: str, order: int, index: int, ranks: NDArray[np.int64]) -> Group:
    """Names as torch gives them.

    Groups split from the world count per rank, so that all groups of a mesh dimension share one name
    (2.13); groups made one by one by every rank are numbered over the job (2.4).
    """
    if kind == "world":
        return Group(kind, "0", "default_pg", tuple(map(int, ranks)))
    label = {"replicate": "dp_replicate", "shard": "dp_shard"}.get(kind, kind)
    name = str(order) if job.era == "2.13" else str(index)
    return Group(kind, name, f"mesh_{label}", tuple(map(int, ranks)))
