"""Small samples of every GPU format: exact values, null words, entities."""

from __future__ import annotations

from node_metrics_support import text_source

UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000000"


def test_query_csv_with_mig_and_old_reason_names(ingest):
    text = (
        "timestamp, index, uuid, pci.bus_id, clocks_throttle_reasons.active, utilization.gpu [%], power.draw [W], "
        "clocks.sm [MHz], mig.mode.current\n"
        f"2026/01/02 03:04:05.678, 1, {UUID}, 00000000:3B:00.0, 0x0000000000000004, [N/A], 55.5, 1410, Enabled\n"
    )
    ingest.read([text_source(text, "node3/gpu.csv")])
    assert ingest.claims["node3/gpu.csv"] == ["nvidia-smi-csv"]
    assert ingest.value("gpu.throttle_mask", f"gpu:{UUID}") == 4
    assert ingest.value("gpu.util", f"gpu:{UUID}") is None
    assert ingest.value("gpu.power", f"gpu:{UUID}") == 55.5
    assert ingest.value("gpu.sm_clock", f"gpu:{UUID}") == 1.41e9
    assert ingest.value("gpu.mig_enabled", f"gpu:{UUID}") == 1
    assert {row[1] for row in ingest.samples()} == {"node3"}
    assert ingest.frame("host_device").row(0, named=True)["pci_bus_id"] == "00000000:3b:00.0"
    assert {issue.code for issue in ingest.issues} == {"DQ-01", "DQ-03"}


def test_query_csv_nounits_and_truncated_row(ingest):
    text = "index, clocks.sm [MHz], memory.used [MiB]\n0, 1980, 10\n1, 1975\n"
    ingest.read([text_source(text)])
    assert ingest.value("gpu.mem_used", "gpu:index:0") == 10 * 1048576
    assert ingest.value("gpu.sm_clock", "gpu:index:1") == 1.975e9


XML = f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Tue Jul 14 08:12:53 2026</timestamp>
  <gpu id="00000000:00:09.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <uuid>{UUID}</uuid>
    <mig_devices>
      <mig_device><gpu_instance_id>3</gpu_instance_id>
      <fb_memory_usage><total>100 MiB</total><used>4 MiB</used></fb_memory_usage></mig_device>
    </mig_devices>
    <pci><pci_gpu_link_info>
      <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>4</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
    </pci_gpu_link_info><replay_counter>9</replay_counter></pci>
    <clocks_event_reasons>
      <clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
    </clocks_event_reasons>
    <fb_memory_usage><total>81559 MiB</total><used>1 MiB</used></fb_memory_usage>
    <utilization><gpu_util>100 %</gpu_util></utilization>
    <ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable_parity>1</sram_uncorrectable_parity>
      <sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
    <remapped_rows><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>
    <temperature><gpu_temp>59 C</gpu_temp><gpu_temp_tlimit>26 C</gpu_temp_tlimit></temperature>
    <gpu_power_readings><average_power_draw>629.45 W</average_power_draw>
    <current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
    <clocks><sm_clock>1980 MHz</sm_clock></clocks>
  </gpu>
