"""One small log for each kind of fault and for each kind of normal noise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nccl_log_support import BOOK

from diagnose.findings.checks import comm_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccl_log_support import Run

A = "node-a:100:110 [0] NCCL INFO"
B = "node-b:200:210 [0] NCCL INFO"
W = "[2026-05-02 08:00:11] node-a:100:110 [0] transport/net.cc:12 (f) NCCL WARN"
TWO_NODES = f"{A} comm 0xa1 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
ONE_NODE = f"{A} comm 0xa1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0\n"
GDR = f"{A} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n{A} Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"

ERRORS = [
    ("COM-IB-RETRY-EXCEEDED", "NET/IB: Got completion from peer 10.0.0.5<33092> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 req_type=Send hca mlx5_0"),
    ("COM-IB-RETRY-EXCEEDED", "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"),
    ("COM-IB-LOCAL-PROTECTION", "NET/IB : Got completion from peer 10.0.0.5<33092> with status=4 opcode=1 len=0 vendor err 81 (Send) localGid a remoteGidsb hca mlx5_0"),
    ("COM-IB-RNR-RETRY", "NET/IB : Got completion from peer 10.0.0.5<33092> with status=13 opcode=0 len=0 vendor err 135 (Send)"),
    ("COM-IB-REMOTE-ERROR", "NET/IB : Got completion from peer 10.0.0.5<33092> with status=10 opcode=0 len=0 vendor err 136 (Send)"),
    ("COM-IB-QP-TIMEOUT", "Call to ibv_modify_qp failed with error Connection timed out"),
    ("COM-IB-GID-INDEX", "Call to ibv_modify_qp failed with error Invalid argument"),
    ("COM-IB-UNREACHABLE", "Call to ibv_modify_qp failed with error Network is unreachable"),
    ("COM-IB-NO-DEVICE", "Call to ibv_modify_qp failed with error No such device"),
    ("COM-IB-MEMLOCK", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"),
    ("COM-IB-MEMLOCK", "Call to ibv_create_qp failed"),
    ("COM-GDR-REGISTRATION", "Call to ibv_reg_mr failed with error Bad address"),
    ("COM-IB-PORT-ERROR", "NET/IB : mlx5_3:1 Got async event : port error"),
    ("COM-IB-ASYNC-FATAL", "NET/IB : mlx5_3:1 Got async error event: local catastrophic error"),
    ("COM-LINK-LAYER-MIXED", "NET/IB : Attempted to connect incompatible devices: mlx5_0:1/IB and mlx5_1:1/RoCE"),
    ("COM-LINK-SPEED-CHANGED", "NET/IB : mlx5_2:1 speed change detected: 400000 -> 200000 Mbps"),
    ("COM-NIC-FAILED", "NET/IB: ncclIbRecover: Device 3 marked as failed. Initiating recovery? yes"),
    ("COM-CONNECT-FAILED", "socketStartConnect: Connect to 10.0.0.94<40317> failed : Connection refused"),
    ("COM-CONNECT-FAILED", "ncclSocketConnect: connect to 10.0.0.94<40317> failed : No route to host"),
    ("COM-NO-INTERFACE", "Bootstrap : no socket interface found"),
    ("COM-NO-INTERFACE", "no device found matching eth9, verify NCCL_OOB_NET_IFNAME"),
    ("COM-BOOTSTRAP-MISMATCH", "Bootstrap Root : mismatch in rank count from procs 16 : 8"),
    ("COM-BOOTSTRAP-MISMATCH", "Bootstrap Root : rank 3 of 16 ranks has already checked in"),
    ("COM-PEER-CLOSED", "socketProgress: Connection closed by remote peer node-c<45112>"),
    ("COM-SHM-FULL", "Call to posix_fallocate failed : No space left on device"),
    ("COM-SHM-ATTACH", "Error while attaching to shared memory segment /dev/shm/nccl-x (size 9637888), error: No such file or directory (2)"),
    ("COM-NVLS-BIND-FAILED", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'."),
    ("COM-MNNVL-IMEX", "MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration."),
    ("COM-CUDA-ERROR", "Cuda failure 700 'an illegal memory access was encountered'"),
    ("COM-CUDA-ERROR", "Cuda failure 'invalid device ordinal'"),
    ("COM-DUPLICATE-GPU", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 53000"),
    ("COM-DUPLICATE-GPU", "Multiple ranks (0 and 1) use the same GPU. Set NCCL_MULTI_RANK_GPU_ENABLE=1"),
    ("COM-NVLINK-P2P-BROKEN", "P2P is disabled between NVLINK connected GPUs 0 and 1. This should not be the case given their connectivity, and is probably due to a hardware issue."),
    ("COM-P2P-IPC-FAILED", "Could not enable P2P between dev 0(=1a000) and dev 1(=1c000)"),
    ("COM-NO-TRANSPORT", "No transport found for rank 0[1a000] -> rank 1[1c000]"),
    ("COM-DRIVER-PROBLEM", "CUDA Driver version found is 11040. Minimum requirement is 12000"),
    ("COM-TOPOLOGY-TOO-LARGE", "Error : too many XML nodes (max 256)"),
    ("COM-VERSION", "Mismatched NCCL version detected : rank 0 version 22304 rank 1 version 22703"),
    ("COM-COLLECTIVE-MISMATCH", "NET/Socket : peer 10.0.0.6<58683> message truncated : receiving 1048576 bytes instead of 65536. If you believe your socket network is in a healthy state, there may be a mismatch in collective sizes or environment settings"),
    ("COM-COLLECTIVE-MISMATCH", "NET/IB : peer 10.0.0.6<58683> posted incorrect receive info: size 65536"),
    ("COM-RAIL-DEVICES-DIFFER", "NET/IB : There are mismatched physical devices between local (2) and remote (1)"),
    ("COM-NET-NONE", "Failed to initialize any NET plugin"),
    ("COM-RAS-DEAD", "RAS declaring peer 10.0.0.9<4242> as DEAD"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "message"), ERRORS, ids=lambda value: value[:40])
def test_error_is_found_with_its_line(code: str, message: str, read: Callable[..., Run]) -> None:
    found = read(f"{TWO_NODES}{GDR}\n{W} {message}\n{A} transport/net.cc:12 -> 3\n").loud()

    assert code in found, list(found)
    assert any(evidence.source.endswith("job.log:5") for evidence in found[code].evidence)
    assert found[code].actions


NOISE = [
    "NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.",
    "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory",
    "PROFILER/Plugin: Could not find: libnccl-profiler.so.",
    "Failed to initialize NET plugin IB",
    "Failed to initialize any GIN plugin",
    "NET/IB : No device found.",
    "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'",
    "MNNVL busId 0x801000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",
    "NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)",
    "Check P2P Type isAllDirectP2p 0 directMode 0",
    "Call to connect returned Connection refused, retrying",
    "Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1",
    "Topology detection : could not read /sys/devices/pci0000:00/numa_node, ignoring",
    "NCCL_DEBUG_SUBSYS set by environment to ALL",
    "misc/utils.cc:233 memory stack hunk malloc(65536)",
]
NOISE_WARNINGS = [
    "SHARP int8,uint8,bfloat16 Datatypes not supported",
    "Failed to open libibverbs.so[.1]",
    "Some new warning that nobody knows",
]


@pytest.mark.parametrize("message", NOISE)
def test_noise_is_silent(message: str, read: Callable[..., Run]) -> None:
    assert read(f"{TWO_NODES}{GDR}{A} {message}\n").loud() == {}


@pytest.mark.parametrize("message", NOISE_WARNINGS)
def test_harmless_warning_is_silent(message: str, read: Callable[..., Run]) -> None:
    assert read(f"{TWO_NODES}{GDR}\n{W} {message}\n").loud() == {}


def test_unknown_warning_with_a_return_code_is_an_error(read: Callable[..., Run]) -> None:
    found = read(f"{TWO_NODES}{GDR}\n{W} Some new warning\n{A} init.cc:12 -> 5\n").loud()

    assert set(found) == {"COM-ERROR-OTHER"}
    assert "invalid usage" in found["COM-ERROR-OTHER"].message


def test_flush_errors_are_echoes_of_the_first_status(read: Callable[..., Run]) -> None:
    first = (
        "NET/IB : Got completion from peer 10.0.0.59<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)"
    )
    later = (
        "NET/IB : Got completion from peer 10.0.0.59<44206> with status=5 opcode=32656 len=32659 vendor err 249 (Recv)"
    )
    found = read(f"{TWO_NODES}{GDR}\n{W} {first}\n\n{W} {later}\n\n{W} {later}\n").loud()

    assert set(found) == {"COM-IB-RETRY-EXCEEDED"}
    assert "2 later messages" in found["COM-IB-RETRY-EXCEEDED"].message


def test_only_flush_errors_point_elsewhere(read: Callable[..., Run]) -> None:
    later = "NET/IB : Got completion from peer 10.0.0.59<44206> with status=5 opcode=0 len=0 vendor err 249 (Recv)"

    assert set(read(f"{TWO_NODES}{GDR}\n{W} {later}\n").loud()) == {"COM-IB-FLUSH"}


def test_closed_connection_blames_the_host_that_closed(read: Callable[..., Run]) -> None:
    found = read(f"{TWO_NODES}{GDR}\n{W} socketProgress: Connection closed by remote peer node-c<45112>\n").loud()

    assert found["COM-PEER-CLOSED"].hosts == ("node-c",)


def test_plugin_failure_on_one_node_is_nothing(read: Callable[..., Run]) -> None:
    text = (
        f"{A} NET/Plugin: Loaded net plugin Libfabric (v10)\n{A} NET/OFI No eligible providers were found\n"
        f"\n{W} NET/OFI Unable to find a protocol that worked.  Failing initialization.\n"
        f"\n{W} NET/OFI aws-ofi-nccl initialization failed\n{A} Using network Socket\n{ONE_NODE}"
        f"{A} Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    )

    assert read(text).loud() == {}


def test_plugin_failure_on_several_nodes_is_critical(read: Callable[..., Run]) -> None:
    text = (
        f"\n{W} NET/OFI Unable to find a protocol that worked.  Failing initialization.\n"
        f"{A} Using network Socket\n{TWO_NODES}{A} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
    )
    found = read(text).loud()

    assert found["COM-SOCKET-ALL"].severity == "critical"
    assert "Unable to find a protocol" in found["COM-SOCKET-ALL"].message


def test_sockets_without_any_sign_of_rdma_are_a_warning(read: Callable[..., Run]) -> None:
    text = f"{A} Using network Socket\n{TWO_NODES}{A} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"

    assert read(text).loud()["COM-SOCKET-ALL"].severity == "warning"


def test_one_host_on_sockets_is_named(read: Callable[..., Run]) -> None:
    text = TWO_NODES.replace("nRanks 2 nNodes 2", "nRanks 4 nNodes 4") + GDR.replace("1[0]", "3[0]")
    text += f"{B} NCCL_IB_DISABLE set by environment to 1.\n{B} Using network Socket\n"
    text += f"{B} Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/0\n"
    found = read(text).loud()

    assert found["COM-SOCKET-SOME"].hosts == ("node-b",)
    assert found["COM-SOCKET-SOME"].cause == "partial_rdma"
    assert "NCCL_IB_DISABLE=1" in found["COM-SOCKET-SOME"].message
    assert "COM-SOCKET-ALL" not in found


def test_gdr_not_stated_is_not_off(read: Callable[..., Run]) -> None:
    run = read(f"{A} NCCL version 2.26.2+cuda12.2\n{A} Using network IB\n{TWO_NODES}")

    assert run.loud() == {}
    assert any(
        "not stated is not off" in getattr(item, "why", "") or "no connection line" in getattr(item, "why", "")
        for item in run.judge()
    )


def test_old_versions_do_not_state_gdr(read: Callable[..., Run]) -> None:
    text = f"{A} NCCL version 2.5.7+cuda10.0\n{A} Ring 00 : 1[1b000] -> 0[1b000] [receive] via NET/IB/0\n"

    assert read(text).loud() == {}


def test_one_odd_line_is_no_partial_gdr(read: Callable[..., Run]) -> None:
    odd = f"{A} Channel 02/0 : 0[0] -> 1[0] [send] via NET/IB/0\n"

    assert read(TWO_NODES + GDR + odd).loud() == {}


def test_partial_gdr_names_host_and_nic(read: Callable[..., Run]) -> None:
    text = TWO_NODES + f"{A} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.11<0>\n" + GDR
    text += "".join(f"{A} Channel {c:02d}/0 : 0[0] -> 1[0] [send] via NET/IB/1\n" for c in range(2, 6))
    found = read(text).loud()["COM-GDR-SOME"]

    assert (found.hosts, found.devices) == (("node-a",), ("mlx5_1",))
    assert "4 of 6 lines" in found.message


@pytest.mark.parametrize(("value", "name"), [("2.26.2", "SYS (8)"), ("2.27.3", "PHB (8)")])
def test_distance_numbers_depend_on_the_release(value: str, name: str, read: Callable[..., Run]) -> None:
    text = f"{A} NCCL version {value}+cuda12.2\n{A} GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance 8 > 5)\n{TWO_NODES}"
    text += f"{A} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n{A} Channel 01/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n"

    assert name in read(text).loud()["COM-GDR-OFF"].message


def test_tcpx_never_prints_gdrdma(read: Callable[..., Run]) -> None:
    text = TWO_NODES + f"{A} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/FasTrak_v7/0(1)/Shared\n"

    assert read(text).loud() == {}


def test_shm_on_a_host_whose_peers_have_p2p(read: Callable[..., Run]) -> None:
    text = (
        TWO_NODES
        + GDR
        + f"{A} Channel 00/0 : 0[0] -> 2[1] via P2P/IPC\n{B} Channel 00 : 1[0] -> 3[1] via SHM/direct/direct\n"
    )
    text = text.replace("nRanks 2", "nRanks 4")

    assert read(text).loud()["COM-P2P-SOME"].hosts == ("node-b",)


def test_p2p_disabled_by_a_setting(read: Callable[..., Run]) -> None:
    text = (
        ONE_NODE
        + f"{A} NCCL_P2P_DISABLE set by environment to 1.\n{A} Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
    )

    assert "NCCL_P2P_DISABLE=1" in read(text).loud()["COM-P2P-ENV"].message


def test_network_inside_one_node(read: Callable[..., Run]) -> None:
    text = ONE_NODE + f"{A} Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n"

    assert set(read(text).loud()) == {"COM-NET-INSIDE"}


def test_docker_interface_between_hosts(read: Callable[..., Run]) -> None:
    text = f"{A} Bootstrap: Using docker0:172.17.0.1<0>\n{A} NET/Socket : Using [0]docker0:172.17.0.1<0>\n{A} Using network Socket\n"
    text += TWO_NODES + f"{A} Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
    found = read(text).loud()["COM-IF-WRONG"]

    assert (found.severity, found.devices) == ("critical", ("docker0",))


def test_management_interface_next_to_rdma_is_normal(read: Callable[..., Run]) -> None:
    text = f"{A} Bootstrap: Using eno1:10.0.0.5<0>\n{A} NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eno1:10.0.0.5<0>\n"

    assert read(text + TWO_NODES + GDR).loud() == {}


def test_hosts_with_different_numbers_of_nics(read: Callable[..., Run]) -> None:
    text = f"{A} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.11<0>\n"
    text += f"{B} NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.12<0>\n"
    found = read(text + TWO_NODES + GDR).loud()["COM-NIC-DIFFER"]

    assert (found.severity, found.hosts) == ("critical", ("node-b",))


def test_versions_of_processes_differ(read: Callable[..., Run]) -> None:
    text = f"{A} NCCL version 2.23.4+cuda12.6\n{B} NCCL version 2.27.3+cuda12.9\n"

    assert read(text).loud()["COM-VERSION"].cause == "version_mismatch"


def test_settings_that_contradict_each_other(read: Callable[..., Run]) -> None:
    text = f"{A} NCCL_ALGO set by environment to Ring\n{B} NCCL_ALGO set by environment to Tree\n"

    assert "NCCL_ALGO" in read(text + TWO_NODES + GDR).loud()["COM-ENV-DIFFER"].message


def test_protocol_set_by_a_plugin_is_normal(read: Callable[..., Run]) -> None:
    text = f"{A} NET/OFI Adding NCCL_PROTO=simple to environment\n{A} NCCL_PROTO set by environment to simple\n"

    assert [item.code for item in read(text + TWO_NODES + GDR).findings()] == []


def test_degraded_pci_link_of_one_gpu_of_eight(read: Callable[..., Run]) -> None:
    dump = f"{A} === System : maxBw 24.0 totalBw 24.0 ===\n{A} CPU/0 (1/2/-1)\n"
    dump += "".join(f"{A} + PCI[{3.0 if gpu == 5 else 24.0}] - GPU/{gpu}000 ({gpu})\n" for gpu in range(8))
    found = read(ONE_NODE + dump).loud()["COM-PCI"]

    assert found.devices == ("PCI GPU/5000",)
    assert found.cause == "intra_node_link"


def test_rails_crossed_although_forbidden(read: Callable[..., Run]) -> None:
    text = f"{A} NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.11<0>\n{A} NCCL_CROSS_NIC set by environment to 0.\n"
    text += TWO_NODES.replace("nRanks 2", "nRanks 8")
    text += "".join(f"{A} Channel {c:02d}/0 : 7[3] -> 0[0] [receive] via NET/IB/0/GDRDMA\n" for c in range(4))
    found = read(text).loud()

    assert found["COM-RAIL"].cause == "rail_mismatch"


def test_hanging_initialisation(read: Callable[..., Run]) -> None:
    line = "node-{h}:10{r}:10{r} [0] NCCL INFO ncclCommInitRank comm 0x5{r} rank {r} nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0x45 - Init START\n"
    found = read(line.format(h="a", r=0) + line.format(h="b", r=1)).loud()

    assert found["COM-HANG-INIT"].severity == "critical"


def test_slow_start_is_information(read: Callable[..., Run]) -> None:
    text = f"{A} Bootstrap timings total 61.0 (create 0.0, send 0.0, recv 60.9, ring 0.0, delay 0.0)\n{TWO_NODES}{GDR}"

    assert [(item.code, item.severity) for item in read(text).findings()] == [("COM-INIT-SLOW", "info")]


def test_rccl_advice(read: Callable[..., Run]) -> None:
    text = f'\n{W} NUMA auto balancing enabled which can lead to variability in the RCCL performance! Disable by "sudo sysctl kernel.numa_balancing=0"\n'

    assert set(read(ONE_NODE + text + f"{A} Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n").loud()) == {"COM-HOST-TUNING"}


def test_every_rule_is_documented_and_every_code_has_a_rule() -> None:
    text = (Path(__file__).parents[2] / "docs" / "nccl_logs.md").read_text(encoding="utf-8")
    rules = {rule.code for rule in BOOK if rule.code.startswith("COM-")}

    assert {code for code in rules if f"`{code}`" not in text} == set()
    assert {"COM-" + code.upper().replace("_", "-") for code in comm_errors.CODES} <= rules


def test_foreign_connections_are_a_warning(read: Callable[..., Run]) -> None:
    text = f"{TWO_NODES}{GDR}\n{W} socketFinalizeAccept: wrong magic 123 != 456\n"

    assert {code: item.severity for code, item in read(text).loud().items()} == {"COM-FOREIGN-CONNECTION": "warning"}


def test_changed_addresses_of_a_nic(read: Callable[..., Run]) -> None:
    text = f"{TWO_NODES}{GDR}\n{W} NET/IB : mlx5_1:1 Got async event : GID table change\n"

    assert set(read(text).loud()) == {"COM-IB-GID-CHANGED"}


def test_low_latency_protocol_for_large_messages(read: Callable[..., Run]) -> None:
    small = f"{A} AllReduce: 4096 Bytes -> Algo TREE proto LL channel{{Lo..Hi}}={{0..0}}\n"
    large = f"{A} AllReduce: 268435456 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}}\n"

    assert set(read(TWO_NODES + GDR + small + large).loud()) == {"COM-TUNER-LL"}


def test_calls_that_differ_between_ranks(read: Callable[..., Run]) -> None:
    call = "{h}:1:2 [0] NCCL INFO {op}: opCount {n} sendbuff 0x7 recvbuff 0x7 count {c} datatype 7 op 0 root 0 comm 0x5{r} [nranks=3] stream 0x5\n"
    text = ""
    for rank in range(3):
        host = f"node-{rank}"
        text += f"{host}:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 3 cudaDev 0 nvmlDev 0 busId 1 commId 0xb - Init COMPLETE\n"
        text += call.format(h=host, op="AllReduce", n=0, c=10, r=rank)
        text += call.format(h=host, op="AllReduce" if rank != 2 else "AllGather", n=1, c=20, r=rank)
    found = read(text).loud()["COM-COLL-DESYNC"]

    assert found.ranks == (2,)
    assert "operation 1" in found.message
