"""DCGM fields: exporter names, old and renamed (4.6), and the short names that dcgmi prints."""

from __future__ import annotations

MHZ, MIB, NS, MB = 1e6, 1048576.0, 1e-9, 1e6

_FIELDS = """
SM_CLOCK|gpu.sm_clock|1e6|SMCLK|SM_CLOCK_MHZ,GPU_SM_CLOCK
MEM_CLOCK|gpu.mem_clock|1e6|MMCLK,MEMCLK|MEM_CLOCK_MHZ,MEMORY_CLOCK
MAX_SM_CLOCK|gpu.sm_clock_max|1e6|MAXSM|SM_CLOCK_MAX
GPU_TEMP|gpu.temp|1|TMPTR|GPU_TEMP_CELSIUS
MEMORY_TEMP|gpu.mem_temp|1|MMTMP|MEMORY_TEMP_CELSIUS,MEM_TEMP_CELSIUS
GPU_TEMP_LIMIT|gpu.temp_margin|1|TMPMG|GPU_TEMP_MARGIN_CELSIUS
POWER_USAGE|gpu.power|1|POWER|BOARD_POWER_WATTS
POWER_USAGE_INSTANT|gpu.power|1||BOARD_POWER_INSTANT_WATTS
ENFORCED_POWER_LIMIT|gpu.power_limit|1|EPLMT|ENFORCED_POWER_LIMIT_WATTS
POWER_MGMT_LIMIT|gpu.power_limit|1|PMLMT|POWER_LIMIT_WATTS
TOTAL_ENERGY_CONSUMPTION|gpu.energy_total|1e-3|TOTEC|TOTAL_ENERGY_MILLIJOULES,BOARD_ENERGY_TOTAL
GPU_UTIL|gpu.util|0.01|GPUTL|
MEM_COPY_UTIL|gpu.mem_util|0.01|MCUTL|
GPU_UTIL_RATIO|gpu.util|1||
MEM_COPY_UTIL_RATIO|gpu.mem_util|1||
FB_USED|gpu.mem_used|1048576|FBUSD|FB_USED_MIB
FB_FREE|gpu.mem_free|1048576|FBFRE|FB_FREE_MIB
FB_TOTAL|gpu.mem_total|1048576|FBTTL|FB_TOTAL_MIB
CLOCK_THROTTLE_REASONS|gpu.throttle_mask|1|DVCCTR|CLOCKS_EVENT_REASONS,CLOCK_EVENT_REASONS
THERMAL_VIOLATION|gpu.throttle.thermal_seconds_total|1e-9|TVIOL|THERMAL_VIOLATION_NS
POWER_VIOLATION|gpu.throttle.power_seconds_total|1e-9|PVIOL|POWER_VIOLATION_NS
SYNC_BOOST_VIOLATION|gpu.throttle.sync_boost_seconds_total|1e-9||SYNC_BOOST_VIOLATION_NS
CLOCKS_EVENT_REASON_SW_POWER_CAP_NS|gpu.throttle.sw_power_seconds_total|1e-9||
CLOCKS_EVENT_REASON_SYNC_BOOST_NS|gpu.throttle.sync_boost_seconds_total|1e-9||
CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS|gpu.throttle.sw_thermal_seconds_total|1e-9||
CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS|gpu.throttle.hw_thermal_seconds_total|1e-9||
CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS|gpu.throttle.hw_brake_seconds_total|1e-9||
PCIE_LINK_GEN|gpu.pcie_gen|1|DVPCG|
PCIE_MAX_LINK_GEN|gpu.pcie_gen_max|1|MXPCG|PCIE_LINK_GEN_MAX
PCIE_LINK_WIDTH|gpu.pcie_width|1|DVPCW|
PCIE_MAX_LINK_WIDTH|gpu.pcie_width_max|1|MXPCW|PCIE_LINK_WIDTH_MAX
PCIE_REPLAY_COUNTER|gpu.pcie_replay_total|1|RPCTR|PCIE_REPLAY_TOTAL
NVLINK_BANDWIDTH_TOTAL|gpu.nvlink_rate|1e6|NBWLT|NVLINK_THROUGHPUT_TOTAL
NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL|gpu.nvlink.crc_flit_errors_total|1|NFLT|NVLINK_CRC_FLIT_ERROR_TOTAL
NVLINK_CRC_DATA_ERROR_COUNT_TOTAL|gpu.nvlink.crc_data_errors_total|1|NDAT|NVLINK_CRC_DATA_ERROR_TOTAL
NVLINK_REPLAY_ERROR_COUNT_TOTAL|gpu.nvlink.replay_errors_total|1|NREP|NVLINK_REPLAY_ERROR_TOTAL
NVLINK_RECOVERY_ERROR_COUNT_TOTAL|gpu.nvlink.recovery_errors_total|1|NREC|NVLINK_RECOVERY_ERROR_TOTAL
ECC_SBE_VOL_TOTAL|gpu.ecc.corrected_volatile_total|1|ESVTL|ECC_CORRECTED_VOLATILE_TOTAL
ECC_DBE_VOL_TOTAL|gpu.ecc.uncorrected_volatile_total|1|EDVTL|ECC_UNCORRECTED_VOLATILE_TOTAL
ECC_SBE_AGG_TOTAL|gpu.ecc.corrected_aggregate_total|1|ESATL|ECC_CORRECTED_AGGREGATE_TOTAL
ECC_DBE_AGG_TOTAL|gpu.ecc.uncorrected_aggregate_total|1|EDATL|ECC_UNCORRECTED_AGGREGATE_TOTAL
RETIRED_SBE|gpu.pages_retired_sbe_total|1|RPSBE|PAGE_RETIRED_SBE,PAGE_RETIRED_SBE_TOTAL
RETIRED_DBE|gpu.pages_retired_dbe_total|1|RPDBE|PAGE_RETIRED_DBE,PAGE_RETIRED_DBE_TOTAL
RETIRED_PENDING|gpu.page_retire_pending|1|RPPEN|PAGE_RETIRED_PENDING
CORRECTABLE_REMAPPED_ROWS|gpu.row_remap_corrected_total|1|RRCOR|ROW_REMAP_CORRECTABLE,ROW_REMAP_CORRECTABLE_TOTAL
UNCORRECTABLE_REMAPPED_ROWS|gpu.row_remap_uncorrected_total|1|RRUNC|ROW_REMAP_UNCORRECTABLE,ROW_REMAP_UNCORRECTABLE_TOTAL
ROW_REMAP_FAILURE|gpu.row_remap_failure|1|RRFAI|
ROW_REMAP_PENDING|gpu.row_remap_pending|1|RRPEN|
XID_ERRORS|gpu.last_xid|1|XIDER|XID_ERROR
GR_ENGINE_ACTIVE|gpu.gr_active|1|GRACT|GR_ENGINE_ACTIVE_RATIO,GR_ENGINE_UTIL_RATIO
SM_ACTIVE|gpu.sm_active|1|SMACT|SM_ACTIVE_RATIO,SM_UTIL_RATIO
SM_OCCUPANCY|gpu.sm_occupancy|1|SMOCC|SM_OCCUPANCY_RATIO
PIPE_TENSOR_ACTIVE|gpu.tensor_active|1|TENSO|PIPE_TENSOR_ACTIVE_RATIO,PIPE_TENSOR_UTIL_RATIO,TENSOR_UTIL_RATIO
DRAM_ACTIVE|gpu.dram_active|1|DRAMA|DRAM_ACTIVE_RATIO,DRAM_UTIL_RATIO
PIPE_FP16_ACTIVE|gpu.fp16_active|1|FP16A|PIPE_FP16_UTIL_RATIO
PIPE_FP32_ACTIVE|gpu.fp32_active|1|FP32A|PIPE_FP32_UTIL_RATIO
PCIE_TX_BYTES|gpu.pcie_tx_rate|1|PCITX|PCIE_TX_BYTES_PER_SECOND
PCIE_RX_BYTES|gpu.pcie_rx_rate|1|PCIRX|PCIE_RX_BYTES_PER_SECOND
NVLINK_TX_BYTES|gpu.nvlink_tx_rate|1|NVLTX|NVLINK_TX_BYTES_PER_SECOND
NVLINK_RX_BYTES|gpu.nvlink_rx_rate|1|NVLRX|NVLINK_RX_BYTES_PER_SECOND
"""
"""Exporter name without prefix, metric, factor, dcgmi short names, later names. Source: DCGM dcgm_fields.h."""

