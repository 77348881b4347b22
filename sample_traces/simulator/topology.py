"""Which rank sits on which host, and which ranks talk to each other at what speed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.config import Job

# Bus-bandwidth factor of each collective. Source: nccl-tests, doc/PERFORMANCE.md
_ALLREDUCE_PASSES = 2.0


def wire_factor(collective: str, size: int) -> float:
    """Bytes on the wire per byte of payload of one member."""
    share = (size - 1) / size
    if collective == "allreduce":
        return _ALLREDUCE_PASSES * share
    if collective in {"send", "recv", "broadcast"}:
        return 1.0
    return share


@dataclass(frozen=True, slots=True)
class Groups:
    """All process groups of one mesh dimension inside one pipeline stage, as global ranks."""

    kind: str
    members: NDArray[np.int64]  # [group, member]
    hosts: int  # hosts that one group spans
    crosses: NDArray[np.bool_]  # which groups span more than one leaf
    local: int  # members of one group on one host

    @property
    def size(self) -> int:
        """Members of one group."""
        return int(self.members.shape[1])

    def tier(self, group: int) -> str:
        """The slowest kind of link that a group uses."""
        if self.hosts == 1:
            return "intra-node"
        return "cross-leaf" if self.crosses[group] else "inter-node"


class Topology:
    """Placement of a job: ranks fill hosts in order, hosts fill leaves in order."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.host_of = np.arange(job.ranks) // job.cluster.gpus_per_host
        self.hosts = int(self.host_of[-1]) + 1
        self.leaf_of_host = np.arange(self.hosts) // job.cluster.hosts_per_leaf
        self.stage_size = job.ranks // job.pp

    @cached_property
    def host_names(self) -> list[str]:
        """Names as a cluster would give them: a rack and a place in it."""
        return [f"gpu-r{h // 16 + 1:02d}n{h % 16 + 1:02d}" for h in range(self.hosts)]

    def mesh(self) -> dict[str, NDArray[np.int64]]:
        """Every mesh dimension as [group, member] of global ranks, in creation order."""
        job, all_ranks = self.job, np.arange(self.job.ranks)
        mesh = {"world": all_ranks[None, :]}
        if job.layout == "hsdp":
            shard = job.shard or max(2, job.ranks // 2)
            square = all_ranks.reshape(-1, shard)
            return mesh | {"replicate": square.T.copy(), "shard": square}
        if job.layout == "moe":
            size = min(job.ranks, job.cluster.gpus_per_host * 2)
            return mesh | {"ep": all_ranks.reshape(-1, size)}
        if job.layout in {"dp_tp", "dp_tp_pp"}:
            cube = all_ranks.reshape(job.pp, job.dp, job.tp)
            if job.pp > 1:
                mesh["pp"] = cube.transpose(1, 2, 0).reshape(-1, job.pp)
            mesh["dp"] = cube.transpose(0, 2, 1).reshape(-1, job.dp)
            mesh["tp"] = cube.reshape(-1, job.tp)
        return mesh

    def stage_ranks(self, stage: int) -> NDArray[np.int64]:
        """Global ranks of a pipeline stage."""
        return np.arange(stage * self.stage_size, (stage + 1) * self.stage_size)

    def groups(self, kind: str, stage: int) -> Groups:
        """The groups of one dimension that live in one stage; the world spans all stages."""
        members = self.mesh()[kind]
        if kind != "world":
            ranks = self.stage_ranks(stage)
            members = members[(ranks[0] <= members[:, 0]) & (members[:, 0] <= ranks[-1])]
        return self.describe(kind, members)

    def describe(self, kind: str, members: NDArray[np.int64]) -> Groups:
        """Spread of a set of equal groups over hosts and leaves."""
        hosts = np.unique(self.host_of[members[0]])
        leaves = self.leaf_of_host[self.host_of[members]]
        return Groups(
            kind=kind,
            members=members,
            hosts=len(hosts),
            crosses=leaves.min(axis=1) != leaves.max(axis=1),
            local=max(1, members.shape[1] // len(hosts)),
        )

    def data_index(self) -> NDArray[np.int64]:
        """The data shard that each rank reads: tensor and pipeline peers share one."""
        ranks = np.arange(self.job.ranks)
        return (ranks % self.stage_size) // self.job.tp

    def alpha_ns(self, groups: Groups) -> float:
        """Latency of one collective, independent of its size."""
        cluster = self.job.cluster
        if groups.hosts == 1:
            return cluster.alpha_intra_ns
        return cluster.alpha_inter_ns + cluster.alpha_hop_ns * max(0, groups.hosts - 2)

    def bandwidth(
        self, groups: Groups, nic: NDArray[np.float64], nvlink: NDArray[np.float64], collective: str
    ) -> NDArray[np.float64]:
        """Bus bandwidth of each group in bytes/s: a ring runs at its slowest member.

        nic and nvlink are multipliers of the nominal rate per rank. A ring through a host uses
        as many ports as it has members there.
        """
        cluster = self.job.cluster
        rate: NDArray[np.float64] = cluster.nvlink * nvlink[groups.members].min(axis=1)
        if groups.hosts > 1:
            port = cluster.nic * nic[groups.members].min(axis=1)
            port = np.where(groups.crosses, port / cluster.oversubscription, port)
            rate = np.minimum(rate, port * groups.local)
        rate *= cluster.protocol_factor.get(collective, 1.0)
        return rate
