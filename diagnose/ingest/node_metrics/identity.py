"""Who a sample speaks of: hosts, GPUs, PCI functions and ports under one spelling each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePosixPath

HOST_LABELS = (
    "Hostname",
    "hostname",
    "nodename",
    "node_name",
    "node",
    "kubernetes_node",
    "kubernetes_io_hostname",
    "host",
)
"""Labels that state a host, in order of trust; ``instance`` is the scrape address and comes last."""

NOBODY = frozenset({"n/a", "not_set", "unknown", "localhost", "127.0.0.1", "::1", "(none)"})
"""Names that no host can be told by."""

_ADDRESS = re.compile(r"^\d+\.\d+\.\d+\.\d+$")
_PCI = re.compile(r"^(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?$")
_HOST_WORD = r"(?:node|host|worker|server|compute|dgx|hgx|nid|gpu-?node|gpuhost|cn|ip|slurm|trainer|master)"
_HOST_COMPONENT = re.compile(rf"^{_HOST_WORD}[-_]?[a-z0-9-]*\d+[a-z0-9-]*(?:\.[a-z0-9.-]+)?$", re.IGNORECASE)
_HOST_TOKEN = re.compile(rf"(?:^|[-_.])({_HOST_WORD}-?\d+[a-z0-9]*)(?=$|[-_.])", re.IGNORECASE)
_EPOCH_STEM = re.compile(r"^(\d{10})(?:\.(\d{1,9}))?(?:\.|$)")
_PHASES = (
    (re.compile(r"(?:^|[/_.-])(?:before|start|pre)(?:[/_.-]|$)", re.IGNORECASE), 0),
    (re.compile(r"(?:^|[/_.-])(?:after|end|post)(?:[/_.-]|$)", re.IGNORECASE), 1),
)
FIRST_PLAUSIBLE_EPOCH_S = 946_684_800  # 2000-01-01
LAST_PLAUSIBLE_EPOCH_S = 4_102_444_800  # 2100-01-01


def host_name(text: str) -> str | None:
    """A host as joins use it: no port, no domain, lower case; addresses stay whole. Empty text is None."""
    name = text.strip().strip('"')
    if name.startswith("["):
        return name[1:].split("]", 1)[0].lower()
    if name.count(":") == 1:
        name = name.split(":", 1)[0]
    if not name or name.lower() in NOBODY:
        return None
    if _ADDRESS.match(name) or ":" in name:
        return name.lower()
    return name.split(".", 1)[0].lower() or None


def host_of_labels(labels: Mapping[str, str]) -> str | None:
    """The host a label set states, None when it states none."""
    for key in HOST_LABELS:
        if (value := labels.get(key)) and (name := host_name(value)):
            return name
    instance = labels.get("instance", "")
    return host_name(instance) if instance else None


def host_of_path(path: PurePosixPath) -> str | None:
    """A host that the file's name or a folder spells out (node3, ip-10-0-0-1), never a guess from other words."""
    for part in reversed(path.parts[:-1]):
        if _HOST_COMPONENT.match(part):
            return host_name(part)
    if epoch_of_path(path) is not None and len(path.parts) > 1:
        return host_name(path.parts[-2])
    match = _HOST_TOKEN.search(path.name.split(".", 1)[0])
    return host_name(match.group(1)) if match else None


def epoch_of_path(path: PurePosixPath) -> int | None:
    """Unix nanoseconds when the file is named by its scrape time (``1796064688.047.prom.gz``)."""
    match = _EPOCH_STEM.match(path.name)
    if match is None or not FIRST_PLAUSIBLE_EPOCH_S <= int(match.group(1)) <= LAST_PLAUSIBLE_EPOCH_S:
        return None
    fraction = (match.group(2) or "").ljust(9, "0")
    return int(match.group(1)) * 1_000_000_000 + int(fraction)


def phase_of_path(path: str) -> int | None:
    """0 for a file named as taken before the run, 1 for after it, None otherwise."""
    for pattern, phase in _PHASES:
        if pattern.search(path):
            return phase
    return None


def pci_id(text: str) -> str | None:
    """``dddddddd:bb:dd.f`` in lower case: eight-digit domain, function 0 when absent.

    Source: nvidia-smi prints eight domain digits, sysfs four, the kernel log no function.
    """
    match = _PCI.match(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08x}:{bus.lower()}:{device.lower()}.{function or '0'}"


def gpu_uuid(text: str) -> str | None:
    """``GPU-`` and the lower-case uuid; MIG and bare uuids included, None for other text."""
    value = text.strip().strip('"')
    if value.upper().startswith(("GPU-", "MIG-")):
        return value[:4].upper() + value[4:].lower()
    return (
        f"GPU-{value.lower()}" if re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value) else None
    )


def gpu_entity(*, uuid: str | None = None, pci: str | None = None, index: str | None = None) -> str:
    """The best name of a GPU: its uuid, else its PCI id, else its index on the host."""
    if uuid and (known := gpu_uuid(uuid)):
        return f"gpu:{known}"
    if pci and (place := pci_id(pci)):
        return f"gpu:pci:{place}"
    return f"gpu:index:{index}" if index is not None and index != "" else "gpu"


def nic_entity(device: str, port: str | int | None = None) -> str:
    """``nic:<device>/<port>`` for RDMA devices, ``nic:<device>`` for network interfaces."""
    return f"nic:{device}/{port}" if port not in (None, "") else f"nic:{device}"
