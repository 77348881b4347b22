"""Cost of the analysis across ranks: synthetic tables as the map step would leave them, up to 16 384 ranks.

Usage: python benchmarks/cross.py [--ranks 16384] [--steps 20] [--instances 60] [--profile]

Hosts of 8 ranks; every rank is in the job's group, one of the shard groups and one of the replica groups across hosts,
which share the collectives of a step. One rank is 10 % slow. Prints time by part, peak memory, and who was found.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from diagnose.config import Config
from diagnose.ingest.base import Identity
from diagnose.pipeline.cross import analyse_across
from diagnose.pipeline.identify import Member
from diagnose.pipeline.result import Group, SourceResult, TraceInfo
from diagnose.store.writer import StoreWriter

PER_HOST = 8
STEP_NS = 400_000_000
GAP_NS = 3_000_000
EPOCH_NS = 1_773_306_000 * 10**9
KINDS = (
    ("shard", "all_gather", 64_000_000),
    ("shard", "reduce_scatter", 64_000_000),
    ("replicate", "all_reduce", 2_000_000),
)


def groups(ranks: int) -> dict[str, np.ndarray]:
    """[group, member] of the dimensions."""
    shard = min(512, ranks // 2)
    square = np.arange(ranks).reshape(-1, shard)
    return {"world": np.arange(ranks)[None, :], "shard": square, "replicate": square.T.copy()}


def write_tables(folder: Path, ranks: int, steps: int, instances: int) -> None:
    """Tables of all ranks as Parquet files, one comm_call file a step."""
    rng = np.random.default_rng(1)
    mesh = groups(ranks)
    offset = np.repeat(rng.normal(0, 2e6, -(-ranks // PER_HOST)), PER_HOST)[:ranks]
    pace = np.exp(rng.normal(0, 0.01, ranks))
    pace[ranks // 3] *= 1.10
    for step in range(steps):
        table = _step_calls(step, instances, mesh, offset, pace, rng)
        table.write_parquet(folder / f"comm_call-{step:03d}.parquet")
        _step_tables(folder, step, table)


def _step_calls(
    step: int,
    instances: int,
    mesh: dict[str, np.ndarray],
    offset: np.ndarray,
    pace: np.ndarray,
    rng: np.random.Generator,
) -> pl.DataFrame:
    """comm_call rows of a step: arrivals follow the slowest member, ends are common, clocks differ by host."""
    ranks = len(pace)
    clock = np.full(ranks, EPOCH_NS + step * STEP_NS, np.float64)
    parts = []
    for number in range(instances):
        dimension, kind, size = KINDS[number % len(KINDS)] if number < instances - 1 else ("world", "all_reduce", 4)
        members = mesh[dimension]
        start = clock + GAP_NS * pace * (1 + 0.01 * np.abs(rng.standard_normal(ranks)))
        transfer = (40_000 + size / 150.0) * (1 + 0.02 * rng.random(len(members)))
        end = np.empty(ranks)
        end[members] = (start[members].max(axis=1) + transfer)[:, None] + rng.random(members.shape) * 5_000
        parts.append(_rows(step, number, dimension, kind, size, members.shape[1], start + offset, end + offset))
        clock = end
    return pl.concat(parts)


def _rows(
    step: int, number: int, dimension: str, kind: str, size: int, members: int, start: np.ndarray, end: np.ndarray
) -> pl.DataFrame:
    count = len(start)
    length = np.rint(end - start).astype(np.int64)
    frame = pl.DataFrame(
        {"rank": np.arange(count, dtype=np.int32), "start_ns": np.rint(start).astype(np.int64), "dur_ns": length}
    )
    return frame.with_columns(
        pl.lit(step, pl.Int64).alias("step"), pl.lit(7, pl.Int64).alias("stream"), pl.col("start_ns").alias("issue_ns"), pl.col("dur_ns").alias("exposed_ns"),
        pl.lit(step * 1000 + number, pl.Int64).alias("call"), pl.lit(kind).alias("collective"), pl.lit(dimension).alias("group_name"),
        pl.lit(members, pl.Int32).alias("group_size"), pl.lit(step * 1000 + number, pl.Int64).alias("seq"), pl.lit(value=False).alias("is_p2p"),
        pl.lit("BFloat16").alias("dtype"), pl.lit(size, pl.Int64).alias("msg_bytes"), pl.lit(kind).alias("name"),
        pl.concat_list(pl.lit(0, pl.Int64)).alias("exposed_from_ns"), pl.concat_list("dur_ns").alias("exposed_to_ns"),
    )  # fmt: skip


def _step_tables(folder: Path, step: int, table: pl.DataFrame) -> None:
    """The step's rows of the other tables."""
    per = table.group_by("rank", "step").agg(
        pl.col("start_ns").min().alias("start_ns"), (pl.col("start_ns") + pl.col("dur_ns")).max().alias("end_ns"), pl.col("dur_ns").sum().alias("comm")
    ).sort("rank")  # fmt: skip
    span = pl.col("end_ns") - pl.col("start_ns") + GAP_NS
    work = (span - pl.col("comm")).clip(lower_bound=1)
    zero = pl.lit(0, pl.Int64)
    rows = per.select(
        "rank", "step", pl.col("start_ns").alias("host_start_ns"), pl.col("end_ns").alias("host_end_ns"), "start_ns", "end_ns", span.alias("window_ns"),
        span.alias("step_ns"), pl.lit("normal").alias("label"), pl.lit(400, pl.Int64).alias("activities"),
    )  # fmt: skip
    rows.write_parquet(folder / f"step-{step:03d}.parquet")
    parts = per.select(
        "rank", "step", span.alias("span_ns"), work.alias("compute_ns"), pl.col("comm").alias("exposed_comm_ns"), work.alias("local_work_ns"), pl.col("comm").alias("comm_ns"),
        *(zero.alias(name) for name in ("overlapped_comm_ns", "exposed_memcpy_ns", "idle_ns", "idle_input_ns", "idle_host_ns", "idle_sync_ns", "idle_bubble_ns",
                                        "idle_other_ns", "idle_gc_ns", "idle_allocator_ns", "memcpy_ns")),
    )  # fmt: skip
    parts.write_parquet(folder / f"breakdown-{step:03d}.parquet")
    kernels = parts.select("rank", "step", pl.lit("compute").alias("class"), pl.lit("gemm").alias("name"), pl.lit(7, pl.Int64).alias("signature"),
                           pl.lit(100, pl.Int64).alias("count"), pl.col("compute_ns").alias("total_ns"), (pl.col("compute_ns") // 100).alias("median_ns"))  # fmt: skip
    kernels.write_parquet(folder / f"kernel_stat-{step:03d}.parquet")


def fill(writer: StoreWriter, folder: Path, ranks: int) -> list[Member]:
    """Insert the tables; returns the members."""
    for name in ("comm_call", "step", "breakdown", "kernel_stat"):
        writer.insert_parquet(name, sorted(folder.glob(f"{name}-*.parquet")))
    hosts = [f"node{rank // PER_HOST:05d}" for rank in range(ranks)]
    mesh = {name: [tuple(row) for row in members.tolist()] for name, members in groups(ranks).items()}
    of = {name: {rank: row for row in rows for rank in row} for name, rows in mesh.items()}
    writer.insert(
        "rank",
        pl.DataFrame(
            {"rank": np.arange(ranks, dtype=np.int32), "host": hosts, "device_name": "GPU", "has_device_work": True}
        ),
    )
    writer.insert(
        "run",
        pl.DataFrame(
            {
                "name": ["synthetic"],
                "world_size": [ranks],
                "backend": ["nccl"],
                "step_source": ["ProfilerStep"],
                "schema_version": [1],
            }
        ),
    )
    return [
        Member(rank, SourceResult(path=f"rank{rank}", kind="kineto", size_bytes=1, status="ok", identity=Identity(rank=rank, host=hosts[rank]),
                                  trace=TraceInfo(backend="nccl", devices=("GPU",), groups=tuple(Group(name, name, of[name][rank], len(of[name][rank])) for name in of),
                                                  versions={}, step_source="ProfilerStep", lost_capture=None, device=0, has_device_work=True, truncated=False)), hosts[rank])
        for rank in range(ranks)
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, StoreWriter(Path(folder) / "run.duckdb") as writer:
        started = time.perf_counter()
        maker = multiprocessing.get_context("spawn").Process(
            target=write_tables, args=(Path(folder), chosen.ranks, chosen.steps, chosen.instances)
        )
        maker.start()
        maker.join()
        members = fill(writer, Path(folder), chosen.ranks)
        made = time.perf_counter() - started
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        started, busy = time.perf_counter(), time.process_time()
        if chosen.profile:
            import cProfile
            import pstats

            with cProfile.Profile() as profile:
                analyse_across(writer, members, Config())
            pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
        else:
            analyse_across(writer, members, Config())
        took, busy = time.perf_counter() - started, time.process_time() - busy
        slow = writer.query(
            "SELECT rank, round(slowdown_ratio, 3) AS slower, cause FROM rank_work WHERE verdict = 'persistent'"
        ).rows()
        matched = writer.query("SELECT count(*), avg((seen = members)::INT) FROM collective").row(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rows = chosen.ranks * chosen.steps * chosen.instances
    print("| ranks | steps | collectives a step | rows | analysis | processor time | peak memory | made in |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {chosen.ranks} | {chosen.steps} | {chosen.instances} | {rows / 1e6:.1f} M | {took:.1f} s | {busy:.1f} s | {peak:.1f} GB ({before:.1f} GB with the tables inserted) | {made:.1f} s |"
    )
    print(f"\nslow: {slow}; collectives {matched[0]}, complete {matched[1]:.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
