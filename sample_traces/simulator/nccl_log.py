"""NCCL_DEBUG=INFO logs, one file per process, as NCCL 2.27 (torch 2.13) or 2.20 (torch 2.4) prints them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from simulator.trace_frame import process_id

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.timeline import Group, Timeline

_VERSION = {"2.13": "2.27.3+cuda12.9", "2.4": "2.20.5+cuda12.4"}
_CHANNELS = 4
BUS = ("18000", "2a000", "3a000", "5d000", "9a000", "ab000", "ba000", "db000")


def write_logs(timeline: Timeline, folder: Path) -> None:
    """One file per rank: nccl.<host>.<pid>.log, what NCCL_DEBUG_FILE=nccl.%h.%p.log makes.

    Processes that choose different networks cannot connect to each other: where a host finds no RDMA device, every
    communicator that includes it is given the network Socket on all its ranks, and the others stay on InfiniBand.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(timeline.job.ranks):
        log = _Log(timeline, rank)
        (folder / f"nccl.{log.host}.{log.pid}.log").write_text(log.text())


class _Log:
    def __init__(self, timeline: Timeline, rank: int) -> None:
        self.timeline, self.job, self.rank = timeline, timeline.job, rank
        self.host_index = int(timeline.topology.host_of[rank])
        self.host = timeline.topology.host_names[self.host_index]
        self.local = rank % self.job.cluster.gpus_per_host
        self.pid = process_id(rank, self.job.seed)
        self.without_rdma = timeline.conditions.socket_hosts
        self.everywhere = len(self.without_rdma) == timeline.topology.hosts
        self.modern = self.job.era == "2.13"
        self.lines: list[str] = []

    def text(self) -> str:
        """The file's text: start of the process, then every communicator it joins."""
        self._start()
        for number, group in enumerate(self.timeline.groups):
            if self.rank in group.ranks and len(group.ranks) > 1:
                self._communicator(number, group)
        return "\n".join(self.lines) + "\n"

    def _say(self, message: str, thread: int = 0) -> None:
        self.lines.append(f"{self.host}:{self.pid}:{self.pid + thread} [{self.local}] NCCL INFO {message}")

    @property
    def _address(self) -> str:
        return f"10.20.{self.host_index // 200}.{self.host_index % 200 + 11}"

    def _start(self) -> None:
        self._say("NCCL_SOCKET_IFNAME set by environment to eth0")
        version = f"NCCL version {_VERSION[self.job.era]}"
        if self.modern:
            self._say(f"Bootstrap: Using eth0:{self._address}<0>")
            self._say("cudaDriverVersion 12080")
            self._say(version)
            self._say("NET/Plugin: Could not find: libnccl-net.so. ", 7)
        else:
            self._say(f"Bootstrap : Using eth0:{self._address}<0>")
            self._say("cudaDriverVersion 12040")
            if self.rank == 0:
                self.lines.append(version)
            self._say(
                "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory "
                "No plugin found (libnccl-net.so), using internal implementation",
                7,
            )
        self._network()

    def _network(self) -> None:
        """What the process finds, and what it uses where all its communicators use the same."""
        found = self.host_index not in self.without_rdma
        if not found:
            self._say("NET/IB : No device found.", 7)
            if self.modern:
                self._say(f"NET/IB : Using [RO]; OOB eth0:{self._address}<0>", 7)
                self._say("Failed to initialize NET plugin IB", 7)
        else:
            ports = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(self.job.cluster.gpus_per_host))
            self._say(f"NET/IB : Using {ports} [RO]; OOB eth0:{self._address}<0>", 7)
            if self.modern:
                self._say("Initialized NET plugin IB", 7)
        if self.without_rdma:
            self._say(f"NET/Socket : Using [0]eth0:{self._address}<0>", 7)
            if self.modern:
                self._say("Initialized NET plugin Socket", 7)
        if self.everywhere or not self.without_rdma:
            self._assign("IB" if found else "Socket", 7)
        if found:
            self._say(f"DMA-BUF is available on GPU device {self.local}", 7)

    def _assign(self, network: str, thread: int) -> None:
        if self.modern:
            self._say(f"Assigned NET plugin {network} to comm", thread)
        self._say(f"Using network {network}", thread)

    def _on_sockets(self, hosts: list[int]) -> bool:
        return bool(self.without_rdma & set(hosts))

    def _communicator(self, number: int, group: Group) -> None:
        ranks, job = group.ranks, self.job
        size, own = len(ranks), ranks.index(self.rank)
        hosts = [int(h) for h in self.timeline.topology.host_of[list(ranks)]]
        nodes = sorted(set(hosts))
        pointer = f"0x{0x55000000 + self.pid * 0x1000 + number * 0x9E0:x}"
        ident = f"0x{zlib.crc32(f'{job.seed}/{ranks}'.encode()):x}{zlib.crc32(str(ranks).encode()):08x}"
        bus = BUS[self.local % len(BUS)]
        call = "ncclCommInitRankConfig" if group.kind == "world" else "ncclCommSplit"
        api = f"{call} " if self.modern else ""
        head = f"{api}comm {pointer} rank {own} nranks {size} cudaDev {self.local} nvmlDev {self.local} busId {bus}"
        thread, sockets = 7 + 31 * number, self._on_sockets(hosts)
        if self.without_rdma and not self.everywhere:
            if sockets:
                self._say("Comm config Net name set to Socket", thread)
            self._assign("Socket" if sockets else "IB", thread)
        self._say(f"{head} commId {ident} - Init START", thread)
        if group.kind == "world" and self.modern:
            self._say("RAS client listening socket at 127.0.0.1<28028>", thread)
            self._say(
                "Bootstrap timings total 1.204118 (create 0.000041, send 0.000152, recv 0.871204, "
                "ring 0.000201, delay 0.000000)",
                thread,
            )
        self._say(f"Setting affinity for GPU {self.local} to {'0-47' if self.local < 2 else '48-95'}", thread)
        nvls = " (NVLS_NCHANNELS 16)" if self.modern else ""
        self._say(f"NVLS multicast support is available on dev {self.local}{nvls}", thread)
        mates = [r for r, h in zip(ranks, hosts, strict=True) if h == self.host_index]
        self._say(
            f"comm {pointer} rank {own} nRanks {size} nNodes {len(nodes)} localRanks {len(mates)} "
            f"localRank {mates.index(self.rank)} MNNVL 0",
            thread,
        )
        channels = _CHANNELS if len(nodes) > 1 else 2 * _CHANNELS
        if own == 0:
            width = 2 if self.modern else 4
            order = " ".join(f"{r:{width}d}" for r in range(size if self.modern else min(size, 20)))
            for c in range(channels):
                self._say(f"Channel {c:02d}/{channels:02d} : {order}"[:127], thread)
        trees = " ".join(f"[{c}] {self._tree(own, size)}" for c in range(channels))
        self._say(f"Trees {trees}", thread)
        self._say("P2P Chunksize set to 524288" if len(nodes) == 1 else "P2P Chunksize set to 131072", thread)
        if self.modern:
            self._say(f"Check P2P Type isAllDirectP2p {int(len(nodes) == 1)} directMode 0", thread)
        self._say("threadThresholds 8/8/64 | 64/8/64 | 512 | 512", thread)
        self._say(
            f"{channels} coll channels, {channels} collnet channels, 0 nvls channels, 32 p2p channels, "
            "8 p2p channels per peer",
            thread,
        )
        self._say(f"{head} commId {ident} - Init COMPLETE", thread)
        if self.modern:
            self._say(
                f"Init timings - {call}: rank {own} nranks {size} total 1.62 (kernels 0.21, alloc 0.05, "
                "bootstrap 1.20, allgathers 0.01, topo 0.09, graphs 0.02, connections 0.02, rest 0.02)",
                thread,
            )
        for c in range(channels):
            self._link(ranks, hosts, own, c, thread + 2)
        detail = f", use ring PXN 0 GDR {0 if sockets else 1}" if self.modern else ""
        self._say(f"Connected all rings{detail}", thread + 2)

    @staticmethod
    def _tree(own: int, size: int) -> str:
        child, parent = own + 1 if own + 1 < size else -1, own - 1
        return f"{child}/-1/-1->{own}->{parent}"

    def _link(self, ranks: tuple[int, ...], hosts: list[int], own: int, channel: int, thread: int) -> None:
        """The two neighbours of this rank in a ring."""
        size, per = len(ranks), self.job.cluster.gpus_per_host
        for a, b, way in (((own - 1) % size, own, "receive"), (own, (own + 1) % size, "send")):
            pair = f"Channel {channel:02d}/0 : {a}[{ranks[a] % per}] -> {b}[{ranks[b] % per}]"
            if hosts[a] != hosts[b]:
                kind = "NET/Socket/0" if self._on_sockets(hosts) else f"NET/IB/{channel % per}/GDRDMA"
                self._say(f"{pair} [{way}] via {kind}", thread)
            elif way == "send":
                self._say(f"{pair} via P2P/CUMEM", thread)
