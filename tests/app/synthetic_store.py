"""A synthetic run store of many ranks, written straight into the tables: for the dashboard's benchmark and its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from diagnose.store.schema import SCHEMA_VERSION
from diagnose.store.writer import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MS = 1_000_000
START_NS = 1_773_306_022_000_000_000
STEP_NS = 400 * MS
RANKS_PER_HOST = 8
KERNELS = (
    *(
        f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align{number}>(Params)"
        for number in range(24)
    ),
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "Memcpy HtoD (Pinned -> Device)",
)
COLLECTIVES_PER_STEP = 12


def write_store(
    path: Path, *, ranks: int, steps: int, slow_rank: int | None = None, name: str = "synthetic", extra: Callable[[StoreWriter], object] = lambda _: None,
    slower_by: float = 0.15, collectives: int = COLLECTIVES_PER_STEP,
) -> Path:  # fmt: skip
    """A job of ``ranks`` data-parallel ranks; ``slow_rank`` computes longer and all others wait for it."""
    random = np.random.default_rng(7)
    rank, step = (axis.ravel() for axis in np.meshgrid(np.arange(ranks), np.arange(steps), indexing="ij"))
    compute = (250 * MS * random.normal(1, 0.004, rank.size)).astype(np.int64)
    if slow_rank is not None:
        compute[rank == slow_rank] = (compute[rank == slow_rank] * (1 + slower_by)).astype(np.int64)
    slowest = compute.reshape(ranks, steps).max(axis=0)[step]
    wait, transfer = slowest - compute, np.full(rank.size, 45 * MS)
    idle_input, idle_host = np.full(rank.size, 4 * MS), np.full(rank.size, 6 * MS)
    window = compute + wait + transfer + idle_input + idle_host
    start = START_NS + step * STEP_NS
    with StoreWriter(path, force=True) as writer:
        writer.insert("run", _run(name, ranks, steps))
        writer.insert("host", _hosts(ranks))
        writer.insert("rank", _ranks(ranks, steps))
        writer.insert("source", _sources(ranks))
        writer.insert("step", pl.DataFrame({
            "rank": rank, "step": step, "host_start_ns": start, "host_end_ns": start + window, "start_ns": start, "end_ns": start + window,
            "window_ns": window, "step_ns": window, "label": np.where(step == 0, "warm_up", "normal"), "activities": 600,
        }))  # fmt: skip
        writer.insert("breakdown", pl.DataFrame({
            "rank": rank, "step": step, "span_ns": window, "compute_ns": compute, "exposed_comm_ns": wait + transfer, "exposed_wait_ns": wait,
            "exposed_transfer_ns": transfer, "overlapped_comm_ns": 60 * MS, "exposed_memcpy_ns": 0, "idle_ns": idle_input + idle_host,
            "idle_input_ns": idle_input, "idle_host_ns": idle_host, "idle_sync_ns": 0, "idle_bubble_ns": 0, "idle_other_ns": 0,
            "exposed_transfer_max_ns": transfer, "blocking_transfer_ns": transfer, "idle_gc_ns": 0, "idle_allocator_ns": 0, "local_work_ns": compute + idle_input + idle_host,
            "memcpy_ns": 1 * MS, "comm_ns": wait + transfer + 60 * MS,
        }))  # fmt: skip
        writer.insert("kernel_stat", _kernel_stats(rank, step, compute))
        writer.insert("host_gap", pl.DataFrame({
            "rank": rank, "step": step, "start_ns": start + compute, "dur_ns": idle_input, "cause": "input",
        }))  # fmt: skip
        _collectives(writer, ranks, steps, collectives, wait.reshape(ranks, steps), random)
        extra(writer)
        return writer.publish()


def write_empty(path: Path, *, name: str, extra: Callable[[StoreWriter], object] = lambda _: None) -> Path:
    """A run of which nothing is known but what ``extra`` adds."""
    with StoreWriter(path, force=True) as writer:
        writer.insert(
            "run",
            pl.DataFrame(
                {
                    "name": [name],
                    "tool_version": ["test"],
                    "schema_version": [SCHEMA_VERSION],
                    "step_source": ["none"],
                    "config": ["{}"],
                }
            ),
        )
        extra(writer)
        return writer.publish()


def add_logs(writer: StoreWriter, *, hosts: int = 2, per_host: int = 8) -> None:
    """Communication logs of all ranks: a ring over the hosts, GPUDirect RDMA missing on the last one, a retry error."""
    ranks = range(hosts * per_host)
    place = [(f"logs/nccl.{rank}.log", _host(rank), 1000 + rank, rank) for rank in ranks]
    writer.insert("source", pl.DataFrame({
        "path": [path for path, *_ in place], "kind": "nccl-log", "bytes": 9_000, "host": [host for _, host, *_ in place], "rows": 40, "status": "ok",
    }))  # fmt: skip
    common = {"path": [row[0] for row in place], "host": [row[1] for row in place], "pid": [row[2] for row in place]}
    writer.insert(
        "comm_process",
        pl.DataFrame(
            {
                **common,
                "rank": list(ranks),
                "library": "nccl",
                "version": "2.27.3",
                "network": "IB",
                "lines": 40,
                "first_line": 1,
            }
        ),
    )
    writer.insert("communicator", pl.DataFrame({
        **common, "line": 10, "comm": "0x1", "comm_id": "0xc0ffee", "comm_rank": list(ranks), "nranks": len(place), "nnodes": hosts, "local_ranks": per_host,
        "cuda_device": [rank % per_host for rank in ranks], "state": "complete", "coll_channels": 2,
    }))  # fmt: skip
    links = []
    for path, host, pid, rank in place:
        target = (rank + 1) % len(place)
        outside = target // per_host != rank // per_host
        last = outside and rank // per_host == hosts - 1
        links.append({
            "path": path, "line": 20, "host": host, "pid": pid, "rank": rank, "comm": "0x1", "channel": 0, "connection": 0, "source": rank, "target": target,
            "direction": "send" if outside else None, "kind": ("NET/IB" if last else "NET/IB/GDRDMA") if outside else "P2P/IPC", "family": "NET" if outside else "P2P",
            "network": "IB" if outside else None, "nic": 0 if outside else None, "gdr": (not last) if outside else None, "lines": 1,
        })  # fmt: skip
    writer.insert("channel", pl.DataFrame(links, infer_schema_length=None))
    writer.insert(
        "comm_net",
        pl.DataFrame(
            {
                **common,
                "line": 5,
                "kind": "ib",
                "device_index": 0,
                "name": "mlx5_0",
                "port": 1,
                "link_layer": "IB",
                "bytes_per_s": 50e9,
                "gdr_capable": True,
            }
        ),
    )
    writer.insert(
        "comm_env", pl.DataFrame({**common, "line": 3, "name": "NCCL_DEBUG", "value": "INFO", "origin": "environment"})
    )
    writer.insert("comm_event", pl.DataFrame({
        "path": ["logs/nccl.3.log"], "line": [90], "last_line": [90], "host": [_host(3)], "pid": [1003], "code": ["ib_completion"], "role": ["cause"], "level": ["WARN"],
        "message": ["NET/IB: Got completion from peer 10.0.0.7 with status=12 *not* `healthy` <b>"], "count": [4],
    }))  # fmt: skip


def add_metrics(writer: StoreWriter, *, hosts: int = 2) -> None:
    """Node metrics of the run's window: one host clocks lower; a kernel log event; a training log."""
    rows = []
    for host in (_host(number * RANKS_PER_HOST) for number in range(hosts)):
        for second in range(30):
            t_ns = START_NS + (second - 5) * 1_000_000_000 // 5
            low = 200e6 if host == _host(0) else 0.0
            rows.append(
                {
                    "metric": "gpu_sm_clock_hz",
                    "unit": "Hz",
                    "kind": "gauge",
                    "host": host,
                    "entity": "gpu:0",
                    "t_ns": t_ns,
                    "value": 1.98e9 - low,
                }
            )
            rows.append(
                {
                    "metric": "nic_rx_bytes",
                    "unit": "bytes",
                    "kind": "counter",
                    "host": host,
                    "entity": "nic:mlx5_0/1",
                    "t_ns": t_ns,
                    "value": 1e9 * second,
                }
            )
    writer.insert(
        "metric_sample",
        pl.DataFrame(rows).with_columns(
            quality=pl.lit("ok"), source=pl.lit("metrics.prom"), format=pl.lit("prometheus-text")
        ),
    )
    writer.insert("node_event", pl.DataFrame({
        "host": [_host(0)], "t_ns": [START_NS + MS], "kind": ["xid"], "device": ["gpu:0"], "code": [79], "text": ["NVRM: Xid 79, GPU has fallen off the bus"], "source": ["dmesg:12"],
    }))  # fmt: skip
    steps = 200
    writer.insert("training_log", pl.DataFrame({
        "step": list(range(steps)), "step_time_ns": [STEP_NS] * steps, "loss": [4.0 - number / 100 for number in range(steps)], "throughput": [1200.0] * steps,
        "throughput_unit": "tokens/s", "restart": 0, "source": "train.log", "rank": 0,
    }))  # fmt: skip


