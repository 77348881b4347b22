"""NIC counters under one name each: InfiniBand port counters, RDMA hardware counters, EFA, ethtool statistics."""

from __future__ import annotations

import re
from typing import NamedTuple

WORD = 4.0
"""Octets of one unit of port_xmit_data and port_rcv_data in sysfs, perfquery, telegraf and dynolog."""


class Counter(NamedTuple):
    """Canonical metric, factor, and a suffix for the entity (a priority)."""

    metric: str
    scale: float = 1.0
    part: str = ""


PORT_COUNTERS: dict[str, Counter] = {
    "port_xmit_data": Counter("nic.tx_bytes_total", WORD),
    "port_rcv_data": Counter("nic.rx_bytes_total", WORD),
    "port_xmit_packets": Counter("nic.tx_packets_total"),
    "port_rcv_packets": Counter("nic.rx_packets_total"),
    "port_xmit_wait": Counter("nic.xmit_wait_ticks_total"),
    "symbol_error": Counter("nic.symbol_errors_total"),
    "link_error_recovery": Counter("nic.link_recovery_total"),
    "link_downed": Counter("nic.link_downed_total"),
    "port_rcv_errors": Counter("nic.rcv_errors_total"),
    "port_rcv_remote_physical_errors": Counter("nic.rcv_remote_phys_total"),
    "port_rcv_switch_relay_errors": Counter("nic.rcv_switch_relay_total"),
    "port_xmit_discards": Counter("nic.xmit_discards_total"),
    "port_xmit_constraint_errors": Counter("nic.xmit_constraint_total"),
    "port_rcv_constraint_errors": Counter("nic.rcv_constraint_total"),
    "local_link_integrity_errors": Counter("nic.local_integrity_total"),
    "excessive_buffer_overrun_errors": Counter("nic.buffer_overrun_total"),
    "vl15_dropped": Counter("nic.vl15_dropped_total"),
}
"""Names in ``ports/<p>/counters`` (lower case). Source: kernel Documentation/ABI/stable/sysfs-class-infiniband."""

HW_COUNTERS: dict[str, Counter] = {
    "out_of_sequence": Counter("nic.roce.out_of_sequence_total"),
    "packet_seq_err": Counter("nic.roce.packet_seq_err_total"),
    "local_ack_timeout_err": Counter("nic.roce.ack_timeout_total"),
    "rnr_nak_retry_err": Counter("nic.roce.rnr_nak_retry_total"),
    "implied_nak_seq_err": Counter("nic.roce.implied_nak_total"),
    "duplicate_request": Counter("nic.roce.duplicate_request_total"),
    "roce_adp_retrans": Counter("nic.roce.adp_retrans_total"),
    "roce_adp_retrans_to": Counter("nic.roce.adp_retrans_to_total"),
    "rx_icrc_encapsulated": Counter("nic.roce.icrc_err_total"),
    "out_of_buffer": Counter("nic.roce.out_of_buffer_total"),
    "np_cnp_sent": Counter("nic.roce.cnp_sent_total"),
    "rp_cnp_handled": Counter("nic.roce.cnp_handled_total"),
    "rp_cnp_ignored": Counter("nic.roce.cnp_ignored_total"),
    "np_ecn_marked_roce_packets": Counter("nic.roce.ecn_marked_total"),
    "roce_slow_restart": Counter("nic.roce.slow_restart_total"),
    "req_cqe_error": Counter("nic.roce.req_cqe_error_total"),
    "resp_cqe_error": Counter("nic.roce.resp_cqe_error_total"),
}
"""Names in ``ports/<p>/hw_counters``; ``lifespan`` there is a cache time and no counter.

Source: NVIDIA, "Understanding mlx5 Linux counters and status parameters"
"""

EFA_COUNTERS: dict[str, Counter] = {
    "tx_bytes": Counter("nic.tx_bytes_total"),
    "rx_bytes": Counter("nic.rx_bytes_total"),
    "tx_pkts": Counter("nic.tx_packets_total"),
    "rx_pkts": Counter("nic.rx_packets_total"),
    "rx_drops": Counter("nic.efa.rx_drops_total"),
    "retrans_bytes": Counter("nic.efa.retrans_bytes_total"),
    "retrans_pkts": Counter("nic.efa.retrans_pkts_total"),
    "retrans_timeout_events": Counter("nic.efa.retrans_timeout_total"),
    "impaired_remote_conn_events": Counter("nic.efa.impaired_total"),
    "unresponsive_remote_events": Counter("nic.efa.unresponsive_total"),
    "rdma_read_bytes": Counter("nic.efa.rdma_read_bytes_total"),
    "rdma_write_bytes": Counter("nic.efa.rdma_write_bytes_total"),
}
"""Device-cumulative counters of EFA, not cleared by a reboot of the host."""

