"""Reads a generated log of 8192 interleaved ranks: seconds, MB/s, peak memory.

    python benchmarks/nccl_log.py [--megabytes 500] [--ranks 8192] [--keep FILE]

The log has the mixture of a real start-up at NCCL_DEBUG=INFO: settings, NICs, communicators, rings, trees, connections
(most lines), collectives, step lines and other text between them; launcher tags; one line in 200 is torn.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.ingest.base import Batch, Outcome, ReadOptions, Source
from diagnose.ingest.nccl_log import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

GPUS = 8
TORN = 200


def lines(rank: int, ranks: int, rng: random.Random) -> Iterator[str]:
    """What one rank prints, for ever."""
    host, device = f"gpu-node-{rank // GPUS:04d}", rank % GPUS
    pid = 40_000 + rank % 9_000
    main, proxy = (
        f"{rank}: {host}:{pid}:{pid} [{device}] NCCL INFO",
        f"{rank}: {host}:{pid}:{pid + 300} [{device}] NCCL INFO",
    )
    comm = f"0x{0x55D000000000 + rank * 4096:x}"
    nics = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(GPUS))
    yield f"{main} NCCL version 2.27.3+cuda12.9"
    yield f"{main} NCCL_SOCKET_IFNAME set by environment to ^docker0,lo"
    yield f"{main} Bootstrap: Using eth0:10.{rank >> 14}.{rank >> 8 & 63}.{rank & 255}<0>"
    yield f"{main} NET/IB : Using {nics} [RO]; OOB eth0:10.0.{rank >> 8}.{rank & 255}<0>"
    yield f"{main} Using network IB"
    for split in range(100_000):
        name = "ncclCommInitRankConfig" if not split else "ncclCommSplit"
        yield f"{main} {name} comm {comm} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} busId {device:x}b000 commId 0x{split:016x} - Init START"
        yield f"{main} comm {comm} rank {rank} nRanks {ranks} nNodes {ranks // GPUS} localRanks {GPUS} localRank {device} MNNVL 0"
        yield f"{main} Trees " + " ".join(
            f"[{c}] {(rank + 1) % ranks}/-1/-1->{rank}->{(rank - 1) % ranks}" for c in range(16)
        )
        yield f"{main} 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer"
        yield f"{main} {name} comm {comm} rank {rank} nranks {ranks} cudaDev {device} nvmlDev {device} busId {device:x}b000 commId 0x{split:016x} - Init COMPLETE"
        for channel in range(16):
            far, near = (rank + GPUS * (1 + split % 7)) % ranks, rank - device + (device + 1) % GPUS
            yield f"{proxy} Channel {channel:02d}/0 : {(rank - GPUS) % ranks}[{device}] -> {rank}[{device}] [receive] via NET/IB/{device}/GDRDMA"
            yield f"{proxy} Channel {channel:02d}/0 : {rank}[{device}] -> {far}[{device}] [send] via NET/IB/{device}/GDRDMA"
            if near != rank:
                yield f"{proxy} Channel {channel:02d}/0 : {rank}[{device}] -> {near}[{(device + 1) % GPUS}] via P2P/CUMEM"
        yield f"{proxy} Connected all rings, use ring PXN 0 GDR 1"
        for count in range(8):
            size = rng.choice((1, 4096, 25_000_000))
            yield f"{main} AllReduce: opCount {count:x} sendbuff 0x7f757de00000 recvbuff 0x7f757de00000 count {size} datatype 7 op 0 root 0 comm {comm} [nranks={ranks}] stream 0x55a0c85fa4a0"
            yield f"{rank}: step {split * 8 + count}/10000 | loss {rng.random():.4f} | elapsed time per iteration (ms): {rng.random() * 900:.1f}"


def write(path: Path, megabytes: int, ranks: int) -> None:
    """Interleave the ranks until the file has its size."""
    rng = random.Random(7)  # noqa: S311 - a test log
    streams = [lines(rank, ranks, rng) for rank in range(ranks)]
    size, limit = 0, megabytes * 1_000_000
    with path.open("w", encoding="utf-8") as out:
        while size < limit:
            for stream in rng.sample(streams, len(streams)):
                text = next(stream)
                if rng.randrange(TORN) == 0:
                    text = text[: rng.randrange(len(text))] + next(stream)
                size += out.write(text + "\n")
                if size >= limit:
                    break


def read(path: Path) -> tuple[float, int, int, int]:
    """Seconds, rows, torn lines, records."""
    source = Source(path=str(path), size_bytes=path.stat().st_size)
    start, rows, torn, records = time.perf_counter(), 0, 0, 0
    for record in FORMATS[0].read(source, ReadOptions()):
        if isinstance(record, Batch):
            rows += record.frame.height
        elif isinstance(record, Outcome):
            records = record.rows
        elif record.code == "torn_lines":
            torn = record.count
    return time.perf_counter() - start, rows, torn, records


def main() -> None:
    """Generate, read, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=8192)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "all.log"
        if not path.exists():
            write(path, options.megabytes, options.ranks)
        seconds, rows, torn, records = read(path)
        size = path.stat().st_size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{size / 1e6:.0f} MB, {options.ranks} ranks: {seconds:.1f} s, {size / 1e6 / seconds:.0f} MB/s, peak {peak / 1e6:.0f} MB"
    )
    print(f"{records} records, {rows} rows, {torn} torn lines")


if __name__ == "__main__":
    main()
