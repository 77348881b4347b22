"""NICs and interfaces of hosts: how many, which kind, which lead nowhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diagnose.analysis.comm_audit.records import Records

CONTAINER = re.compile(
    r"docker|veth|virbr|br-[0-9a-f]{6,}|cni|flannel|cali|cilium|lxc|podman|kube|vmnet|vboxnet|ip6tnl|sit\d|gre\d|dummy"
)
TUNNEL = re.compile(r"tun|tap|tailscale|wg\d|vpn|ppp|zt\w+")
MANAGEMENT = re.compile(r"mgmt|mgt\d|management|ipmi|bmc|idrac|ilo\d|oob")
LOOPBACK = re.compile(r"lo\d?$")


def red_flag(name: str, address: str | None) -> str | None:
    """Why an interface should not carry traffic between hosts, None when nothing speaks against it."""
    if LOOPBACK.fullmatch(name):
        return "loopback"
    if CONTAINER.match(name):
        return "a container or virtual bridge"
    if TUNNEL.match(name):
        return "a tunnel"
    if MANAGEMENT.match(name):
        return "a management interface"
    text = (address or "").lower()
    if text.startswith(("fe80", "169.254.")):
        return "link-local address"
    return None


def nic_lists(records: Records) -> dict[str, dict[int, dict[str, Any]]]:
    """RDMA NICs of each named host by their index in the list that NCCL prints."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in records.nets.iter_rows(named=True):
        if row["kind"] in {"ib", "ofi"} and row["host"] is not None and row["device_index"] is not None:
            found.setdefault(row["host"], {}).setdefault(row["device_index"], row)
    return found


def complete_lists(records: Records) -> dict[str, list[dict[str, Any]]]:
    """NICs of hosts whose whole list is printed ("NET/IB : Using [0].." or "found n nics"), in order."""
    result = {}
    for host, nics in nic_lists(records).items():
        rows = [nics[index] for index in sorted(nics)]
        whole = all(row["port"] is not None or row["kind"] == "ofi" for row in rows) and sorted(nics) == list(
            range(len(rows))
        )
        if whole:
            result[host] = rows
    return result


def nics_used(records: Records) -> dict[str, set[int]]:
    """NIC indices that connections of each host use."""
    found: dict[str, set[int]] = {}
    for row in records.links.iter_rows(named=True):
        if row["nic"] is not None and row["host"] is not None and row["network"] not in {"Socket", "FastSocket"}:
            found.setdefault(row["host"], set()).add(row["nic"])
    return found


def interfaces(records: Records, kinds: tuple[str, ...]) -> dict[str | None, list[dict[str, Any]]]:
    """Interfaces of each host in the lists of these kinds."""
    found: dict[str | None, list[dict[str, Any]]] = {}
    for row in records.nets.iter_rows(named=True):
        if row["kind"] in kinds:
            found.setdefault(row["host"], []).append(row)
    return found
