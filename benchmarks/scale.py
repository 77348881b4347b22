"""How the reduce grows with the job: runs of 64 to 16 384 ranks, from reduced tables to a published store.

The reduced tables are made directly: what the map step would leave of each rank, with cross-node collectives in full
and kernels as statistics. Eight ranks a node; data-parallel groups of the ranks at the same place of each node, and one
collective of the whole job a step; clocks that are off by up to a millisecond; one slow node. Merging the tables,
matching, aligning, judging and publishing are the product's own, in a process of their own that is measured.

    python benchmarks/scale.py --ranks 64 256 1024 --steps 20 --collectives 20

Every figure comes with its growth exponent against the line above: 1.00 is linear in the number of ranks.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
import msgspec

LOCAL = 8
STEP_NS = 1_000_000_000
CHUNK = 512
TABLES = ("step", "breakdown", "kernel_stat", "comm_call")

CALLS_SQL = """
CREATE OR REPLACE TEMP TABLE planned AS
SELECT r AS rank, s AS step, k, r // $local AS host, k = $collectives - 1 AS whole,
  ($step_ns * (k + 1)) // ($collectives + 1) AS at_ns, 1048576 << (k % 6) AS msg_bytes,
  (hash(r // $local) % 2000000)::BIGINT - 1000000 AS clock_ns,
  ((hash(r, s, k) % 100000)::BIGINT + CASE WHEN r // $local = $slow_host THEN $step_ns // ($collectives + 1) // 5 ELSE 0 END)::BIGINT AS late_ns,
FROM range($from, $to) AS a(r), range($steps) AS b(s), range($collectives) AS c(k);
CREATE OR REPLACE TEMP TABLE call AS
SELECT *, ($step_ns // ($collectives + 1) // 5 + 100000 + (30000 + msg_bytes / 20.0) * (1 + (hash(CASE WHEN whole THEN -1 ELSE rank % $local END, step, k) % 50) / 1000.0))::BIGINT - late_ns AS dur_ns,
  $origin + step * $step_ns + at_ns + late_ns + clock_ns AS start_ns, k % 2 = 0 AS exposed
FROM planned;
"""
OUT_SQL = {
    "comm_call": """
SELECT rank::INTEGER AS rank, step * $collectives + k AS call, step, 20 AS stream, start_ns, dur_ns, start_ns - 20000 AS issue_ns,
  CASE WHEN exposed THEN dur_ns ELSE 0 END AS exposed_ns,
  CASE WHEN exposed THEN [0::BIGINT] ELSE []::BIGINT[] END AS exposed_from_ns, CASE WHEN exposed THEN [dur_ns] ELSE []::BIGINT[] END AS exposed_to_ns,
  CASE WHEN exposed THEN [0::BIGINT] ELSE []::BIGINT[] END AS exposed_late_ns,
  'all_reduce' AS collective, CASE WHEN whole THEN '0' ELSE '1' END AS group_name, CASE WHEN whole THEN 'default_pg' ELSE 'dp' END AS group_desc,
  (CASE WHEN whole THEN $ranks ELSE $ranks // $local END)::INTEGER AS group_size, CASE WHEN whole THEN step ELSE step * ($collectives - 1) + k END AS seq,
  false AS is_p2p, 'BFloat16' AS dtype, msg_bytes // 2 AS in_elems, msg_bytes // 2 AS out_elems, msg_bytes, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL' AS name
FROM call ORDER BY rank, start_ns""",
    "step": """
SELECT rank::INTEGER AS rank, step, min(start_ns - at_ns) AS start_ns, min(start_ns - at_ns) + $step_ns AS end_ns, min(start_ns - at_ns) - 50000 AS host_start_ns,
  min(start_ns - at_ns) + $step_ns - 50000 AS host_end_ns, $step_ns AS window_ns, $step_ns AS step_ns, 'normal' AS label, 2000 AS activities
FROM call GROUP BY ALL ORDER BY rank, step""",
    "breakdown": """
WITH part AS (SELECT rank::INTEGER AS rank, step, sum(dur_ns) AS comm_ns, sum(dur_ns) FILTER (exposed) AS exposed_ns FROM call GROUP BY ALL)
SELECT rank, step, $step_ns AS span_ns, $step_ns - exposed_ns - 20000000 AS compute_ns, exposed_ns AS exposed_comm_ns, comm_ns - exposed_ns AS overlapped_comm_ns,
  0 AS exposed_memcpy_ns, 20000000 AS idle_ns, 0 AS idle_input_ns, 20000000 AS idle_host_ns, 0 AS idle_sync_ns, 0 AS idle_bubble_ns, 0 AS idle_other_ns,
  0 AS late_comm_ns, 0 AS idle_gc_ns, 0 AS idle_allocator_ns, $step_ns - exposed_ns AS local_work_ns, 0 AS memcpy_ns, comm_ns
FROM part ORDER BY rank, step""",
    "kernel_stat": """
SELECT r::INTEGER AS rank, s AS step, 'compute' AS class, 'gemm_' || n AS name, n AS signature, 24 AS count,
  (0.7 * $step_ns / $kernels * (1 + (hash(r, s, n) % 100) / 10000.0) * CASE WHEN r // $local = $slow_host THEN 1.1 ELSE 1 END)::BIGINT AS total_ns,
  total_ns // 24 AS median_ns
FROM range($from, $to) AS a(r), range($steps) AS b(s), range($kernels) AS c(n)""",
}


class Shape(msgspec.Struct, frozen=True):
    """A job."""

    ranks: int
    steps: int
    collectives: int
    kernels: int


class Measured(NamedTuple):
    """Seconds and bytes of one reduce, and whether all collectives were matched."""

    wall_s: float
    cpu_s: float
    memory_bytes: int
    store_bytes: int
    matched_ratio: float


def main() -> None:
    """Measure every size in a process of its own and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024], help="multiples of eight")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--collectives", type=int, default=20, help="cross-node collectives per rank and step")
    parser.add_argument("--kernels", type=int, default=30, help="kernel signatures per rank and step")
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--profile", action="store_true", help="print where the time of each reduce goes")
    parser.add_argument("--reduce", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reduce:
        reduce(msgspec.json.decode(arguments.reduce, type=Shape), arguments.folder, profile=arguments.profile)
        return
    print(
        f"{arguments.steps} steps, {arguments.collectives} cross-node collectives and {arguments.kernels} kernel signatures per rank and step, {os.cpu_count()} cores\n"
    )
    print("| ranks | calls | wall s | | CPU s | | peak memory MB | | store MB | | store kB per rank | matched |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    before: tuple[int, Measured] | None = None
    for ranks in arguments.ranks:
        shape = Shape(ranks, arguments.steps, arguments.collectives, arguments.kernels)
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="scale-") as folder:
            make(shape, Path(folder))
            now = measure(shape, Path(folder), profile=arguments.profile)
        print(line(shape, now, before), flush=True)
        before = (ranks, now)


def make(shape: Shape, folder: Path) -> None:
    """The reduced tables as Parquet files of some hundred ranks each."""
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        for first in range(0, shape.ranks, CHUNK):
            values = {
                "local": LOCAL, "step_ns": STEP_NS, "origin": 1_700_000_000_000_000_000, "slow_host": shape.ranks // LOCAL - 1,
                "from": first, "to": min(first + CHUNK, shape.ranks), **msgspec.structs.asdict(shape),
            }  # fmt: skip
            for statement in CALLS_SQL.split(";"):
                if statement.strip():
                    connection.execute(bound(statement, values))
            for table, sql in OUT_SQL.items():
                connection.execute(
                    f"COPY ({bound(sql, values)}) TO '{folder}/{table}-{first}.parquet' (COMPRESSION lz4)"
                )


def bound(sql: str, values: dict[str, int]) -> str:
    """The statement with its numbers; longer names first."""
    for name in sorted(values, key=len, reverse=True):
        sql = sql.replace(f"${name}", str(values[name]))
    return sql


def measure(shape: Shape, folder: Path, *, profile: bool) -> Measured:
    """One reduce in a new process."""
    command = [
        sys.executable,
        __file__,
        "--reduce",
        msgspec.json.encode(shape).decode(),
        "--folder",
        str(folder),
        *(["--profile"] if profile else []),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"the reduce of {shape.ranks} ranks failed ({done.returncode}; -9: out of memory)")
    *said, last = done.stdout.decode().splitlines()
    print("\n".join(said), end="\n" if said else "")
    return Measured(*msgspec.json.decode(last, type=tuple[float, float, int, int, float]))


def reduce(shape: Shape, folder: Path, *, profile: bool) -> None:
    """Merge, analyse, publish; prints what it took as the last line."""
    import cProfile
    import pstats

    from diagnose.config import Config
    from diagnose.pipeline.cross import analyse_across
    from diagnose.store.reader import Store
    from diagnose.store.writer import StoreWriter

    members = job(shape)
    profiler = cProfile.Profile()
    started, cpu = time.perf_counter(), time.process_time()
    if profile:
        profiler.enable()
    with StoreWriter(folder / "run.duckdb") as writer:
        for table in TABLES:
            writer.insert_parquet(table, sorted(folder.glob(f"{table}-*.parquet")))
        writer.insert("rank", ranks_table(shape))
        analyse_across(writer, members, Config())
        store = writer.publish()
    profiler.disable()
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats("diagnose/", 25)
    with Store(store) as tables:
        found = tables.query("SELECT count(*) AS n FROM collective WHERE transfer_ns IS NOT NULL").item()
    expected = shape.steps * ((shape.collectives - 1) * LOCAL + 1)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(msgspec.json.encode((wall, cpu, memory, store.stat().st_size, found / expected)).decode())


def job(shape: Shape) -> list:
    """What the map step says of each rank."""
    from diagnose.ingest.base import Identity
    from diagnose.pipeline.identify import Member
    from diagnose.pipeline.result import Group, SourceResult, TraceInfo

    places = [tuple(range(place, shape.ranks, LOCAL)) for place in range(LOCAL)]
    whole = Group("0", "default_pg", tuple(range(shape.ranks)), shape.ranks)
    return [
        Member(
            rank,
            SourceResult(
                path=f"rank{rank}.json.gz", kind="kineto", size_bytes=1, status="ok", identity=Identity(rank=rank, host=host(rank), world_size=shape.ranks),
                trace=TraceInfo(
                    backend="nccl", devices=("H100",), groups=(whole, Group("1", "dp", places[rank % LOCAL], shape.ranks // LOCAL)), versions={},
                    step_source="ProfilerStep", lost_capture=None, device=0, has_device_work=True, truncated=False,
                ),
            ),
            host(rank),
        )
        for rank in range(shape.ranks)
    ]  # fmt: skip


def ranks_table(shape: Shape):
    """The table of ranks."""
    import polars as pl

    everyone = range(shape.ranks)
    return pl.DataFrame(
        {
            "rank": pl.Series(everyone, dtype=pl.Int32), "local_rank": pl.Series([rank % LOCAL for rank in everyone], dtype=pl.Int32),
            "host": [host(rank) for rank in everyone], "device_name": ["H100"] * shape.ranks, "has_device_work": [True] * shape.ranks,
        }
    )  # fmt: skip


def host(rank: int) -> str:
    """The node of a rank."""
    return f"node{rank // LOCAL:05d}"


def line(shape: Shape, now: Measured, before: tuple[int, Measured] | None) -> str:
    """One row of the table, each figure with its growth exponent."""
    calls = shape.ranks * shape.steps * shape.collectives
    cells = [f"{shape.ranks:,}", f"{calls / 1e6:.2f} M"]
    for name, unit, digits in (("wall_s", 1, 1), ("cpu_s", 1, 1), ("memory_bytes", 1e6, 0), ("store_bytes", 1e6, 1)):
        value = getattr(now, name)
        cells.append(f"{value / unit:,.{digits}f}")
        cells.append(
            f"{math.log(value / getattr(before[1], name)) / math.log(shape.ranks / before[0]):.2f}" if before else ""
        )
    cells += [f"{now.store_bytes / shape.ranks / 1e3:.0f}", f"{now.matched_ratio:.3f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
