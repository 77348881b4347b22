"""The order of operations in one training step, per layout and pipeline stage."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.kernels import KernelBook
from simulator.ops import AUTOGRAD, MAIN, Begin, Collective, Copy, End, Kernel, Op, Pause, PointToPoint, Sync, Wait

if TYPE_CHECKING:
    from simulator.config import Job

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
OPTIMIZER = "Optimizer.step#AdamW.step"
ZERO_GRAD = "Optimizer.zero_grad#AdamW.zero_grad"
STEP = "ProfilerStep"


def program(job: Job, stage: int) -> list[Op]:
    """One step of one stage."""
    body = _Body(job, stage)
    inside = {
        "ddp": body.data_parallel,
        "moe": body.data_parallel,
        "fsdp": body.sharded,
        "hsdp": body.sharded,
        "dp_tp": body.data_parallel,
        "dp_tp_pp": body.pipeline,
    }[job.layout]()
    ids = Copy("HtoD", bytes=8 * job.model.tokens * job.model.micro_batches)
    tail: list[Op] = [Copy("DtoH", bytes=4, pinned=False), Sync()] if job.sync_each_step else []
    return [
        Begin(STEP),
        Begin(LOADER),
        Pause("loader"),
        End(LOADER),
        *([ids, ids] if stage in {0, job.pp - 1} else []),
        Pause("compile"),
        *inside,
        *tail,
        Copy("DtoH", bytes=4 * body.local_parameters, pinned=False, when="checkpoint"),
        Pause("checkpoint"),
        Pause("rank0"),
        Begin(ZERO_GRAD),
        End(ZERO_GRAD),
        End(STEP),
    ]


class _Body:
    def __init__(self, job: Job, stage: int) -> None:
        self.job, self.stage, self.model = job, stage, job.model
        self.book = KernelBook(job)
        self.first, self.last = stage == 0, stage == job.pp - 1
        self.layer_parameters = 12 * self.model.hidden**2 // job.tp
        spread = {"fsdp": job.ranks, "hsdp": job.shard or max(2, job.ranks // 2)}.get(job.layout, 1)
        self.local_parameters = self.layer_parameters * self.model.layers // spread
        self.shard_group = "shard" if job.layout == "hsdp" else "world"

    # -- pieces -----------------------------------------------------------------------------------

    def _sum(self, name: str, thread: str) -> list[Op]:
        """Tensor-parallel all-reduce of activations."""
        if self.job.tp == 1:
            return []
        elements = self.model.tokens * self.model.hidden
        return [Collective("tp", "allreduce", elements, "tp", name, thread=thread, wait_now=True)]

    def _route(self, name: str, thread: str) -> list[Op]:
        """Expert-parallel all-to-all of tokens."""
        if self.job.layout != "moe":
            return []
        elements = self.model.tokens * self.model.hidden
        return [Collective("ep", "all_to_allv", elements, "ep", name, thread=thread, wait_now=True)]

    def _experts(self, kernels: list[Kernel]) -> list[Op]:
        moe = self.job.layout == "moe"
        return [replace(k, experts=moe and k.bound == "compute") for k in kernels]

    def _layer_forward(self, micro: int) -> list[Op]:
        attention, feed = self.book.forward(micro)
        return [
            *attention,
            *self._sum("tpf0", MAIN),
            *self._route("ep0", MAIN),
            *self._experts(feed),
            *self._route("ep1", MAIN),
            *self._sum("tpf1", MAIN),
        ]

    def _layer_backward(self, micro: int) -> list[Op]:
        feed, attention = self.book.backward(micro)
        return [
            *self._route("ep2", AUTOGRAD),
            *self._experts(feed),
            *self._route("ep3", AUTOGRAD),
            *self._sum("tpb0", AUTOGRAD),
            *attention,
            *self._sum("tpb1", AUTOGRAD),
        ]

    def _enter(self, micro: int) -> list[Op]:
        return list(self.book.embedding(micro)) if self.model.head and self.first else []

    def _head(self, micro: int, thread: str) -> list[Op]:
        return list(self.book.head(micro, thread)) if self.model.head and self.last else []

    def _forward(self, micro: int) -> list[Op]:
        ops = self._enter(micro)
        for _ in range(self.model.layers):
            ops += self._layer_forward(micro)
        return ops + self._head(micro, MAIN)

    def _backward(self, micro: int, *, reduce: bool) -> list[Op]:
        ops = self._head(micro, AUTOGRAD)
        for layer in reversed(range(self.model.layers)):
            ops += self._layer_backward(micro)
            if reduce:
                ops += self._buckets(layer)
        return ops

    def _buckets(self, layer: int) -> list[Op]:
        group = "dp" if self.job.layout.startswith("dp_tp") else "world"
        count = self.job.buckets_per_layer
        elements = max(64, self.layer_parameters // count)
        return [Collective(group, "allreduce", elements, "dp", f"dp{layer}.{i}", thread=AUTOGRAD) for i in range(count)]

    def _update(self, *, norm: bool) -> list[Op]:
        ops: list[Op] = [Wait(f"dp{layer}.{self.job.buckets_per_layer - 1}") for layer in range(self.model.layers)]
        if self.job.layout in {"fsdp", "hsdp"}:
            ops = [Wait("ar0" if self.job.layout == "hsdp" else "rs0")]
        if norm:
            ops.append(self.book.foreach_norm(self.local_parameters))
            ops.append(Collective("world", "allreduce", 1, "world", "norm", dtype="Float", wait_now=True))
        pieces = 2 if self.model.detail == "coarse" else 4
        update = self.book.optimizer(self.local_parameters, pieces)
        return [*ops, Begin(OPTIMIZER), *update, End(OPTIMIZER)]

    # -- layouts ----------------------------------------------------------------------------------

    def data_parallel(self) -> list[Op]:
        """Replicas that sum their gradients while the backward pass goes on."""
        ops: list[Op] = []
        for micro in range(self.model.micro_batches):
            last = micro == self.model.micro_batches - 1
            ddp = "DistributedDataParallel.forward"
            marks = self.job.layout != "dp_tp"
            ops += [Begin(ddp), *self._forward(micro), End(ddp)] if marks else self._forward(micro)
            ops += self._backward(micro, reduce=last)
        return ops + self._update(norm=self.job.layout == "dp_tp")

    def sharded(self) -> list[Op]:
        """FSDP2: gather a layer ahead of its use, scatter its gradients behind."""
        layers, ops = range(self.model.layers), self._enter(0)
        ops.append(self._gather(0, "f", MAIN))
        for i in layers:
            mark = f"FSDP::pre_forward (layers.{i})"
            ops += [Begin(mark), Wait(f"agf{i}")]
            ops += [self.book.reshuffle("fsdp::split_with_sizes_copy", self.layer_parameters, thread=MAIN), End(mark)]
            if i + 1 < len(layers):
                ops.append(self._gather(i + 1, "f", MAIN))
            ops += self._layer_forward(0)
        ops += self._head(0, MAIN) + self._head(0, AUTOGRAD)
        ops.append(self._gather(len(layers) - 1, "b", AUTOGRAD))
        for i in reversed(layers):
            ops.append(Wait(f"agb{i}"))
            if i > 0:
                ops.append(self._gather(i - 1, "b", AUTOGRAD))
            ops += self._layer_backward(0)
            ops.append(self.book.reshuffle("fsdp::chunk_cat", self.layer_parameters, thread=AUTOGRAD))
            ops += self._scatter(i)
        return ops + self._update(norm=True)

    def _gather(self, layer: int, phase: str, thread: str) -> Op:
        return Collective(
            self.shard_group, "_allgather_base", self.layer_parameters, "ag", f"ag{phase}{layer}", thread=thread
        )

    def _scatter(self, layer: int) -> list[Op]:
        name = "_reduce_scatter_base"
        ops: list[Op] = [Collective(self.shard_group, name, self.layer_parameters, "rs", f"rs{layer}", thread=AUTOGRAD)]
        if self.job.layout == "hsdp":
            share = self.layer_parameters // (self.job.shard or max(2, self.job.ranks // 2))
            ops.append(
                Collective(
                    "replicate", "allreduce", share, "ar", f"ar{layer}", "Float", thread=AUTOGRAD, after=f"rs{layer}"
                )
            )
        return ops

    def pipeline(self) -> list[Op]:
        """1F1B: fill, one forward and one backward in turn, drain."""
        job, micros = self.job, self.model.micro_batches
        warm = min(job.pp - self.stage - 1, micros)
        ops: list[Op] = []
        for micro in range(warm):
            ops += self._stage_forward(micro)
        for micro in range(micros - warm):
            ops += self._stage_forward(micro + warm) + self._stage_backward(micro, last=micro == micros - 1)
        for micro in range(micros - warm, micros):
            ops += self._stage_backward(micro, last=micro == micros - 1)
        return ops + self._update(norm=True)

    def _stage_forward(self, micro: int) -> list[Op]:
        elements = self.model.tokens * self.model.hidden
        before = [] if self.first else [PointToPoint("recv", -1, elements, "rf")]
        after = [] if self.last else [PointToPoint("send", +1, elements, "sf")]
        return [*before, *self._forward(micro), *after]

    def _stage_backward(self, micro: int, *, last: bool) -> list[Op]:
        elements = self.model.tokens * self.model.hidden
        before = [] if self.last else [PointToPoint("recv", +1, elements, "rb")]
        after = [] if self.first else [PointToPoint("send", -1, elements, "sb")]
        return [*before, *self._backward(micro, reduce=last), *after]
