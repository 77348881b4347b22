"""What nvidia-smi calls things: query fields, the nested names of ``-q`` and ``-x``, and the exporter built on it."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """Canonical metric and the factor of the field's usual unit, used where the cell names none."""

    metric: str
    scale: float = 1.0
    flag: bool = False


MHZ, MIB, PERCENT, MICROSECOND = 1e6, 1048576.0, 0.01, 1e-6

QUERY_FIELDS: dict[str, Field] = {
    "clocks.current.sm": Field("gpu.sm_clock", MHZ),
    "clocks.sm": Field("gpu.sm_clock", MHZ),
    "clocks.current.memory": Field("gpu.mem_clock", MHZ),
    "clocks.mem": Field("gpu.mem_clock", MHZ),
    "clocks.max.sm": Field("gpu.sm_clock_max", MHZ),
    "clocks.max.memory": Field("gpu.mem_clock_max", MHZ),
    "clocks.max.mem": Field("gpu.mem_clock_max", MHZ),
    "power.draw": Field("gpu.power"),
    "power.draw.average": Field("gpu.power"),
    "enforced.power.limit": Field("gpu.power_limit"),
    "power.limit": Field("gpu.power_limit"),
    "power.default_limit": Field("gpu.power_limit_default"),
    "utilization.gpu": Field("gpu.util", PERCENT),
    "utilization.memory": Field("gpu.mem_util", PERCENT),
    "memory.used": Field("gpu.mem_used", MIB),
    "memory.total": Field("gpu.mem_total", MIB),
    "memory.free": Field("gpu.mem_free", MIB),
    "temperature.gpu": Field("gpu.temp"),
    "temperature.memory": Field("gpu.mem_temp"),
    "temperature.gpu.tlimit": Field("gpu.temp_margin"),
    "clocks_event_reasons.active": Field("gpu.throttle_mask"),
    "clocks_throttle_reasons.active": Field("gpu.throttle_mask"),
    "clocks_event_reasons_counters.sw_power_cap": Field("gpu.throttle.sw_power_seconds_total", MICROSECOND),
    "clocks_event_reasons_counters.sw_thermal_slowdown": Field("gpu.throttle.sw_thermal_seconds_total", MICROSECOND),
    "clocks_event_reasons_counters.hw_thermal_slowdown": Field("gpu.throttle.hw_thermal_seconds_total", MICROSECOND),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": Field("gpu.throttle.hw_brake_seconds_total", MICROSECOND),
    "clocks_event_reasons_counters.sync_boost": Field("gpu.throttle.sync_boost_seconds_total", MICROSECOND),
    "pcie.link.gen.current": Field("gpu.pcie_gen"),
    "pcie.link.gen.gpucurrent": Field("gpu.pcie_gen"),
    "pcie.link.gen.max": Field("gpu.pcie_gen_max"),
    "pcie.link.width.current": Field("gpu.pcie_width"),
    "pcie.link.width.max": Field("gpu.pcie_width_max"),
    "ecc.errors.corrected.volatile.dram": Field("gpu.ecc.dram_corrected_volatile_total"),
    "ecc.errors.corrected.volatile.device_memory": Field("gpu.ecc.dram_corrected_volatile_total"),
    "ecc.errors.corrected.volatile.sram": Field("gpu.ecc.sram_corrected_volatile_total"),
    "ecc.errors.corrected.volatile.total": Field("gpu.ecc.corrected_volatile_total"),
    "ecc.errors.uncorrected.volatile.dram": Field("gpu.ecc.dram_uncorrected_volatile_total"),
    "ecc.errors.uncorrected.volatile.device_memory": Field("gpu.ecc.dram_uncorrected_volatile_total"),
    "ecc.errors.uncorrected.volatile.sram": Field("gpu.ecc.sram_uncorrected_volatile_total"),
    "ecc.errors.uncorrected.volatile.total": Field("gpu.ecc.uncorrected_volatile_total"),
    "ecc.errors.corrected.aggregate.dram": Field("gpu.ecc.dram_corrected_aggregate_total"),
    "ecc.errors.corrected.aggregate.device_memory": Field("gpu.ecc.dram_corrected_aggregate_total"),
    "ecc.errors.corrected.aggregate.sram": Field("gpu.ecc.sram_corrected_aggregate_total"),
    "ecc.errors.corrected.aggregate.total": Field("gpu.ecc.corrected_aggregate_total"),
    "ecc.errors.uncorrected.aggregate.dram": Field("gpu.ecc.dram_uncorrected_aggregate_total"),
    "ecc.errors.uncorrected.aggregate.device_memory": Field("gpu.ecc.dram_uncorrected_aggregate_total"),
    "ecc.errors.uncorrected.aggregate.sram": Field("gpu.ecc.sram_uncorrected_aggregate_total"),
    "ecc.errors.uncorrected.aggregate.total": Field("gpu.ecc.uncorrected_aggregate_total"),
    "retired_pages.single_bit_ecc.count": Field("gpu.pages_retired_sbe_total"),
    "retired_pages.sbe": Field("gpu.pages_retired_sbe_total"),
    "retired_pages.double_bit.count": Field("gpu.pages_retired_dbe_total"),
    "retired_pages.dbe": Field("gpu.pages_retired_dbe_total"),
    "retired_pages.pending": Field("gpu.page_retire_pending", flag=True),
    "remapped_rows.correctable": Field("gpu.row_remap_corrected_total"),
    "remapped_rows.uncorrectable": Field("gpu.row_remap_uncorrected_total"),
    "remapped_rows.pending": Field("gpu.row_remap_pending", flag=True),
    "remapped_rows.failure": Field("gpu.row_remap_failure", flag=True),
    "mig.mode.current": Field("gpu.mig_enabled", flag=True),
}
"""Fields of ``nvidia-smi --query-gpu``; the names before driver 535 (clocks_throttle_reasons) are kept as aliases."""