</nvidia_smi_log>
"""


def test_xml(ingest):
    ingest.read([text_source(XML, "q.xml")])
    entity = f"gpu:{UUID}"
    assert ingest.claims["q.xml"] == ["nvidia-smi-xml"]
    for metric, value in (
        ("gpu.mem_total", 85520809984),
        ("gpu.pcie_gen", 4),
        ("gpu.pcie_width", 8),
        ("gpu.pcie_replay_total", 9),
        ("gpu.throttle_mask", 8),
        ("gpu.power", 629.45),
        ("gpu.power_limit", 700),
        ("gpu.row_remap_failure", 1),
        ("gpu.ecc.sram_uncorrected_volatile_total", 3),
        ("gpu.temp_margin", 26),
    ):
        assert ingest.value(metric, entity) == value, metric
    assert ingest.value("gpu.mem_used", f"{entity}/gi:3") == 4 * 1048576
    assert {"GPU-ECC-01", "GPU-ECC-03", "GPU-THERM-01", "GPU-PCIE-01"} <= ingest.codes()


def test_xml_entities_are_not_expanded(ingest):
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "xxxx">]>\n<nvidia_smi_log><timestamp>&a;</timestamp></nvidia_smi_log>'
    ingest.read([text_source(bomb, "q.xml")])
    assert ingest.outcomes["q.xml"].status == "failed"


def test_nvlink_inactive_is_a_finding(ingest):
    text = (
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID})\n"
        "Unable to retrieve NVLink information as all links are inActive\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbbbbbb-0000-4000-8000-000000000000)\n"
        + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
    )
    ingest.read([text_source(text)])
    assert ingest.value("gpu.nvlink_links_active", f"gpu:{UUID}") == 0
    assert ingest.value("gpu.nvlink_links_active", "gpu:GPU-bbbbbbbb-0000-4000-8000-000000000000") == 18
    assert "GPU-NVL-01" in ingest.loud()


def test_dcgm_new_names_mean_the_same(ingest):
    text = (
        "# TYPE DCGM_FI_DEV_BOARD_POWER_WATTS gauge\n"
        f'DCGM_FI_DEV_BOARD_POWER_WATTS{{gpu="2",UUID="{UUID}",Hostname="Node-A.example.com"}} 500.5\n'
        f'DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu="2",UUID="{UUID}",Hostname="Node-A.example.com"}} 0.5\n'
        f'DCGM_FI_PROF_SM_UTIL_RATIO{{gpu="2",UUID="{UUID}",Hostname="Node-A.example.com"}} 0.25\n'
        f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="2",UUID="{UUID}",Hostname="Node-A.example.com"}} 1000\n'
        f'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{gpu="2",UUID="{UUID}",Hostname="Node-A.example.com"}} 7\n'
        f'DCGM_FI_DEV_THERMAL_VIOLATION{{gpu="2",UUID="{UUID}",Hostname="Node-A.example.com"}} 2000000000\n'
    )
    ingest.read([text_source(text, "x.prom")])
    entity = f"gpu:{UUID}"
    assert ingest.value("gpu.power", entity) == 500.5
    assert ingest.value("gpu.util", entity) == 0.5
    assert ingest.value("gpu.sm_active", entity) == 0.25
    assert ingest.value("gpu.energy_total", entity) == 1
    assert ingest.value("gpu.nvlink_rate", entity) == 7e6
    assert ingest.value("gpu.throttle.thermal_seconds_total", entity) == 2
    assert {row[1] for row in ingest.samples()} == {"node-a"}


def test_declared_type_never_decides(ingest):
    text = '# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter\nDCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu="0"} 7\n'
    ingest.read([text_source(text, "x.prom")])
    assert ingest.frame().row(0, named=True)["kind"] == "gauge"
    assert [issue.code for issue in ingest.issues if issue.code == "DQ-06"] == ["DQ-06"]


def test_dcgmi_dmon(ingest):
    text = (
        "#Entity   SMACT   TENSO   DRAMA   POWER\nID\n"
        "GPU 0     0.912   0.521   0.300   612.5\nGPU 1     N/A     0.001   0.300   140737488355328\n"
    )
    ingest.read([text_source(text)])
    assert ingest.value("gpu.sm_active", "gpu:index:0") == 0.912
    assert ingest.value("gpu.tensor_active", "gpu:index:1") == 0.001
    assert ingest.value("gpu.sm_active", "gpu:index:1") is None
    assert ingest.value("gpu.power", "gpu:index:1") is None


def test_nvidia_dmon_with_time(ingest):
    text = (
        "#Date       Time        gpu   pwr  sm\n#YYYYMMDD   HH:MM:SS    Idx     W   %\n 20260714   08:"
        "12:53      0   631   -\n"
    )
    ingest.read([text_source(text)])
    row = next(row for row in ingest.samples() if row[0] == "gpu.power")
    assert row[3:] == (1784016773 * 10**9, 631.0)
    assert ingest.value("gpu.util", "gpu:index:0") is None


def test_amd_json_text_and_csv_agree(ingest):
    json_text = (
        '[{"gpu": 0, "usage": {"gfx_activity": {"value": 97, "unit": "%"}}, "power": {"socket_power": '
        '{"value": 700, "unit": "W"}},'
        '"clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}}, "throttle": '
        '{"accumulation_counter": 1000, "ppt_accumulated": 12,'
        '"hbm_thermal_accumulated": 18446744073709551615}, "temperature": {"hotspot": {"value": 71, "unit": "C"}}}]'
    )
    plain = (
        "GPU: 0\n    USAGE:\n        GFX_ACTIVITY: 97 %\n    POWER:\n        SOCKET_POWER: 700 W\n    "
        "CLOCK:\n        GFX_0:\n"
        "            CLK: 2100 MHz\n    TEMPERATURE:\n        HOTSPOT: 71 °C\n    THROTTLE:\n        "
        "ACCUMULATION_COUNTER: 1000\n"
        "        PPT_ACCUMULATED: 12\n        HBM_THERMAL_ACCUMULATED: N/A\n"
    )
    table = "gpu,gfx_activity,socket_power,gfx_0_clk,hotspot_temperature\n0,97,700,2100,71\n"
    for name, text in (("a.json", json_text), ("a.txt", plain), ("a.csv", table)):
        ingest.read([text_source(text, name)])
        assert ingest.claims[name], name
    for metric, value in (("gpu.util", 0.97), ("gpu.power", 700), ("gpu.sm_clock", 2.1e9), ("gpu.temp", 71)):
        found = [row[4] for row in ingest.samples() if row[0] == metric and row[2] == "gpu:index:0"]
        assert found == [value] * 3, metric
    ticks = [row[4] for row in ingest.samples() if row[0] == "gpu.throttle.hbm_thermal_ticks_total"]
    assert ticks == [None, None]


def test_rocm_json_of_another_version(ingest):
    text = (
        '{"card0": {"Current Socket Graphics Package Power (W)": "140.0", "sclk clock level:": "1 '
        '(132Mhz)", "GPU use (%)": "3",'
        '"GPU Memory Allocated (VRAM%)": "12", "Temperature (Sensor junction) (C)": "41.0"}, "system": '
        '{"Driver version": "6"}}'
    )
    ingest.read([text_source(text)])
    assert ingest.value("gpu.power", "gpu:card0") == 140
    assert ingest.value("gpu.sm_clock", "gpu:card0") == 132e6
    assert ingest.value("gpu.mem_used_ratio", "gpu:card0") == 0.12