DCGM: dict[str, tuple[str, float]] = {}
"""Name without ``DCGM_FI_DEV_``/``DCGM_FI_PROF_`` to metric and factor."""

DCGM_SHORT: dict[str, tuple[str, float]] = {}
"""Short name of dcgmi dmon to metric and factor."""

for _line in _FIELDS.strip().splitlines():
    _name, _metric, _scale, _short, _later = _line.split("|")
    for _key in (_name, *_later.split(",")):
        if _key:
            DCGM[_key] = (_metric, float(_scale))
    for _key in _short.split(","):
        if _key:
            DCGM_SHORT[_key] = (_metric, float(_scale))

PREFIXES = ("DCGM_FI_DEV_", "DCGM_FI_PROF_", "DCGM_FI_")
WINDOW_COUNTS = {"DCGM_EXP_XID_ERRORS_COUNT": "gpu.xid_count_window"}
"""Counts over a moving window of five minutes: neither additive nor differencable."""


def dcgm_field(name: str) -> tuple[str, float] | None:
    """Metric and factor of an exporter name in any of its spellings, None when unknown."""
    if name in WINDOW_COUNTS:
        return WINDOW_COUNTS[name], 1.0
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return DCGM.get(name.removeprefix(prefix).removeprefix("PROF_"))
    return None
