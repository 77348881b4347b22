"""The canonical metrics: unit, kind and counter width of each name. Types come from here and never from a file."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["gauge", "counter", "window", "event"]


class Metric(NamedTuple):
    """One canonical metric. ``bits`` is the width at which a counter stops at all-ones, None when it is 64 bit wide."""

    unit: str
    kind: Kind
    bits: int | None = None


def _block(text: str) -> dict[str, Metric]:
    table: dict[str, Metric] = {}
    for line in text.strip().splitlines():
        names, unit, kind, *rest = line.split()
        for name in names.split(","):
            table[name] = Metric(unit, kind, int(rest[0]) if rest else None)  # type: ignore[arg-type]
    return table


METRICS: dict[str, Metric] = _block("""
gpu.util,gpu.mem_util,gpu.mem_used_ratio ratio gauge
gpu.sm_active,gpu.tensor_active,gpu.dram_active,gpu.gr_active,gpu.sm_occupancy ratio gauge
gpu.fp16_active,gpu.fp32_active ratio gauge
gpu.sm_clock,gpu.sm_clock_max,gpu.mem_clock,gpu.mem_clock_max Hz gauge
gpu.power,gpu.power_limit,gpu.power_limit_default W gauge
gpu.energy_total J counter
gpu.temp,gpu.mem_temp,gpu.temp_margin,gpu.temp_edge degC gauge
gpu.temp_limit_slowdown,gpu.temp_limit_shutdown degC gauge
gpu.throttle_mask bitmask gauge
gpu.throttle.sw_power_seconds_total,gpu.throttle.sw_thermal_seconds_total s counter
gpu.throttle.hw_thermal_seconds_total s counter
gpu.throttle.hw_brake_seconds_total,gpu.throttle.sync_boost_seconds_total,gpu.throttle.thermal_seconds_total s counter
gpu.throttle.power_seconds_total s counter
gpu.throttle.power_ticks_total,gpu.throttle.socket_thermal_ticks_total,gpu.throttle.prochot_ticks_total ticks counter
gpu.throttle.vr_thermal_ticks_total,gpu.throttle.hbm_thermal_ticks_total,gpu.throttle.ticks_total ticks counter
gpu.throttle.power_ratio,gpu.throttle.socket_thermal_ratio,gpu.throttle.prochot_ratio ratio gauge
gpu.throttle.vr_thermal_ratio,gpu.throttle.hbm_thermal_ratio ratio gauge
gpu.mem_used,gpu.mem_total,gpu.mem_free bytes gauge
gpu.pcie_gen,gpu.pcie_gen_max gen gauge
gpu.pcie_width,gpu.pcie_width_max lanes gauge
gpu.pcie_link_speed transfers/s gauge
gpu.pcie_replay_total,gpu.pcie_replay_rollover_total count counter
gpu.pcie_tx_rate,gpu.pcie_rx_rate,gpu.nvlink_tx_rate,gpu.nvlink_rx_rate,gpu.nvlink_rate bytes/s gauge
gpu.nvlink_links_active,gpu.nvlink_links_inactive links gauge
gpu.nvlink_link_speed bytes/s gauge
gpu.nvlink.crc_flit_errors_total,gpu.nvlink.crc_data_errors_total,gpu.nvlink.crc_errors_total count counter
gpu.nvlink.replay_errors_total,gpu.nvlink.recovery_errors_total count counter
gpu.ecc.sram_corrected_volatile_total,gpu.ecc.sram_uncorrected_volatile_total count counter
gpu.ecc.dram_corrected_volatile_total,gpu.ecc.dram_uncorrected_volatile_total count counter
gpu.ecc.sram_corrected_aggregate_total,gpu.ecc.sram_uncorrected_aggregate_total count counter
gpu.ecc.dram_corrected_aggregate_total,gpu.ecc.dram_uncorrected_aggregate_total count counter
gpu.ecc.corrected_volatile_total,gpu.ecc.uncorrected_volatile_total count counter
gpu.ecc.corrected_aggregate_total,gpu.ecc.uncorrected_aggregate_total count counter
gpu.row_remap_corrected_total,gpu.row_remap_uncorrected_total rows counter
gpu.row_remap_pending,gpu.row_remap_failure,gpu.page_retire_pending bool gauge
gpu.pages_retired_sbe_total,gpu.pages_retired_dbe_total pages counter
gpu.recovery_action,gpu.mig_enabled,gpu.pstate enum gauge
gpu.last_xid xid gauge
gpu.xid_count_window count window
event.xid xid event
event.sxid sxid event
event.pcie_aer,event.link_down,event.link_up,event.oom,event.mlx5_thermal,event.mlx5_error,event.throttled count event
pcie.available_rate,pcie.capable_rate bit/s gauge
nic.link_up bool gauge
nic.port_state,nic.port_phys_state enum gauge
nic.rate,nic.rate_expected,nic.netdev_speed,nic.rate_max bit/s gauge
nic.rx_bytes_total,nic.tx_bytes_total bytes counter
nic.rx_bytes_window,nic.tx_bytes_window bytes window
nic.rx_packets_total,nic.tx_packets_total packets counter
nic.rx_rate,nic.tx_rate bytes/s gauge
nic.xmit_wait_ticks_total ticks counter 32
nic.symbol_errors_total,nic.rcv_errors_total,nic.rcv_remote_phys_total,nic.rcv_switch_relay_total count counter 16
nic.xmit_discards_total,nic.vl15_dropped_total count counter 16
nic.local_integrity_total,nic.buffer_overrun_total count counter 4
nic.link_recovery_total,nic.link_downed_total,nic.rcv_constraint_total,nic.xmit_constraint_total count counter 8
nic.roce.out_of_sequence_total,nic.roce.packet_seq_err_total,nic.roce.ack_timeout_total count counter
nic.roce.rnr_nak_retry_total,nic.roce.implied_nak_total,nic.roce.duplicate_request_total count counter
nic.roce.adp_retrans_total,nic.roce.adp_retrans_to_total,nic.roce.icrc_err_total count counter
nic.roce.out_of_buffer_total count counter
nic.roce.cnp_sent_total,nic.roce.cnp_handled_total,nic.roce.cnp_ignored_total,nic.roce.ecn_marked_total count counter
nic.roce.slow_restart_total,nic.roce.req_cqe_error_total,nic.roce.resp_cqe_error_total count counter
nic.rx_pause_total,nic.tx_pause_total,nic.tx_pause_storm_total,nic.rx_buffer_passed_thres_total count counter
nic.rx_pause_seconds_total,nic.tx_pause_seconds_total s counter
nic.rx_prio_bytes_total,nic.tx_prio_bytes_total bytes counter
nic.rx_discards_total,nic.tx_discards_total,nic.rx_errors_total,nic.tx_errors_total count counter
nic.rx_drops_total,nic.tx_drops_total,nic.crc_errors_total,nic.corrected_bits_total,nic.rx_missed_total count counter
nic.carrier_down_total,nic.carrier_changes_total,nic.phy_symbol_errors_total,nic.link_down_events_total count counter
nic.efa.retrans_pkts_total,nic.efa.retrans_timeout_total,nic.efa.impaired_total,nic.efa.unresponsive_total count counter
nic.efa.rx_drops_total count counter
nic.efa.retrans_bytes_total,nic.efa.rdma_read_bytes_total,nic.efa.rdma_write_bytes_total bytes counter
nic.mtu bytes gauge
node.cpu_seconds_total s counter
node.cpu_user,node.cpu_system,node.cpu_iowait,node.cpu_steal,node.cpu_softirq,node.cpu_irq,node.cpu_idle ratio gauge
node.cpu_nice,node.cpu_guest,node.cpu_gnice,node.cpu_util ratio gauge
node.load1,node.load5,node.load15 load gauge
node.cpu_count,node.procs_blocked,node.procs_running count gauge
node.mem_available,node.mem_total,node.mem_used,node.mem_free,node.swap_used,node.swap_total,node.swap_free bytes gauge
node.mem_used_ratio ratio gauge
node.major_faults_total,node.oom_kills_total,node.tcp_retrans_total,node.tcp_out_segs_total count counter
node.tcp_in_segs_total,node.tcp_timeouts_total,node.swap_in_total,node.swap_out_total count counter
node.numa_foreign_total,node.numa_miss_total count counter
node.psi_cpu_waiting_seconds_total,node.psi_io_waiting_seconds_total,node.psi_io_stalled_seconds_total s counter
node.psi_mem_waiting_seconds_total,node.psi_mem_stalled_seconds_total s counter
node.clock_offset,node.clock_maxerror,node.boot_time,node.time s gauge
node.clock_synced bool gauge
node.paging_in_rate,node.paging_out_rate bytes/s gauge
node.context_switches_rate,node.interrupts_rate 1/s gauge
job.cpu_seconds_total,job.cpu_throttled_seconds_total s counter
job.cpu_periods_total,job.cpu_throttled_periods_total count counter
job.fs_read_bytes_total,job.fs_write_bytes_total bytes counter
job.mem_working_set bytes gauge
job.elapsed,job.cpu_time s gauge
job.start,job.end s gauge
job.nodes,job.gpus count gauge
job.in_state bool gauge
disk.read_bytes_total,disk.write_bytes_total bytes counter
disk.read_rate,disk.write_rate bytes/s gauge
disk.io_time_seconds_total,disk.read_time_seconds_total,disk.write_time_seconds_total s counter
disk.io_time_weighted_seconds_total s counter
disk.reads_total,disk.writes_total count counter
disk.util ratio gauge
disk.await s gauge
mount.nfs_read_bytes_total,mount.nfs_write_bytes_total bytes counter
mount.nfs_read_requests_total,mount.nfs_write_requests_total,mount.nfs_retrans_total count counter
mount.nfs_timeouts_total count counter
mount.nfs_read_rtt_seconds_total,mount.nfs_write_rtt_seconds_total,mount.nfs_read_queue_seconds_total s counter
bench.busbw,bench.algbw bytes/s gauge
bench.time s gauge
coll.kernel_latency_avg,coll.kernel_latency_min,coll.kernel_latency_max,coll.kernel_latency_p99 s gauge
up bool gauge
""")


def describe(name: str) -> Metric:
    """The entry of a canonical name; a foreign name is a raw gauge, or a raw counter when it ends in ``_total``."""
    known = METRICS.get(name)
    if known is not None:
        return known
    return Metric("raw", "counter" if name.endswith(("_total", "_count", "_sum")) else "gauge")


def is_saturated(name: str, raw: float | None) -> bool:
    """Whether a raw counter stands at all-ones of its width, or of a wider width some driver shows it with.

    Source: rdma-core libibmad/src/fields.c; sysfs of other drivers shows the same counters wider, so 8, 16 and 32
    bits are tested from the width upward.
    """
    bits = describe(name).bits
    if bits is None or raw is None:
        return False
    return any(raw == (1 << width) - 1 for width in (4, 8, 16, 32) if width >= bits)
