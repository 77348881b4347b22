"""Known messages of NCCL, RCCL and their network plugins that mean something went wrong, and those that mean nothing.

Words such as "failed" occur in healthy logs: only a known shape becomes an event with a role. ``cause`` can start a
failure, ``echo`` follows from another one, ``advice`` is a hint on the machine, ``fact`` says how something is,
``noise`` is normal and kept out. A WARN of no known shape becomes ``nccl_warning`` (a fact).
Sources: NCCL src at the tags v2.4 to v2.30.7, aws-ofi-nccl, nccl-rdma-sharp-plugins, RCCL src/init.cc.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Role = Literal["cause", "echo", "advice", "fact", "noise"]


class Signature(NamedTuple):
    """A message: ``needle`` must occur, ``pattern`` gives fields (columns of comm_event) by its group names."""

    code: str
    role: Role
    needle: str
    pattern: re.Pattern[str] | None = None


def _signature(code: str, role: Role, needle: str, pattern: str | None = None) -> Signature:
    return Signature(code, role, needle, None if pattern is None else re.compile(pattern))


_ERROR = r"(?P<detail>[A-Z][\w ,'\-]{3,60})"

SIGNATURES: tuple[Signature, ...] = (
    # Completions of the network card; the status decides the code (13.4 of the format notes).
    _signature(
        "ib_completion",
        "cause",
        "Got completion",
        r"(?:from peer (?P<peer>[\w.:%\-]+)(?:<\d+>)? )?with (?:error |status=(?:\w+\()?)(?P<status>\d+)"
        r"(?:.*?hca (?P<subject>[\w\-]+))?",
    ),
    _signature(
        "ib_qp",
        "cause",
        "ibv_modify_qp failed",
        r"failed(?: with)?(?: error)?(?: (?P<status>\d+))? ?(?P<detail>[A-Z][a-z][\w ]+)?"
        r"(?:.*?on dev (?P<subject>[\w\-]+(?::\d+)?))?(?:.*?remote GID (?P<peer>[\w:.]+))?",
    ),
    _signature("gdr_registration", "cause", "failed with error Bad address"),
    _signature("ib_no_device", "cause", "failed with error No such device"),
    _signature("ib_memlock", "cause", "ibv_create_cq failed", r"Call to (?P<subject>\w+)"),
    _signature("ib_memlock", "cause", "ibv_create_qp failed", r"Call to (?P<subject>\w+)"),
    _signature("ib_memlock", "cause", "ibv_reg_mr", r"Call to (?P<subject>\w+) failed"),
    _signature("ib_memlock", "cause", "ibv_alloc_pd failed", r"Call to (?P<subject>\w+)"),
    _signature("ib_gid_changed", "cause", "GID table change", r"NET/IB ?: (?P<subject>[\w\-]+)(?::\d+)? Got"),
    _signature(
        "ib_async",
        "cause",
        "async",
        r"NET/IB ?: (?P<subject>[\w\-]+)(?::\d+)? Got (?:(?:non-)?fatal )?async"
        r" (?:error |fatal )?event ?: (?P<detail>.{3,60})",
    ),
    _signature(
        "ib_async", "cause", "Got async", r"NET/IB ?: (?P<subject>[\w\-]+)(?::\d+)? Got async.*?: (?P<detail>.{3,60})"
    ),
    _signature(
        "ib_async", "cause", "non-fatal async", r"NET/IB ?: (?P<subject>[\w\-]+)(?::\d+)? Got.*?: (?P<detail>.{3,60})"
    ),
    _signature("nic_open_failed", "cause", "Unable to open device", r"Unable to open device (?P<subject>[\w\-]+)"),
    _signature("link_layer_mixed", "cause", "Attempted to connect incompatible devices"),
    _signature("link_layer_mixed", "cause", "net devices with different link_layer"),
    _signature(
        "link_speed_changed",
        "cause",
        "speed change detected",
        r": (?P<subject>[\w\-]+):\d+ speed change detected: (?P<value_a>\d+) -> (?P<value_b>\d+)",
    ),
    _signature("nic_failed", "cause", "marked as failed", r"Device (?P<subject>\S+) marked as failed"),
    _signature("nic_recovered", "fact", "Port recovery succeeded"),
    _signature("nic_failed", "cause", "Port recovery failed"),
    _signature("nic_failed", "cause", "failed devices", r"Detected (?P<value_a>\d+) failed devices"),
    # Sockets and bootstrap.
    _signature(
        "connect_failed",
        "cause",
        "onnect to ",
        r"[Cc]onnect to (?P<peer>[\w.:%\-]+?)\s?(?:<\d*>)? failed ?: " + _ERROR,
    ),
    _signature("connect_failed", "cause", "exceeded error retry count", r"(?:to |with )(?P<peer>[\w.:%\-]+)<"),
    _signature("connect_failed", "cause", "exceeded timeouts", r"(?:to |with )(?P<peer>[\w.:%\-]+)<"),
    _signature("no_interface", "cause", "no socket interface found"),
    _signature("no_interface", "cause", "no device found matching", r"matching (?P<subject>\S+?),"),
    _signature("no_interface", "cause", "NET/Socket : no interface found"),
    _signature("no_interface", "cause", "No interface found in the same subnet", r"remote address (?P<peer>\S+)"),
    _signature("no_interface", "cause", "No socket interface found"),
    _signature("bootstrap_mismatch", "cause", "Bootstrap Root : mismatch"),
    _signature("bootstrap_mismatch", "cause", "has already checked in", r"rank (?P<comm_rank>\d+) of"),
    _signature("bootstrap_mismatch", "cause", "Message truncated : received"),
    _signature("peer_closed", "echo", "Connection closed by remote peer", r"remote peer ?(?P<peer>[\w.:%\-]+)?"),
    _signature("foreign_connection", "cause", "wrong magic"),
    _signature("foreign_connection", "cause", "socketFinalizeAccept: wrong type"),
    _signature("socket_echo", "echo", "Socket recv failed while polling"),
    _signature("socket_echo", "echo", "Proxy Call to rank"),
    _signature("socket_echo", "echo", "Failed to execute operation"),
    # Shared memory.
    _signature("shm_full", "cause", "No space left on device", r"(?P<subject>/dev/shm/\S+)?"),
    _signature("shm_attach", "cause", "attaching to shared memory segment", r"segment (?P<subject>\S+)"),
    _signature("shm_error", "cause", "Error while creating shared memory segment", r"error: (?P<detail>.{3,60})"),
    # CUDA and GPUs.
    _signature(
        "nvls_bind_failed", "cause", "Failed to bind NVLink SHARP", r"CUDA error (?P<status>\d+) '(?P<detail>[^']+)'"
    ),
    _signature("mnnvl_imex", "cause", "is available but not", r"MNNVL"),
    _signature("cuda_echo", "echo", "commDestroySync"),
    _signature("cuda_echo", "echo", "commReclaim"),
    _signature("cuda_error", "cause", "Cuda failure", r"Cuda failure (?P<status>\d+)? ?'(?P<detail>[^']+)'"),
    _signature("cuda_error", "cause", "Cuda failure"),
    _signature(
        "duplicate_gpu",
        "cause",
        "Duplicate GPU detected",
        r"rank (?P<comm_rank>\d+) and rank (?P<peer>\d+) both on CUDA device (?P<subject>\w+)",
    ),
    _signature("duplicate_gpu", "cause", "ranks on the same GPU"),
    _signature("duplicate_gpu", "cause", "NCCL_MULTI_RANK_GPU_ENABLE=1"),
    _signature("nvlink_p2p_broken", "cause", "NVLINK connected GPUs", r"GPUs (?P<subject>\S+ and \S+?)\."),
    _signature(
        "p2p_pair_disabled", "fact", "P2P is disabled between connected GPUs", r"GPUs (?P<subject>\S+ and \S+?)\."
    ),
    _signature("p2p_ipc_failed", "cause", "Could not enable P2P between", r"between dev (?P<subject>.+)"),
    _signature("p2p_ipc_failed", "cause", "peer query failed"),
    _signature("p2p_ipc_failed", "cause", "failed to peer with device"),
    _signature("p2p_ipc_failed", "cause", "cudaIpcGetMemHandle failed"),
    _signature("p2p_ipc_failed", "cause", "Legacy IPC not supported"),
    _signature(
        "no_transport", "cause", "No transport found for rank", r"rank (?P<comm_rank>\d+)\[\w+\] -> rank (?P<peer>\d+)"
    ),
    _signature("driver_problem", "cause", "Minimum requirement is"),
    _signature("driver_problem", "cause", "nvmlInit failed"),
    _signature("topology_too_large", "cause", "too many XML nodes"),
    _signature("topology_wrong", "cause", "XML Topology has wrong version"),
    # Ranks that disagree.
    _signature(
        "version_mismatch",
        "cause",
        "ismatched NCCL version",
        r"rank (?P<comm_rank>\d+) version (?P<value_a>\d+) rank (?P<peer>\d+) version (?P<value_b>\d+)",
    ),
    _signature(
        "version_mismatch",
        "cause",
        "NCCL version mismatch with remote peer",
        r"peer (?P<peer>\S+?)(?:<\d+>)? \(local: (?P<detail>[^)]+)\)",
    ),
    _signature(
        "collective_mismatch",
        "cause",
        "collective mismatch error",
        r"peer (?P<peer>[\w.:%\-]+)<.*local size (?P<value_a>\d+) remote size (?P<value_b>\d+)",
    ),
    _signature(
        "collective_mismatch",
        "cause",
        "posted incorrect receive info",
        r"(?:peer )?(?P<peer>[\w.:%\-]+)?(?:<\d+>)? ?posted incorrect",
    ),
    _signature(
        "collective_mismatch",
        "cause",
        "essage truncated : receiving",
        r"receiving (?P<value_a>\d+) bytes instead of (?P<value_b>\d+)",
    ),
    _signature("collective_mismatch", "cause", "Mismatched collective detected"),
    _signature("collective_mismatch", "cause", "Your program may be hanging"),
    _signature(
        "net_count_mixed",
        "cause",
        "Detected mixed local Net device counts",
        r"min (?P<value_a>\d+), max (?P<value_b>\d+)",
    ),
    _signature("rail_devices_differ", "cause", "mismatched physical devices between local"),
    _signature("rail_devices_differ", "cause", "different number of devices"),
    # Network plugins.
    _signature("ofi_failed", "cause", "Unable to find a protocol that worked"),
    _signature("ofi_failed", "cause", "No eligible providers were found"),
    _signature("ofi_failed", "echo", "aws-ofi-nccl initialization failed"),
    _signature("ofi_failed", "echo", "Initializing plugin failed"),
    _signature(
        "ofi_request_failed", "cause", "completed with error. RC", r"Error: (?P<status>\d+) \((?P<detail>[^)]+)\)"
    ),
    _signature("net_none", "cause", "Failed to initialize any NET plugin"),
    _signature("gdr_off_reason", "fact", "disabling GDR", r"(?P<detail>NET/OFI .{3,100})"),
    _signature("gdr_off_reason", "fact", "GDR not supported"),
    _signature("gdr_no_module", "fact", "(no module)", r"for HCA \d+ '(?P<subject>[^']+)'"),
    _signature("gdr_no_module", "fact", "nv_peer_mem"),
    _signature("collnet_fallback", "fact", "Cannot initialize CollNet"),
    _signature(
        "env_invalid", "fact", "Invalid value", r"Invalid value (?P<detail>.+?) for (?P<subject>\w+), using default"
    ),
    _signature("cumem_host_fallback", "fact", "cuMem host allocations do not appear to be working"),
    _signature("connect_retry", "fact", "onnect returned", r"returned (?P<detail>[A-Z][\w ]{3,40})"),
    _signature(
        "connect_retry",
        "fact",
        "returned Connection",
        r"connect to (?P<peer>[\w.:%\-]+)(?:<\d+>)? returned (?P<detail>[\w ]{3,40}), retrying",
    ),
    # Advice of RCCL on the machine.
    _signature("numa_balancing", "advice", "NUMA auto balancing enabled"),
    _signature("iommu_pt", "advice", 'Missing "iommu=pt"'),
    _signature("fine_grain_pcie", "advice", "HSA_FORCE_FINE_GRAIN_PCIE"),
    # RAS.
    _signature("ras_dead", "cause", "as DEAD", r"declaring peer (?P<peer>[\w.:%\-]+)"),
    _signature("ras_timeout", "fact", "RAS keep-alive timeout", r"connection with (?P<peer>[\w.:%\-]+)"),
    # Normal.
    _signature("noise", "noise", "Datatypes not supported"),
    _signature("noise", "noise", "Failed to open libibverbs"),
    _signature("noise", "noise", "Stack size limit"),
    _signature("noise", "noise", "Failed to find nccl"),
    _signature("noise", "noise", "Could not find:"),
)

_IB_STATUS = {
    4: ("ib_local_protection", "cause"),
    5: ("ib_flush", "echo"),
    9: ("ib_remote_error", "cause"),
    10: ("ib_remote_error", "cause"),
    11: ("ib_remote_error", "cause"),
    12: ("ib_retry_exceeded", "cause"),
    13: ("ib_rnr_retry", "cause"),
}
_QP_ERRORS = (
    ("ib_qp_timeout", 110, "timed out"),
    ("ib_gid_index", 22, "Invalid argument"),
    ("ib_unreachable", 101, "unreachable"),
    ("ib_no_device", 19, "No such device"),
)
_ASYNC = (("ib_port_error", "port"), ("ib_port_error", "link"), ("ib_async_fatal", ""))


class Match(NamedTuple):
    """A recognised message with the columns of comm_event that it fills."""

    code: str
    role: Role
    fields: dict[str, str | int | float]


_NUMBERS = {"status": int, "comm_rank": int, "value_a": float, "value_b": float}


def recognise(message: str, *, warning: bool) -> Match | None:
    """The signature of a message; an unknown WARN is a ``nccl_warning``, an unknown INFO is None."""
    for signature in SIGNATURES:
        if signature.needle not in message:
            continue
        found = signature.pattern.search(message) if signature.pattern else None
        if found is None and signature.pattern is not None and signature.code in _NEEDS_PATTERN:
            continue
        if signature.role == "noise":
            return None
        if signature.code == "foreign_connection" and not warning:
            return None
        fields: dict[str, str | int | float] = {}
        for name, value in found.groupdict().items() if found else ():
            if value is not None:
                fields[name] = _NUMBERS[name](value) if name in _NUMBERS else value.strip()
        return _refined(Match(signature.code, signature.role, fields), message)
    return Match("nccl_warning", "fact", {}) if warning else None


_NEEDS_PATTERN = {
    "ib_completion",
    "connect_failed",
    "ib_async",
    "mnnvl_imex",
    "ras_dead",
    "connect_retry",
    "ib_memlock",
}


def _refined(match: Match, message: str) -> Match:
    if match.code == "ib_completion":
        code, role = _IB_STATUS.get(int(match.fields.get("status", 0)), ("ib_completion", "cause"))
        return Match(code, role, match.fields)  # type: ignore[arg-type]
    if match.code == "ib_qp":
        if "retrying" in message:
            return Match("ib_qp_retry", "fact", match.fields)
        for code, number, text in _QP_ERRORS:
            if match.fields.get("status") == number or text in message:
                return Match(code, "cause", match.fields)
        return Match("ib_qp_error", "cause", match.fields)
    if match.code == "ib_async":
        detail = str(match.fields.get("detail", "")).lower()
        code = next(code for code, word in _ASYNC if word in detail)
        return Match(code, "fact" if "non-fatal" in message else "cause", match.fields)
    if match.code == "connect_failed" and "failed" not in message and "exceeded" not in message:
        return Match("connect_retry", "fact", match.fields)
    return match