SECTION_FIELDS: dict[str, Field] = {
    "clocks/sm": Field("gpu.sm_clock", MHZ),
    "clocks/memory": Field("gpu.mem_clock", MHZ),
    "max clocks/sm": Field("gpu.sm_clock_max", MHZ),
    "max clocks/memory": Field("gpu.mem_clock_max", MHZ),
    "utilization/gpu": Field("gpu.util", PERCENT),
    "utilization/memory": Field("gpu.mem_util", PERCENT),
    "fb memory usage/total": Field("gpu.mem_total", MIB),
    "fb memory usage/used": Field("gpu.mem_used", MIB),
    "fb memory usage/free": Field("gpu.mem_free", MIB),
    "temperature/gpu current temp": Field("gpu.temp"),
    "temperature/gpu t.limit temp": Field("gpu.temp_margin"),
    "temperature/gpu slowdown t.limit temp": Field("gpu.temp_limit_slowdown"),
    "temperature/gpu shutdown t.limit temp": Field("gpu.temp_limit_shutdown"),
    "temperature/memory current temp": Field("gpu.mem_temp"),
    "power readings/power draw": Field("gpu.power"),
    "power readings/average power draw": Field("gpu.power"),
    "power readings/instantaneous power draw": Field("gpu.power"),
    "power readings/current power limit": Field("gpu.power_limit"),
    "power readings/enforced power limit": Field("gpu.power_limit"),
    "power readings/power limit": Field("gpu.power_limit"),
    "power readings/default power limit": Field("gpu.power_limit_default"),
    "pci/replays since reset": Field("gpu.pcie_replay_total"),
    "pci/replay number rollovers": Field("gpu.pcie_replay_rollover_total"),
    "pci/tx throughput": Field("gpu.pcie_tx_rate", 1e3),
    "pci/rx throughput": Field("gpu.pcie_rx_rate", 1e3),
    "pcie generation/current": Field("gpu.pcie_gen"),
    "pcie generation/device current": Field("gpu.pcie_gen"),
    "pcie generation/max": Field("gpu.pcie_gen_max"),
    "link width/current": Field("gpu.pcie_width"),
    "link width/max": Field("gpu.pcie_width_max"),
    "volatile/sram correctable": Field("gpu.ecc.sram_corrected_volatile_total"),
    "volatile/sram uncorrectable": Field("gpu.ecc.sram_uncorrected_volatile_total"),
    "volatile/sram uncorrectable parity": Field("gpu.ecc.sram_uncorrected_volatile_total"),
    "volatile/sram uncorrectable sec-ded": Field("gpu.ecc.sram_uncorrected_volatile_total"),
    "volatile/dram correctable": Field("gpu.ecc.dram_corrected_volatile_total"),
    "volatile/dram uncorrectable": Field("gpu.ecc.dram_uncorrected_volatile_total"),
    "aggregate/sram correctable": Field("gpu.ecc.sram_corrected_aggregate_total"),
    "aggregate/sram uncorrectable": Field("gpu.ecc.sram_uncorrected_aggregate_total"),
    "aggregate/sram uncorrectable parity": Field("gpu.ecc.sram_uncorrected_aggregate_total"),
    "aggregate/sram uncorrectable sec-ded": Field("gpu.ecc.sram_uncorrected_aggregate_total"),
    "aggregate/dram correctable": Field("gpu.ecc.dram_corrected_aggregate_total"),
    "aggregate/dram uncorrectable": Field("gpu.ecc.dram_uncorrected_aggregate_total"),
    "retired pages/single bit ecc": Field("gpu.pages_retired_sbe_total"),
    "retired pages/double bit ecc": Field("gpu.pages_retired_dbe_total"),
    "retired pages/pending page blacklist": Field("gpu.page_retire_pending", flag=True),
    "retired pages/pending retirement": Field("gpu.page_retire_pending", flag=True),
    "remapped rows/correctable error": Field("gpu.row_remap_corrected_total"),
    "remapped rows/uncorrectable error": Field("gpu.row_remap_uncorrected_total"),
    "remapped rows/pending": Field("gpu.row_remap_pending", flag=True),
    "remapped rows/remapping failure occurred": Field("gpu.row_remap_failure", flag=True),
    "event reasons counters/sw power capping": Field("gpu.throttle.sw_power_seconds_total", MICROSECOND),
    "event reasons counters/sync boost": Field("gpu.throttle.sync_boost_seconds_total", MICROSECOND),
    "event reasons counters/sw thermal slowdown": Field("gpu.throttle.sw_thermal_seconds_total", MICROSECOND),
    "event reasons counters/hw thermal slowdown": Field("gpu.throttle.hw_thermal_seconds_total", MICROSECOND),
    "event reasons counters/hw power braking": Field("gpu.throttle.hw_brake_seconds_total", MICROSECOND),
    "mig mode/current": Field("gpu.mig_enabled", flag=True),
}
"""The last two indents of ``nvidia-smi -q``, lower case; the section tells repeated keys (Current, Pending) apart."""

