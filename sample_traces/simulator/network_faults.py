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


def storage_traffic(host: int, bytes_per_s: float) -> Callable[[Scene], Truth]:
    """Data loading of a host comes over its training ports: gradients get what is left of them."""

    def apply(scene: Scene) -> Truth:
        ranks, port = scene.host(host), scene.job.cluster.nic
        scene.given.nic[ranks] *= max(0.05, 1 - bytes_per_s / port)
        scene.given.foreign[host] = bytes_per_s
        what = "storage traffic on the training ports"
        return Truth("traffic_mixing", ranks, [scene.name(host)], magnitude=bytes_per_s / port, what=what)

    return apply


def host_sockets(host: int, share: float) -> Callable[[Scene], Truth]:
    """One host finds no RDMA device: every communicator that includes it goes through TCP sockets, others stay.

    All ranks of a communicator must use one network, so the launcher gives communicators with that host
    the network Socket by their configuration; the ports of the other hosts serve the rest.
    """

    def apply(scene: Scene) -> Truth:
        ranks = scene.host(host)
        scene.given.nic[ranks] *= share
        scene.given.socket_hosts = frozenset({host})
        return Truth("partial_rdma", ranks, [scene.name(host)], magnitude=share, what="one host on sockets")

    return apply


def sockets(share: float) -> Callable[[Scene], Truth]:
    """No process finds an RDMA device: traffic between hosts goes through TCP sockets."""

    def apply(scene: Scene) -> Truth:
        scene.given.nic[:] *= share
        scene.given.socket_hosts = frozenset(range(scene.topology.hosts))
        return Truth("no_rdma", [], list(scene.topology.host_names), magnitude=share, what="sockets instead of RDMA")

    return apply
