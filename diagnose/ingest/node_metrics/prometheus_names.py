"""Exporter names to canonical metrics: node_exporter, InfiniBand, cAdvisor, AMD, xpu_timer."""

from __future__ import annotations

from typing import NamedTuple

from diagnose.ingest.node_metrics.nvidia_fields import QUERY_FIELDS


class Name(NamedTuple):
    """Metric, factor, and which labels make the entity: node, net, ib, disk, mount, cpu, container, gpu, rank."""

    metric: str
    scale: float = 1.0
    entity: str = "node"


def _names(text: str) -> dict[str, Name]:
    table = {}
    for line in text.strip().splitlines():
        name, metric, *rest = line.split()
        scale = float(rest[1]) if len(rest) > 1 else 1.0
        table[name] = Name(metric, scale, rest[0] if rest else "node")
    return table


NAMES: dict[str, Name] = _names("""
node_load1 node.load1
node_load5 node.load5
node_load15 node.load15
node_boot_time_seconds node.boot_time
node_time_seconds node.time
node_cpu_seconds_total node.cpu_seconds_total cpu
node_procs_blocked node.procs_blocked
node_procs_running node.procs_running
node_memory_MemTotal_bytes node.mem_total
node_memory_MemAvailable_bytes node.mem_available
node_memory_MemFree_bytes node.mem_free
node_memory_SwapTotal_bytes node.swap_total
node_memory_SwapFree_bytes node.swap_free
node_vmstat_pgmajfault node.major_faults_total
node_vmstat_oom_kill node.oom_kills_total
node_vmstat_pswpin node.swap_in_total
node_vmstat_pswpout node.swap_out_total
node_vmstat_numa_foreign node.numa_foreign_total
node_vmstat_numa_miss node.numa_miss_total
node_netstat_Tcp_RetransSegs node.tcp_retrans_total
node_netstat_Tcp_OutSegs node.tcp_out_segs_total
node_netstat_Tcp_InSegs node.tcp_in_segs_total
node_netstat_TcpExt_TCPTimeouts node.tcp_timeouts_total
node_pressure_cpu_waiting_seconds_total node.psi_cpu_waiting_seconds_total
node_pressure_io_waiting_seconds_total node.psi_io_waiting_seconds_total
node_pressure_io_stalled_seconds_total node.psi_io_stalled_seconds_total
node_pressure_memory_waiting_seconds_total node.psi_mem_waiting_seconds_total
node_pressure_memory_stalled_seconds_total node.psi_mem_stalled_seconds_total
node_timex_offset_seconds node.clock_offset
node_timex_sync_status node.clock_synced
node_timex_maxerror_seconds node.clock_maxerror
node_disk_read_bytes_total disk.read_bytes_total disk
node_disk_written_bytes_total disk.write_bytes_total disk
node_disk_io_time_seconds_total disk.io_time_seconds_total disk
node_disk_io_time_weighted_seconds_total disk.io_time_weighted_seconds_total disk
node_disk_read_time_seconds_total disk.read_time_seconds_total disk
node_disk_write_time_seconds_total disk.write_time_seconds_total disk
node_disk_reads_completed_total disk.reads_total disk
node_disk_writes_completed_total disk.writes_total disk
node_mountstats_nfs_read_bytes_total mount.nfs_read_bytes_total mount
node_mountstats_nfs_write_bytes_total mount.nfs_write_bytes_total mount
node_nfs_rpc_retransmissions_total mount.nfs_retrans_total
node_network_receive_bytes_total nic.rx_bytes_total net
node_network_transmit_bytes_total nic.tx_bytes_total net
node_network_receive_packets_total nic.rx_packets_total net
node_network_transmit_packets_total nic.tx_packets_total net
node_network_receive_errs_total nic.rx_errors_total net
node_network_transmit_errs_total nic.tx_errors_total net
node_network_receive_drop_total nic.rx_drops_total net
node_network_transmit_drop_total nic.tx_drops_total net
node_network_carrier_down_changes_total nic.carrier_down_total net
node_network_carrier_changes_total nic.carrier_changes_total net
node_network_speed_bytes nic.rate net 8
node_network_mtu_bytes nic.mtu net
node_network_up nic.link_up net
node_infiniband_rate_bytes_per_second nic.rate ib 8
node_infiniband_state_id nic.port_state ib
node_infiniband_physical_state_id nic.port_phys_state ib
node_infiniband_port_data_received_bytes_total nic.rx_bytes_total ib
node_infiniband_port_data_transmitted_bytes_total nic.tx_bytes_total ib
node_infiniband_port_packets_received_total nic.rx_packets_total ib
node_infiniband_port_packets_transmitted_total nic.tx_packets_total ib
node_infiniband_port_transmit_wait_total nic.xmit_wait_ticks_total ib
node_infiniband_port_errors_received_total nic.rcv_errors_total ib
node_infiniband_port_receive_remote_physical_errors_total nic.rcv_remote_phys_total ib
node_infiniband_port_receive_switch_relay_errors_total nic.rcv_switch_relay_total ib
node_infiniband_port_discards_transmitted_total nic.xmit_discards_total ib
node_infiniband_port_constraint_errors_received_total nic.rcv_constraint_total ib
node_infiniband_port_constraint_errors_transmitted_total nic.xmit_constraint_total ib
node_infiniband_symbol_error_total nic.symbol_errors_total ib
node_infiniband_link_downed_total nic.link_downed_total ib
node_infiniband_link_error_recovery_total nic.link_recovery_total ib
node_infiniband_local_link_integrity_errors_total nic.local_integrity_total ib
node_infiniband_excessive_buffer_overrun_errors_total nic.buffer_overrun_total ib
node_infiniband_vl15_dropped_total nic.vl15_dropped_total ib
infiniband_port_transmit_data_bytes_total nic.tx_bytes_total ib
infiniband_port_receive_data_bytes_total nic.rx_bytes_total ib
infiniband_port_transmit_packets_total nic.tx_packets_total ib
infiniband_port_receive_packets_total nic.rx_packets_total ib
infiniband_port_transmit_wait_total nic.xmit_wait_ticks_total ib
infiniband_port_receive_errors_total nic.rcv_errors_total ib
infiniband_port_receive_remote_physical_errors_total nic.rcv_remote_phys_total ib
infiniband_port_transmit_discards_total nic.xmit_discards_total ib
infiniband_port_symbol_error_total nic.symbol_errors_total ib
infiniband_port_link_downed_total nic.link_downed_total ib
infiniband_port_link_error_recovery_total nic.link_recovery_total ib
infiniband_port_local_link_integrity_errors_total nic.local_integrity_total ib
infiniband_port_excessive_buffer_overrun_errors_total nic.buffer_overrun_total ib
infiniband_port_vl15_dropped_total nic.vl15_dropped_total ib
container_cpu_usage_seconds_total job.cpu_seconds_total container
container_cpu_cfs_periods_total job.cpu_periods_total container
container_cpu_cfs_throttled_periods_total job.cpu_throttled_periods_total container
container_cpu_cfs_throttled_seconds_total job.cpu_throttled_seconds_total container
container_fs_reads_bytes_total job.fs_read_bytes_total container
container_fs_writes_bytes_total job.fs_write_bytes_total container
container_memory_working_set_bytes job.mem_working_set container
gpu_average_package_power gpu.power gpu
gpu_package_power gpu.power gpu
gpu_power_usage gpu.power gpu
gpu_edge_temperature gpu.temp_edge gpu
gpu_junction_temperature gpu.temp gpu
gpu_memory_temperature gpu.mem_temp gpu
gpu_gfx_activity gpu.util gpu 0.01
gpu_umc_activity gpu.mem_util gpu 0.01
gpu_total_vram gpu.mem_total gpu 1048576
gpu_used_vram gpu.mem_used gpu 1048576
gpu_free_vram gpu.mem_free gpu 1048576
gpu_energy_consumed gpu.energy_total gpu 1e-6
gpu_ecc_correct_total gpu.ecc.corrected_volatile_total gpu
gpu_ecc_uncorrect_total gpu.ecc.uncorrected_volatile_total gpu
pcie_replay_count gpu.pcie_replay_total gpu
pcie_bandwidth gpu.pcie_tx_rate gpu 125000
gpu_violation_current_accumulated_counter gpu.throttle.ticks_total gpu
gpu_violation_processor_hot_residency_accumulated gpu.throttle.prochot_ticks_total gpu
gpu_violation_ppt_residency_accumulated gpu.throttle.power_ticks_total gpu
gpu_violation_socket_thermal_residency_accumulated gpu.throttle.socket_thermal_ticks_total gpu
gpu_violation_vr_thermal_residency_accumulated gpu.throttle.vr_thermal_ticks_total gpu
gpu_violation_hbm_thermal_residency_accumulated gpu.throttle.hbm_thermal_ticks_total gpu
XPU_TIMER_COLL_KERNEL_AVG_LATENCY coll.kernel_latency_avg rank 1e-6
XPU_TIMER_COLL_KERNEL_MIN_LATENCY coll.kernel_latency_min rank 1e-6
XPU_TIMER_COLL_KERNEL_MAX_LATENCY coll.kernel_latency_max rank 1e-6
XPU_TIMER_COLL_KERNEL_P99_LATENCY coll.kernel_latency_p99 rank 1e-6
up up job
""")