REASON_BITS: dict[str, int] = {
    "idle": 0x1,
    "applications clocks setting": 0x2,
    "sw power cap": 0x4,
    "hw slowdown": 0x8,
    "sync boost": 0x10,
    "sw thermal slowdown": 0x20,
    "hw thermal slowdown": 0x40,
    "hw power brake slowdown": 0x80,
    "display clock setting": 0x100,
}
"""Bits of the throttle mask by the name ``-q`` prints. Source: NVML, nvmlClocksEventReasons."""

XML_PATHS: dict[str, str] = {
    "clocks/sm_clock": "clocks/sm",
    "clocks/mem_clock": "clocks/memory",
    "max_clocks/sm_clock": "max clocks/sm",
    "max_clocks/mem_clock": "max clocks/memory",
    "utilization/gpu_util": "utilization/gpu",
    "utilization/memory_util": "utilization/memory",
    "fb_memory_usage/total": "fb memory usage/total",
    "fb_memory_usage/used": "fb memory usage/used",
    "fb_memory_usage/free": "fb memory usage/free",
    "temperature/gpu_temp": "temperature/gpu current temp",
    "temperature/gpu_temp_tlimit": "temperature/gpu t.limit temp",
    "temperature/gpu_temp_slow_tlimit_threshold": "temperature/gpu slowdown t.limit temp",
    "temperature/gpu_temp_max_tlimit_threshold": "temperature/gpu shutdown t.limit temp",
    "temperature/memory_temp": "temperature/memory current temp",
    "power/power_draw": "power readings/power draw",
    "power/average_power_draw": "power readings/average power draw",
    "power/instant_power_draw": "power readings/instantaneous power draw",
    "power/current_power_limit": "power readings/current power limit",
    "power/enforced_power_limit": "power readings/enforced power limit",
    "power/power_limit": "power readings/power limit",
    "power/default_power_limit": "power readings/default power limit",
    "pci/replay_counter": "pci/replays since reset",
    "pci/replay_rollover_counter": "pci/replay number rollovers",
    "pci/tx_util": "pci/tx throughput",
    "pci/rx_util": "pci/rx throughput",
    "pcie_gen/current_link_gen": "pcie generation/current",
    "pcie_gen/max_link_gen": "pcie generation/max",
    "link_widths/current_link_width": "link width/current",
    "link_widths/max_link_width": "link width/max",
    "remapped_rows/remapped_row_corr": "remapped rows/correctable error",
    "remapped_rows/remapped_row_unc": "remapped rows/uncorrectable error",
    "remapped_rows/remapped_row_pending": "remapped rows/pending",
    "remapped_rows/remapped_row_failure": "remapped rows/remapping failure occurred",
    "multiple_single_bit_retirement/retired_count": "retired pages/single bit ecc",
    "double_bit_retirement/retired_count": "retired pages/double bit ecc",
    "retired_pages/pending_blacklist": "retired pages/pending page blacklist",
    "retired_pages/pending_retirement": "retired pages/pending retirement",
    "mig_mode/current_mig": "mig mode/current",
    "counters/sw_power_cap": "event reasons counters/sw power capping",
    "counters/sync_boost": "event reasons counters/sync boost",
    "counters/sw_thermal_slowdown": "event reasons counters/sw thermal slowdown",
    "counters/hw_thermal_slowdown": "event reasons counters/hw thermal slowdown",
    "counters/hw_power_brake": "event reasons counters/hw power braking",
    **{
        f"{block}/{kind}_{word}able": f"{block}/{kind} {word}able"
        for block in ("volatile", "aggregate")
        for kind in ("sram", "dram")
        for word in ("correct", "uncorrect")
    },
    **{
        f"{block}/sram_uncorrectable_{tail}": f"{block}/sram uncorrectable {tail.replace('secded', 'sec-ded')}"
        for block in ("volatile", "aggregate")
        for tail in ("parity", "secded")
    },
}
"""Parent and tag of ``nvidia-smi -x`` to the path of ``-q``."""
