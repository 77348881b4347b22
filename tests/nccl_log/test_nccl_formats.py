"""Prefixes of launchers and collectors, shapes of all versions, what is claimed and what is not."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from nccl_log_support import FORMATS, SHARED

from diagnose.analysis.comm_audit import node_links
from diagnose.ingest import nccl_log
from diagnose.report.parts.transports import transports

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccl_log_support import Run

LINE = "node-a:100:110 [3] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/2/GDRDMA"
WRAPPED = {
    "plain": LINE,
    "open mpi": f"[1,5]<stdout>:{LINE}",
    "open mpi stderr": f"[1,5]<stderr>:{LINE}",
    "home-made tag": f"[5] {LINE}",
    "srun": f"0: {LINE}",
    "pdsh": f"node-a: {LINE}",
    "pdsh address": f"10.0.0.1: {LINE}",
    "torchrun tee": f"[default3]:{LINE}",
    "ray": f"(RayTrainWorker pid=20704, ip=10.0.0.17) {LINE}",
    "vllm": f"(EngineCore_DP0 pid=742) (RayWorkerWrapper pid=927) {LINE}",
    "ansi": f"\x1b[36m(W pid=1)\x1b[0m {LINE}",
    "ansi without escape": f"[0m {LINE}",
    "kubectl": f"[pod/trainer-0/pytorch] {LINE}",
    "timestamp": f"[2025-06-01 10:00:00] {LINE}",
    "cloudwatch": f"  | 2025-06-01T10:00:00.123Z | {LINE}",
    "iso prefix": f"2025-06-01T10:00:00.123Z {LINE}",
    "cri": f"2025-06-01T10:00:00.123456789Z stdout F {LINE}",
    "docker": '{"log": "' + LINE + '\\n", "stream": "stdout", "time": "2025-06-01T10:00:00Z"}',
    "json logger": '{"timestamp": "2025-06-01T10:00:30Z", "level": "info", "message": "' + LINE + '"}',
    "stackdriver": '{"textPayload": "' + LINE + '", "severity": "INFO"}',
    "counter": f"[80746] {LINE}",
    "google blanks": LINE.replace("[3]", "[ 3 ]"),
    "carriage return": LINE + "\r",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapper(name: str, read: Callable[..., Run]) -> None:
    run = read(WRAPPED[name] + "\n")

    row = run.frame("channel").row(0, named=True)
    assert (row["host"], row["pid"], row["channel"], row["source"], row["target"]) == ("node-a", 100, 1, 8, 0)
    assert (row["kind"], row["nic"], row["gdr"], row["direction"]) == ("NET/IB/GDRDMA", 2, True, "receive")
    if name != "counter":
        assert row["rank"] == (5 if name.startswith(("open mpi", "home")) else None)
    assert run.issues == []


def test_line_counters_are_no_ranks(read: Callable[..., Run]) -> None:
    run = read(f"[80746] {LINE}\n[80747] {LINE.replace('01/0', '02/0')}\n[80748] {LINE.replace('01/0', '03/0')}\n")

    assert run.frame("channel")["rank"].to_list() == [None] * 3


def test_partial_lines_of_cri_are_joined(read: Callable[..., Run]) -> None:
    text = "2025-06-01T10:00:20.000000001Z stdout P h:1:2 [0] NCCL INFO Channel 02/0 : 8[0] -> 9[1] via P2P\n2025-06-01T10:00:20.000000002Z stdout F /CUMEM\n"

    assert read(text).kinds() == {"P2P/CUMEM": 1}


SHAPES = {
    "2.4 ring": ("Ring 00 : 1[1] -> 0[0] via P2P/IPC", "P2P/IPC"),
    "2.4 network": ("Ring 00 : 1 -> 0 [receive] via NET/IB/0", "NET/IB"),
    "2.7 shm": ("Channel 00 : 0[1b000] -> 7[41000] via direct shared memory", "direct shared memory"),
    "2.13 shm": ("Channel 00 : 0[0] -> 1[1] via SHM/CE/direct", "SHM/CE/direct"),
    "2.30 shm": ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct", "SHM/direct"),
    "read": ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM/read"),
    "copy engine": ("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read/CE", "P2P/IPC/read/CE"),
    "indirect": ("Channel 00/0 : 0[0] -> 3[3] via P2P/indirect/2[2]", "P2P/indirect"),
    "mnnvl": ("Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL", "P2P/MNNVL"),
    "pxn": ("Channel 00/0 : 2[2] -> 11[3] [send] via NET/IB/3(1)/GDRDMA", "NET/IB/GDRDMA"),
    "c2c": ("Channel 00/0 : 2[2] -> 11[3] [send] via NET/IB/3/GDRDMA(PCI)/Shared", "NET/IB/GDRDMA(PCI)/Shared"),
    "libfabric": ("Channel 00/0 : 1[f5000] -> 0[35000] [receive] via NET/AWS Libfabric/0", "NET/AWS Libfabric"),
    "plugin": ("Channel 03/0 : 47[7] -> 39[7] [receive] via NET/IBext_v8/2", "NET/IBext_v8"),
    "tcpx": ("Channel 03/0 : 47[7] -> 39[7] [receive] via NET/GPUDirectTCPX_v7/2", "NET/GPUDirectTCPX_v7"),
    "collnet": ("CollNet 00/0 : 4 [receive] via COLLNET/SHARP/0/GDRDMA", "COLLNET/SHARP/GDRDMA"),
    "rccl": ("Channel 00/0 : 0[3000] -> 1[d000] via P2P/IPC comm 0x2bc1f840 nRanks 02", "P2P/IPC"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_of_a_connection_line(name: str, read: Callable[..., Run]) -> None:
    message, kind = SHAPES[name]

    assert read(f"h:1:2 [0] NCCL INFO {message}\n").kinds() == {kind: 1}


@pytest.mark.parametrize(
    "message",
    [
        "Channel 00/0 : 0[0] -> 1[1] via P2P",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUM",
        "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB",
        "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/",
        "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDR",
        "Channel 00/0 : 0[0] -> 1[1] via NET/IB/0",
        "Channel 00/0 : 0[0] -> 0[0] via P2P/IPC",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x1 nRanks 01",
        "Channel 9999/0 : 0[0] -> 1[1] via P2P/IPC",
        "Channel 00/0 : 0[0] -> 1[1] via SHM/direct/dir",
        "Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/12: node-b",
    ],
)
def test_torn_connection_line(message: str, read: Callable[..., Run]) -> None:
    run = read(f"h:1:2 [0] NCCL INFO {message}\nh:1:2 [0] NCCL INFO Using network IB\n")

    assert run.kinds() == {}
    assert [issue.code for issue in run.issues] == ["torn_lines"]


COMMS = {
    "2.4": "comm 0x7f rank 1 nranks 4 cudaDev 1 nvmlDev 1 - Init COMPLETE",
    "2.7": "comm 0x7f rank 1 nranks 4 cudaDev 1 busId 1a000 - Init COMPLETE",
    "2.16": "comm 0x7f rank 1 nranks 4 cudaDev 1 busId 1a000 commId 0xb2 - Init COMPLETE",
    "2.21": "ncclCommInitRank comm 0x7f rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId 1a000 commId 0xb2 - Init COMPLETE",
    "split": "ncclCommSplit comm 0x7f rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId 1a000 parent 0x55 splitCount 1 color 2 key 0 - Init COMPLETE",
    "2.29": "[Rank 1] ncclCommInitRankConfig comm 0x7f rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId 1a000 commId 0xb2 - Init COMPLETE",
    "rccl": "ncclCommInitRank_impl comm 0x7f rank 1 nranks 4 cudaDev 1 busId 1a000 localSize 296 used 176 bytes on core 3 - Init COMPLETE",
}


@pytest.mark.parametrize("name", COMMS)
def test_communicator_line(name: str, read: Callable[..., Run]) -> None:
    row = read(f"h:1:2 [1] NCCL INFO {COMMS[name]}\n").frame("communicator").row(0, named=True)

    assert (row["comm"], row["comm_rank"], row["nranks"], row["cuda_device"], row["state"]) == (
        "0x7f",
        1,
        4,
        1,
        "complete",
    )


def test_split_start_without_blank(read: Callable[..., Run]) -> None:
    line = "ncclCommSplit comm 0x7f rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1 parent 0x5 splitCount 1 color 2 key 0- Init START"

    assert read(f"h:1:2 [0] NCCL INFO {line}\n").frame("communicator")["state"].to_list() == ["started"]


def test_banners(read: Callable[..., Run]) -> None:
    run = read("NCCL version 2.12.7+cuda11.4\nh:1:2 [0] NCCL INFO RCCL version : 2.27.7-HEAD:0d2c4fd\n")

    rows = run.query("SELECT host, library, version FROM comm_process ORDER BY host NULLS LAST").rows()
    assert rows == [("h", "rccl", "2.27.7-HEAD"), (None, "nccl", "2.12.7+cuda11.4")] or rows[0][2].startswith("2.27.7")


def test_calls_are_shards_of_one_rank(read: Callable[..., Run]) -> None:
    text = "h:1:2 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f recvbuff 0x7f count 10 datatype 9 op 0 root 0 comm 0x55 [nranks=16] stream 0x5\n"
    row = read(text).frame("comm_coll").row(0, named=True)

    assert (row["op_count"], row["bytes"], row["dtype"], row["reduction"], row["nranks"]) == (
        31,
        20,
        "bfloat16",
        "sum",
        16,
    )


def test_settings_with_and_without_their_dot(read: Callable[..., Run]) -> None:
    text = (
        "h:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.\nh:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0,mlx5_1\n"
        "h:1:2 [0] NCCL INFO Comm config Blocking set to 1\nh:1:2 [0] NCCL INFO NET/OFI Adding NCCL_PROTO=simple to environment\n"
    )
    rows = read(text).query("SELECT name, value, origin FROM comm_env ORDER BY line").rows()

    assert rows == [
        ("NCCL_IB_DISABLE", "0", "environment"),
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1", "environment"),
        ("Blocking", "1", "config"),
        ("NCCL_PROTO", "simple", "plugin"),
    ]


def test_nics_with_rates_rails_and_merged_ports(read: Callable[..., Run]) -> None:
    text = (
        "h:1:2 [0] NCCL INFO NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [1]mlx5_2:1::3/RoCE [RO]; OOB ib0:10.0.0.1<0>\n"
        "h:1:2 [0] NCCL INFO NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x5 pciPath=/sys ar=0\n"
    )
    run = read(text)

    names = run.query(
        "SELECT device_index, name FROM comm_net WHERE kind = 'ib' AND port IS NOT NULL ORDER BY 1"
    ).rows()
    assert names == [(0, "mlx5_0"), (1, "mlx5_2")]
    assert run.query("SELECT max(bytes_per_s) FROM comm_net").item() == 50e9


def test_links_of_ranks_with_the_rate_of_their_nics(read: Callable[..., Run]) -> None:
    host = "node-{h}:1{d}:1{d} [{d}] NCCL INFO "
    text = ""
    for rank in range(4):
        head = host.format(h="ab"[rank // 2], d=rank % 2)
        text += f"{head}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1{rank // 2}<0>\n"
        if rank < 2:
            text += f"{head}NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x5 pciPath=/sys ar=0\n"
        text += f"{head}comm 0x5 rank {rank} nRanks 4 nNodes 2 localRanks 2 localRank {rank % 2} MNNVL 0\n"
        text += f"{head}Channel 00/0 : {rank}[0] -> {(rank + 2) % 4}[0] [send] via NET/IB/{rank % 2}/GDRDMA\n"
    run = read(text)
    rows = node_links(run).rows(named=True)

    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
    assert (rows[0]["host"], rows[0]["nics"], rows[0]["network"], rows[0]["gdr"]) == (
        "node-a",
        ["mlx5_0", "mlx5_1"],
        "IB",
        True,
    )
    assert (rows[0]["host_bytes_per_s"], rows[0]["rank_bytes_per_s"]) == (100e9, 50e9)
    assert rows[2]["host_bytes_per_s"] is None
    section = transports(run)
    assert (section["network"], section["gdr"], section["by_kind"]) == ("IB", "all", {"NET/IB/GDRDMA": 4})
    assert [host["host"] for host in section["per_host"]] == ["node-a", "node-b"]
    assert section["per_host"][0]["nics"][0] == {"index": 0, "name": "mlx5_0", "used": True, "bytes_per_s": 50e9}


def test_section_without_logs_is_empty(run: Run) -> None:
    section = transports(run)

    assert (section["network"], section["by_kind"], section["gdr"], section["per_host"]) == (None, {}, "unknown", [])
    assert run.judge() == []
    assert node_links(run).is_empty()


NOT_OURS = {
    "kineto": b'{"schemaVersion": 1, "traceEvents": [{"name": "nccl:all_reduce", "args": {"Process Group Name": "0"}}], "backend": "nccl"}',
    "kineto pretty": b'{\n  "schemaVersion": 1,\n  "distributedInfo": {"backend": "nccl"},\n "traceEvents": [',
    "prometheus": b"# HELP nccl_algorithm_bandwidth_gbs NCCL INFO\n# TYPE nccl_x gauge\nnccl_x 1\n",
    "nvidia-smi": b"timestamp, index, utilization.gpu [%]\n2025/01/01 10:00:00.000, 0, 100 %\n",
    "kernel log": b"[12345.678] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n",
    "training log": b"step 1/100 loss=2.0 step_time=0.2s\nstep 2/100 loss=1.9 step_time=0.2s\n",
    "csv": b"gpus,throughput\n8,100\n16,190\n",
    "list": b'[{"metric": {"__name__": "x"}, "values": []}]',
    "empty": b"",
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_other_content_is_not_claimed(name: str) -> None:
    assert [item.name for item in FORMATS if item.sniff(NOT_OURS[name], PurePosixPath("x"))] == []


def test_training_output_with_one_record_is_claimed() -> None:
    head = b"step 1/100 loss=2.0\n" * 50 + b"h:1:2 [0] NCCL INFO Using network IB\n"

    assert nccl_log.FORMATS[0].sniff(head, PurePosixPath("out.log"))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the recorded data is not beside the project")
def test_recorded_metrics_and_traces_are_not_claimed() -> None:
    files = [
        *SHARED.glob("traces/hta-*/*"),
        *SHARED.glob("lab/die_r2/metrics/query_range/*"),
        *SHARED.glob("node_metrics/*/*"),
    ]
    for path in [item for item in files if item.is_file() and item.suffix != ".gz"][:60]:
        head = path.read_bytes()[:65_536]
        claimed = [item.name for item in FORMATS if item.sniff(head, PurePosixPath(path.name))]
        assert claimed == [] or b"NCCL INFO" in head, (path, claimed)


def test_connections_belong_to_the_communicator_begun_before_them(read: Callable[..., Run]) -> None:
    """A thread that names no communicator prints them, and later communicators of the process are no owners."""
    begun = "h:7:{0} [1] NCCL INFO ncclCommInitRankConfig comm {1} rank {2} nranks {3} cudaDev 1 nvmlDev 1 busId 5d000 commId {4} - Init START"
    linked = "h:7:{0} [1] NCCL INFO Channel 00/0 : {1}[1] -> {2}[1] [{3}] via NET/IB/0/GDRDMA"
    lines = (
        begun.format(10, "0xa", 5, 16, "0x1"),
        linked.format(20, 5, 6, "send"),
        begun.format(11, "0xb", 0, 2, "0x2"),
        linked.format(21, 1, 0, "receive"),
        linked.format(22, 4, 5, "receive"),
        begun.format(12, "0xc", 5, 8, "0x3"),
    )

    found = read("\n".join(lines) + "\n").frame("channel").sort("line")

    assert found["comm"].to_list() == ["0xa", "0xb", "0xa"]
