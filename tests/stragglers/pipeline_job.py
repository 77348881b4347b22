"""A pipeline-parallel job with known faults, written the way single steps are put together into one trace a rank.

Every step starts at the same time, launches are sorted by time and renumbered: nothing but the times says which step an
activity belongs to. 1F1B with blocking sends and receives, gradients reduced over the replicas, a norm over all ranks.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

Work = Callable[[int, int, int, int], float]
"""(step, stage, replica, micro-batch) to the duration of a forward in microseconds."""

_ZERO_US = 1_000_000.0
_LINK_US = 400.0
_COMPUTE, _DATA = 7, 13
_STREAMS = {("send", "f"): 23, ("recv", "f"): 22, ("send", "b"): 21, ("recv", "b"): 20}


class Job(NamedTuple):
    """Shape of the job and its work; rank = stage * replicas + replica."""

    work: Work
    stages: int = 4
    replicas: int = 2
    batches: int = 4
    steps: int = 8
    seed: int = 1


class Event(NamedTuple):
    """One activity of one step, microseconds from the step's zero."""

    name: str
    stream: int
    start: float
    end: float
    args: dict[str, object]


def simulate(job: Job) -> dict[int, list[list[Event]]]:
    """Activities by rank and step."""
    noise = random.Random(job.seed)  # noqa: S311 - no secret
    events: dict[int, list[list[Event]]] = {rank: [] for rank in range(job.stages * job.replicas)}
    for step in range(job.steps):
        for rank, done in _run(job, step, noise).items():
            events[rank].append(done)
    return events


def write_job(job: Job, folder: Path) -> None:
    """One file a rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, steps in simulate(job).items():
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(_trace(job, rank, steps)).encode()))


def _program(job: Job, stage: int) -> list[tuple[object, ...]]:
    """1F1B of one stage: compute and (batched) transfers in order. A transfer is (what, direction, micro-batch)."""
    first, last = stage == 0, stage == job.stages - 1
    warm = min(job.stages - stage - 1, job.batches)
    steady = job.batches - warm
    items: list[tuple[object, ...]] = []

    def transfers(*wanted: tuple[str, str, int]) -> None:
        real = [
            one
            for one in wanted
            if not (
                (first and one[:2] in (("recv", "f"), ("send", "b")))
                or (last and one[:2] in (("send", "f"), ("recv", "b")))
            )
        ]
        if real:
            items.append(("comm", real))

    for batch in range(warm):
        transfers(("recv", "f", batch))
        items.append(("f", batch))
        transfers(("send", "f", batch))
    if steady:
        transfers(("recv", "f", warm))
    for place in range(steady):
        items.append(("f", warm + place))
        transfers(("send", "f", warm + place), ("recv", "b", place))
        items.append(("b", place))
        if place == steady - 1:
            transfers(("send", "b", place))
        else:
            transfers(("send", "b", place), ("recv", "f", warm + place + 1))
    for batch in range(steady, job.batches):
        transfers(("recv", "b", batch))
        items.append(("b", batch))
        transfers(("send", "b", batch))
    return [("gather",), *items, ("scatter",), ("norm",), ("adam",)]


def _run(job: Job, step: int, noise: random.Random) -> dict[int, list[Event]]:
    """All ranks through one step: each runs its program, blocked until its peers have come."""
    ranks = [(stage, replica) for stage in range(job.stages) for replica in range(job.replicas)]
    program = {one: _program(job, one[0]) for one in ranks}
    clock = {one: noise.uniform(0, 300) + (5000 if one[0] == 0 else 0) for one in ranks}
    place = dict.fromkeys(ranks, 0)
    arrived: dict[tuple[object, ...], dict[tuple[int, int], float]] = {}
    done: dict[tuple[int, int], list[Event]] = {one: [] for one in ranks}
    begun: set[tuple[tuple[int, int], int]] = set()
    moved = True
    while moved:
        moved = False
        for one in ranks:
            while place[one] < len(program[one]):
                item = program[one][place[one]]
                if (one, place[one]) not in begun:
                    begun.add((one, place[one]))
                    clock[one] += _pause(item, noise)
                    for key in _keys(item, one):
                        arrived.setdefault(key, {})[one] = clock[one]
                end = _end(job, item, one, step, clock[one], arrived, noise)
                if end is None:
                    break
                done[one] += _events(job, item, one, clock[one], end)
                clock[one] = max(end)
                place[one] += 1
                moved = True
    return {stage * job.replicas + replica: done[stage, replica] for stage, replica in ranks}


def _pause(item: tuple[object, ...], noise: random.Random) -> float:
    """What the host takes before it: microseconds, but milliseconds where the step changes its phase."""
    if item[0] in ("comm", "b", "adam", "norm"):
        return noise.uniform(0, 9)
    return noise.uniform(0, 9) if item[0] == "f" and item[1] else noise.uniform(600, 4000)


def _keys(item: tuple[object, ...], one: tuple[int, int]) -> list[tuple[object, ...]]:
    stage, replica = one
    if item[0] == "comm":
        return [_link(what, stage, replica) for what in item[1]]  # type: ignore[attr-defined]
    return [("norm",)] if item[0] == "norm" else [(item[0], stage)] if item[0] in ("gather", "scatter") else []


def _link(what: tuple[str, str, int], stage: int, replica: int) -> tuple[object, ...]:
    """The link from stage to stage that both ends name alike."""
    side, direction, batch = what
    ahead = direction == "f"
    source = stage if side == "send" else (stage - 1 if ahead else stage + 1)
    return (direction, source, replica, batch)


def _end(
    job: Job, item: tuple[object, ...], one: tuple[int, int], step: int, now: float, arrived: dict[tuple[object, ...], dict[tuple[int, int], float]],
    noise: random.Random,
) -> list[float] | None:  # fmt: skip
    """Ends of the item's activities, None while a peer is missing."""
    stage, replica = one
    if item[0] in ("f", "b"):
        forward = job.work(step, stage, replica, int(item[1]))  # type: ignore[call-overload]
        return [now + forward * (1.0 if item[0] == "f" else 2.1) * noise.gauss(1, 0.004)]
    if item[0] == "adam":
        return [now + 40_000 * noise.gauss(1, 0.004)]
    needed = 2 if item[0] == "comm" else job.replicas if item[0] in ("gather", "scatter") else job.stages * job.replicas
    ends = []
    for key in _keys(item, one):
        seen = arrived.get(key, {})
        alone = item[0] == "comm" and len(item[1]) == 1 and item[1][0][0] == "send"  # type: ignore[arg-type,index]
        if len(seen) < needed and not alone:
            return None
        length = (
            _LINK_US if item[0] == "comm" else {"gather": 25_000.0, "scatter": 52_000.0, "norm": 14_000.0}[str(item[0])]
        )
        ends.append((now if alone else max(seen.values())) + length + noise.uniform(0, 5))
    return [max(ends)] * len(ends)