def _run(name: str, ranks: int, steps: int) -> pl.DataFrame:
    return pl.DataFrame({
        "name": [name], "tool_version": ["benchmark"], "schema_version": [SCHEMA_VERSION], "world_size": [ranks], "backend": ["nccl"],
        "device_names": [["NVIDIA H100 80GB HBM3"]], "start_ns": [START_NS], "end_ns": [START_NS + steps * STEP_NS],
        "step_source": ["ProfilerStep"], "config": ["{}"],
    })  # fmt: skip


def _host(rank: int) -> str:
    return f"gpu-pod{rank // 256:02d}-node{rank // RANKS_PER_HOST:04d}"


def _hosts(ranks: int) -> pl.DataFrame:
    groups = [list(range(first, min(first + RANKS_PER_HOST, ranks))) for first in range(0, ranks, RANKS_PER_HOST)]
    names = [_host(group[0]) for group in groups]
    return pl.DataFrame({"host": names, "full_name": names, "ranks": groups, "inferred": False})


def _ranks(ranks: int, steps: int) -> pl.DataFrame:
    numbers = list(range(ranks))
    return pl.DataFrame({
        "rank": numbers, "local_rank": [number % RANKS_PER_HOST for number in numbers], "host": [_host(number) for number in numbers],
        "device": [number % RANKS_PER_HOST for number in numbers], "device_name": "NVIDIA H100 80GB HBM3",
        "trace": [f"traces/rank{number}.json.gz" for number in numbers], "role": 0, "start_ns": START_NS, "end_ns": START_NS + steps * STEP_NS,
        "has_device_work": True,
    })  # fmt: skip