ETHTOOL: dict[str, Counter] = {
    "rx_packets": Counter("nic.rx_packets_total"),
    "tx_packets": Counter("nic.tx_packets_total"),
    "rx_bytes": Counter("nic.rx_bytes_total"),
    "tx_bytes": Counter("nic.tx_bytes_total"),
    "rx_errors": Counter("nic.rx_errors_total"),
    "tx_errors": Counter("nic.tx_errors_total"),
    "rx_dropped": Counter("nic.rx_drops_total"),
    "tx_dropped": Counter("nic.tx_drops_total"),
    "port.rx_dropped": Counter("nic.rx_discards_total"),
    "rx_discards_phy": Counter("nic.rx_discards_total"),
    "rx_discards": Counter("nic.rx_discards_total"),
    "tx_discards_phy": Counter("nic.tx_discards_total"),
    "rx_missed": Counter("nic.rx_missed_total"),
    "rx_missed_errors": Counter("nic.rx_missed_total"),
    "rx_out_of_buffer": Counter("nic.roce.out_of_buffer_total"),
    "out_of_buffer": Counter("nic.roce.out_of_buffer_total"),
    "rx_crc_errors_phy": Counter("nic.crc_errors_total"),
    "rx_crc_errors": Counter("nic.crc_errors_total"),
    "rx_symbol_err_phy": Counter("nic.phy_symbol_errors_total"),
    "rx_corrected_bits_phy": Counter("nic.corrected_bits_total"),
    "link_down_events_phy": Counter("nic.link_down_events_total"),
    "rx_global_pause": Counter("nic.rx_pause_total"),
    "tx_global_pause": Counter("nic.tx_pause_total"),
    "rx_pause_ctrl_phy": Counter("nic.rx_pause_total"),
    "tx_pause_ctrl_phy": Counter("nic.tx_pause_total"),
    "rx_pause_frames": Counter("nic.rx_pause_total"),
    "tx_pause_frames": Counter("nic.tx_pause_total"),
    "rx_global_pause_duration": Counter("nic.rx_pause_seconds_total", 1e-6),
    "tx_global_pause_duration": Counter("nic.tx_pause_seconds_total", 1e-6),
    "tx_pause_storm_warning_events": Counter("nic.tx_pause_storm_total"),
    "tx_pause_storm_error_events": Counter("nic.tx_pause_storm_total", 1.0, "error"),
    "rx_buffer_passed_thres_phy": Counter("nic.rx_buffer_passed_thres_total"),
}
"""Driver statistics with one meaning; pause durations are microseconds.

Source: kernel Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst
"""

_PRIO = re.compile(r"^(rx|tx)_prio(\d)_(pause|pause_duration|bytes|packets|discards|buf_discard)$")
_PFC_OTHER = re.compile(r"^pfc_pri(\d)_(rx|tx)_transitions$")


def ethtool_counter(name: str) -> Counter | None:
    """The counter of an ethtool statistic, priorities as ``prio:<p>``; None when its meaning is not known."""
    cleaned = name.strip().lower()
    if cleaned in ETHTOOL:
        return ETHTOOL[cleaned]
    if match := _PRIO.match(cleaned):
        way, priority, what = match.groups()
        part = f"prio:{priority}"
        if what == "pause":
            return Counter(f"nic.{way}_pause_total", 1.0, part)
        if what == "pause_duration":
            return Counter(f"nic.{way}_pause_seconds_total", 1e-6, part)
        if what == "bytes":
            return Counter(f"nic.{way}_prio_bytes_total", 1.0, part)
        return Counter(f"nic.{way}_discards_total", 1.0, part) if "discard" in what else None
    if match := _PFC_OTHER.match(cleaned):
        return Counter(f"nic.{match.group(2)}_pause_total", 1.0, f"prio:{match.group(1)}")
    return None


def port_counter(name: str) -> Counter | None:
    """The counter of a sysfs, telegraf or rdma statistic name, in any of the three families."""
    cleaned = name.strip().lower()
    return PORT_COUNTERS.get(cleaned) or HW_COUNTERS.get(cleaned) or EFA_COUNTERS.get(cleaned)


def with_part(entity: str, counter: Counter) -> str:
    """The entity, with the counter's part where it has one."""
    return f"{entity}/{counter.part}" if counter.part else entity


_RATE = re.compile(r"([\d.]+)\s*(?:Gb/s(?:ec)?|Gbps)?", re.IGNORECASE)


def rate_bits(text: str) -> float | None:
    """``400 Gb/sec (4X NDR)`` or ibstat's ``400`` as bit/s."""
    match = _RATE.match(text.strip())
    return float(match.group(1)) * 1e9 if match else None


def state_number(text: str) -> float | None:
    """The number in ``4: ACTIVE``; words alone by the InfiniBand state table."""
    words = {
        "nop": 0,
        "down": 1,
        "init": 2,
        "initialize": 2,
        "initializing": 2,
        "armed": 3,
        "active": 4,
        "active_defer": 5,
    }
    head = text.strip().split(":", 1)[0].strip().lower()
    return float(head) if head.isdigit() else (float(words[head]) if head in words else None)


def phys_number(text: str) -> float | None:
    """The number in ``5: LinkUp``; words alone by the InfiniBand physical state table."""
    words = {
        "sleep": 1,
        "polling": 2,
        "disabled": 3,
        "portconfigurationtraining": 4,
        "linkup": 5,
        "linkerrorrecovery": 6,
    }
    head = text.strip().split(":", 1)[0].strip().lower().replace(" ", "")
    return float(head) if head.isdigit() else (float(words[head]) if head in words else None)


def link_up(state: float | None, phys: float | None) -> float | None:
    """1 only when the port is Active and its link is up; unknown when either is unknown."""
    if state is None or phys is None:
        known = state if phys is None else phys
        return None if known is None else float(known == (4 if phys is None else 5))
    return float(state == 4 and phys == 5)