def _events(job: Job, item: tuple[object, ...], one: tuple[int, int], start: float, ends: list[float]) -> list[Event]:
    stage, replica = one
    pairs = [one_stage * job.replicas + replica for one_stage in range(job.stages)]
    replicas = [stage * job.replicas + other for other in range(job.replicas)]
    if item[0] == "comm":
        result = []
        for (side, direction, _), end in zip(item[1], ends, strict=True):  # type: ignore[call-overload]
            far = stage + (1 if (side == "send") == (direction == "f") else -1)
            args = _comm(side, f"pp_{replica}", pairs, 4_194_304) | {
                "Src Rank": stage if side == "send" else far,
                "Dst Rank": far if side == "send" else stage,
            }
            result.append(
                Event(
                    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
                    _STREAMS[side, direction],
                    start,
                    end,
                    args,
                )
            )
        return result
    if item[0] in ("gather", "scatter"):
        name, what = {
            "gather": ("AllGather_RING_LL", "_allgather_base"),
            "scatter": ("ReduceScatter_Sum_bf16_RING_LL", "_reduce_scatter_base"),
        }[str(item[0])]
        kernel = f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)"
        return [Event(kernel, _DATA, start, ends[0], _comm(what, f"dp_{stage}", replicas, 16_777_216))]
    name = {
        "f": "forward_gemm_kernel(float)",
        "b": "backward_gemm_kernel(float)",
        "norm": "l2norm_kernel",
        "adam": "adam_kernel",
    }[str(item[0])]
    return [Event(name, _COMPUTE, start, ends[0], {"grid": [132, 1, 1], "block": [256, 1, 1]})]


def _comm(what: str, group: str, ranks: list[int], elements: int) -> dict[str, object]:
    return {
        "Collective name": what, "In msg nelems": elements, "Out msg nelems": elements, "dtype": "BFloat16", "Group size": len(ranks),
        "Process Group Name": group, "Process Group Description": group, "Process Group Ranks": str(ranks),
    }  # fmt: skip


def _trace(job: Job, rank: int, steps: list[list[Event]]) -> dict[str, object]:
    events: list[dict[str, object]] = []
    for step, done in enumerate(steps):
        first, last = min(one.start for one in done), max(one.end for one in done)
        window = {"ph": "X", "name": f"ProfilerStep#{7 + step}", "args": {}}
        events.append(
            window
            | {
                "cat": "user_annotation",
                "pid": 7000,
                "tid": 7000,
                "ts": _ZERO_US + first - 50,
                "dur": last - first + 40,
            }
        )
    everything = sorted((one for done in steps for one in done), key=lambda one: one.start)
    seen: dict[object, int] = {}
    for number, one in enumerate(everything, start=101):
        args = one.args | {
            "External id": number,
            "correlation": number,
            "device": 0,
            "context": 1,
            "stream": one.stream,
        }
        if "Collective name" in one.args:
            group = one.args["Process Group Name"]
            seen[group] = seen.get(group, 0) + 1
            args["Seq"] = seen[group]
        start = _ZERO_US + one.start
        launch = {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 7000,
            "tid": 7000,
            "ts": start - 20,
            "dur": 6,
        }
        events.append(launch | {"args": {"External id": number, "correlation": number}})
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": one.name,
                "pid": 0,
                "tid": one.stream,
                "ts": start,
                "dur": one.end - one.start,
                "args": args,
            }
        )
    return {
        "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": job.stages * job.replicas},
        "deviceProperties": [{"id": 0, "name": "NVIDIA H800"}], "traceEvents": events,
    }  # fmt: skip