def _sources(ranks: int) -> pl.DataFrame:
    numbers = list(range(ranks))
    return pl.DataFrame({
        "path": [f"traces/rank{number}.json.gz" for number in numbers], "kind": "kineto", "bytes": 40_000_000, "rank": numbers,
        "rank_from": "distributedInfo", "host": [_host(number) for number in numbers], "rows": 600 * 20, "status": "ok",
    })  # fmt: skip


def _kernel_stats(rank: np.ndarray, step: np.ndarray, compute: np.ndarray) -> pl.DataFrame:
    share = 1 / len(KERNELS)
    kinds = ["comm" if "nccl" in name else "memcpy" if "Memcpy" in name else "compute" for name in KERNELS]
    return pl.concat([
        pl.DataFrame({
            "rank": rank, "step": step, "class": kinds[number], "name": name, "signature": 1000 + number, "count": 20,
            "total_ns": (compute * share).astype(np.int64), "median_ns": (compute * share / 20).astype(np.int64),
        })
        for number, name in enumerate(KERNELS)
    ])  # fmt: skip


def _collectives(
    writer: StoreWriter, ranks: int, steps: int, per_step: int, wait: np.ndarray, random: np.random.Generator
) -> None:
    """Every rank takes part in every collective; the waits of a step are spread over its collectives."""
    writer.insert("process_group", pl.DataFrame({
        "group_id": [1], "name": ["0"], "description": ["default_pg"], "ranks": [list(range(ranks))], "size": [ranks],
        "nodes": [-(-ranks // RANKS_PER_HOST)], "tier": ["inter-node"], "known_from": ["pg_config"],
    }))  # fmt: skip
    count = steps * per_step
    instance = np.arange(count)
    in_step = instance // per_step
    size = 4_000_000 * 2 ** (instance % 6)
    transfer = (20_000 + size / 180 * random.normal(1, 0.03, count)).astype(np.int64)
    waits = wait[:, in_step] // per_step
    algbw = size / transfer * 1e9
    writer.insert("collective", pl.DataFrame({
        "instance": instance, "group_id": 1, "collective": "all_reduce", "seq": instance, "step": in_step, "dtype": "BFloat16", "msg_bytes": size,
        "members": ranks, "seen": ranks, "match_method": "seq", "transfer_ns": transfer, "wait_ns": waits.sum(axis=0),
        "start_skew_ns": waits.max(axis=0), "end_skew_ns": 10_000, "last_rank": waits.argmin(axis=0), "algbw_bytes_per_s": algbw,
        "busbw_bytes_per_s": algbw * 2 * (ranks - 1) / ranks,
    }))  # fmt: skip
    end = START_NS + in_step * STEP_NS + 300 * MS
    duration = waits + transfer
    writer.insert("collective_rank", pl.DataFrame({
        "instance": np.tile(instance, ranks), "rank": np.repeat(np.arange(ranks), count), "step": np.tile(in_step, ranks),
        "call": np.tile(instance, ranks), "start_ns": (end - duration).ravel(), "dur_ns": duration.ravel(), "wait_ns": waits.ravel(),
        "exposed_wait_ns": waits.ravel(), "exposed_transfer_ns": np.tile(transfer, ranks),
    }))  # fmt: skip
