"""What PyTorch says about a collective: on the host record and, copied from it, on the kernel."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.kineto_text import shown
from simulator.ops import Collective, PointToPoint

if TYPE_CHECKING:
    from simulator.timeline import Group, Slot, Timeline

_SHORT = {"BFloat16": "bf16", "Float": "f32"}


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the events around one collective."""

    cpu_op: str
    annotation: str
    kernel: str
    channels: int


class CollectiveArgs:
    """Builds the arguments for the communication of one rank."""

    def __init__(self, timeline: Timeline, rank: int) -> None:
        self.timeline, self.job, self.rank = timeline, timeline.job, rank
        self.modern = self.job.era == "2.13"
        wanted = self.job.sequence_numbers
        self.with_sequence = self.modern if wanted is None else wanted

    def names(self, op: Collective | PointToPoint) -> Names:
        """Event names; the algorithm in a kernel's name is that of its compiled specialisation."""
        tail = "(ncclDevKernelArgsStorage<4096ul>)" if self.modern else "(ncclDevComm*, unsigned long, ncclWork*)"
        if isinstance(op, PointToPoint):
            cpu = "c10d::send" if op.direction == "send" else "c10d::recv_"
            other = self._peer(op)
            pair = f"{self.rank}->{other}" if op.direction == "send" else f"{self.rank}<-{other}"
            return Names(cpu, f"nccl:{op.direction} {pair}", f"ncclDevKernel_SendRecv{tail}", 2)
        kind = _SHORT[op.dtype]
        return {
            "allreduce": Names(
                "c10d::allreduce_", "nccl:all_reduce", f"ncclDevKernel_AllReduce_Sum_{kind}_RING_LL{tail}", 24
            ),
            "_allgather_base": Names(
                "c10d::_allgather_base_", "nccl:_all_gather_base", f"ncclDevKernel_AllGather_RING_LL{tail}", 24
            ),
            "_reduce_scatter_base": Names(
                "c10d::_reduce_scatter_base_",
                "nccl:_reduce_scatter_base",
                f"ncclDevKernel_ReduceScatter_Sum_{kind}_RING_LL{tail}",
                24,
            ),
            "all_to_allv": Names("c10d::alltoall_base_", "nccl:all_to_all", f"ncclDevKernel_SendRecv{tail}", 16),
        }[op.collective]

    def _peer(self, op: PointToPoint) -> int:
        return self.rank + op.peer * self.timeline.topology.stage_size

    def _sizes(self, slot: Slot, op: Collective | PointToPoint, size: int, i: int) -> tuple[int, int, str, str]:
        """Elements in and out, split sizes in and out."""
        if isinstance(op, PointToPoint):
            return op.nelems, op.nelems, "[]", "[]"
        if op.collective == "_allgather_base":
            return op.nelems // size, op.nelems, "[]", "[]"
        if op.collective == "_reduce_scatter_base":
            return op.nelems, op.nelems // size, "[]", "[]"
        if op.collective != "all_to_allv" or slot.work is None or slot.group is None:
            return op.nelems, op.nelems, "[]", "[]"
        hidden, rows = self.job.model.hidden, self.job.model.tokens
        members = self.timeline.groups[int(slot.group[i])].ranks
        share = self.timeline.conditions.tokens[list(members), slot.step]
        share = share / share.sum()
        sent = [round(rows * s) for s in share]
        received = [round(rows * share[members.index(self.rank)])] * size
        return sum(sent) * hidden, sum(received) * hidden, shown(sent), shown(received)

    def of(self, slot: Slot, op: Collective | PointToPoint, i: int) -> tuple[str, str]:
        """Arguments of record_param_comms and of the kernel."""
        if slot.group is None or slot.seq is None:
            raise ValueError(f"{op} belongs to no group")
        group = self.timeline.groups[int(slot.group[i])]
        size, ranks = len(group.ranks), shown(group.ranks)
        inside, outside, split_in, split_out = self._sizes(slot, op, size, i)
        name = op.direction if isinstance(op, PointToPoint) else op.collective
        stride = group.ranks[1] - group.ranks[0] if size > 1 else 1
        common = f'"Collective name": "{name}", "In msg nelems": {inside}, "Out msg nelems": {outside}'
        which = f'"Group size": {size}, "dtype": "{op.dtype}"'
        splits = f'"In split size": "{split_in}", "Out split size": "{split_out}"'
        where = (
            f'"Process Group Name": "{group.name}", "Process Group Description": "{group.description}", '
            f'"Process Group Ranks": "{ranks}"'
        )
        start = f'"Global rank start": {group.ranks[0]}, "Global rank stride": {stride}'
        extra = self._ends(op) + (self._sequence(slot, op, group, i) if self.with_sequence else "")
        record = f"{common}, {which}, {splits}, {start}, {where}, "
        if self.modern:
            own = self._peer(op) if isinstance(op, PointToPoint) else self.rank
            record += f'"Rank": {group.ranks.index(own)}, "Is asynchronized op": true, '
        record += f"{extra[2:]}, " if extra else ""
        return record, f"{common}, {which}, {splits}, {where}{extra}"

    def _ends(self, op: Collective | PointToPoint) -> str:
        """The other side of a point-to-point call, as a rank of the job."""
        if not isinstance(op, PointToPoint) or not self.modern:
            return ""
        key = "Dst Rank" if op.direction == "send" else "Src Rank"
        return f', "{key}": {self._peer(op)}'

    def _sequence(self, slot: Slot, op: Collective | PointToPoint, group: Group, i: int) -> str:
        """The group's counter; point-to-point calls have a counter of their own on every rank."""
        seq = int(slot.seq[i])  # type: ignore[index]
        stride = group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 1
        text = f"{group.name}/{seq}/{isinstance(op, PointToPoint)}/{group.ranks[0]}/{stride}/{len(group.ranks)}"
        ident = zlib.crc32(text.encode()) << 32 | zlib.crc32(text[::-1].encode())
        return f', "Seq": {seq}, "Comms Id": {ident}'
