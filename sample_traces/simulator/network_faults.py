"""Faults of links, ports and the fabric. See faults.py for what a fault is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.faults import ALL_STEPS, Truth

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.faults import Scene


def nic_slow(host: int, share: float) -> Callable[[Scene], Truth]:
    """The ports of a host carry only a share of their rate."""

    def apply(scene: Scene) -> Truth:
        ranks = scene.host(host)
        scene.given.nic[ranks] *= share
        return Truth("nic_slow", ranks, [scene.name(host)], magnitude=share, what="network ports below their rate")

    return apply


def link_errors(rank: int, probability: float, low: float, high: float) -> Callable[[Scene], Truth]:
    """The port of one GPU loses packets: a few transfers take much longer."""

    def apply(scene: Scene) -> Truth:
        scene.given.tail[rank] = (probability, low, high)
        hosts = scene.place([rank])
        return Truth("link_errors", [rank], hosts, ALL_STEPS, "transient", probability, "retransmissions on one port")

    return apply


def nvlink_slow(host: int, factor: float) -> Callable[[Scene], Truth]:
    """Links inside a host run degraded."""

    def apply(scene: Scene) -> Truth:
        ranks = scene.host(host)
        scene.given.nvlink[ranks] /= factor
        return Truth("intra_node_link", ranks, [scene.name(host)], magnitude=factor, what="NVLink degraded")

    return apply


def congestion(probability: float, low: float, high: float) -> Callable[[Scene], Truth]:
    """Transfers between hosts collide at random."""

    def apply(scene: Scene) -> Truth:
        scene.given.congestion = (probability, low, high)
        return Truth(
            "congestion", persistence="rotating", magnitude=probability, what="moving congestion in the fabric"
        )

    return apply


def sockets(share: float) -> Callable[[Scene], Truth]:
    """No process finds an RDMA device: traffic between hosts goes through TCP sockets."""

    def apply(scene: Scene) -> Truth:
        scene.given.nic[:] *= share
        return Truth("no_rdma", [], list(scene.topology.host_names), magnitude=share, what="sockets instead of RDMA")

    return apply