MOUNT_OPERATIONS: dict[tuple[str, str], str] = {
    ("requests_total", "READ"): "mount.nfs_read_requests_total",
    ("requests_total", "WRITE"): "mount.nfs_write_requests_total",
    ("response_time_seconds_total", "READ"): "mount.nfs_read_rtt_seconds_total",
    ("response_time_seconds_total", "WRITE"): "mount.nfs_write_rtt_seconds_total",
    ("queue_time_seconds_total", "READ"): "mount.nfs_read_queue_seconds_total",
    ("major_timeouts_total", "READ"): "mount.nfs_timeouts_total",
}
"""node_mountstats_nfs_operations_* by operation label."""

NOISE = (
    "go_",
    "process_",
    "promhttp_",
    "prometheus_",
    "scrape_",
    "node_scrape_",
    "node_textfile_",
    "node_exporter_",
    "net_conntrack_",
)
"""Series about the monitoring itself: dropped without a word."""

_SMI_SUFFIXES = ("_hz", "_ratio", "_bytes", "_watts", "_seconds", "_celsius")
SMI_PREFIX = "nvidia_smi_"
SMI: dict[str, str] = {
    field.replace(".", "_").replace("throttle_reasons", "event_reasons"): entry.metric
    for field, entry in QUERY_FIELDS.items()
}
"""nvidia_gpu_exporter: query fields with underscores; values are SI already."""


def smi_metric(name: str) -> str | None:
    """Metric of a nvidia_gpu_exporter series, unit suffix removed; None when unknown."""
    plain = name.removeprefix(SMI_PREFIX).replace("clocks_throttle_reasons", "clocks_event_reasons")
    for suffix in ("", *_SMI_SUFFIXES):
        if plain.endswith(suffix) and (found := SMI.get(plain.removesuffix(suffix) if suffix else plain)):
            return found
    for suffix in _SMI_SUFFIXES:
        trimmed = plain.removesuffix(suffix).removesuffix("_clock")
        if found := SMI.get(trimmed):
            return found
    return None
