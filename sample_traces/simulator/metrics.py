"""Node metrics as people keep them: nvidia-smi CSV, scraped exporter pages, a Prometheus dump."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from simulator.node_state import CORES, NodeState
from simulator.trace_frame import EPOCH_NS

if TYPE_CHECKING:
    from pathlib import Path

    from simulator.timeline import Timeline

STYLES = ("smi", "scrapes", "openmetrics", "none")
_BEFORE_NS, _AFTER_NS, _SAMPLES = 4e9, 3e9, 24
_SMI = (
    "timestamp, driver_version, index, uuid, pci.bus_id, name, pcie.link.gen.current, pcie.link.gen.max, "
    "pcie.link.width.current, pcie.link.width.max, pstate, clocks_event_reasons.active, "
    "clocks_event_reasons.sw_power_cap, clocks_event_reasons.hw_thermal_slowdown, "
    "clocks_event_reasons.sw_thermal_slowdown, clocks_event_reasons_counters.sw_power_cap [us], "
    "clocks_event_reasons_counters.hw_thermal_slowdown [us], clocks_event_reasons_counters.sw_thermal_slowdown [us], "
    "utilization.gpu [%], utilization.memory [%], memory.used [MiB], temperature.gpu, temperature.memory, "
    "power.draw [W], enforced.power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz]"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series."""

    name: str
    kind: str
    labels: tuple[tuple[str, str], ...]
    value: float


def write_metrics(timeline: Timeline, folder: Path, style: str) -> None:
    """Files of every host in one of the styles."""
    if style == "none":
        return
    folder.mkdir(parents=True, exist_ok=True)
    state = NodeState(timeline)
    times = np.linspace(-_BEFORE_NS, state.end_ns + _AFTER_NS, _SAMPLES)
    if style == "smi":
        _write_smi(timeline, state, times, folder)
        _write_scrapes(timeline, state, times[[0, -1]], folder, gpus=False)
    elif style == "scrapes":
        _write_scrapes(timeline, state, times[:: _SAMPLES // 6], folder, gpus=True)
    else:
        _write_dump(timeline, state, times[::2], folder)


def _unix_ns(timeline: Timeline, host: int, t: float) -> int:
    rank = int(np.nonzero(timeline.topology.host_of == host)[0][0])
    return EPOCH_NS[timeline.job.era] + int(timeline.observed(rank, np.float64(t)))  # type: ignore[arg-type]


def _ranks(timeline: Timeline, host: int) -> list[int]:
    return [int(r) for r in np.nonzero(timeline.topology.host_of == host)[0]]


def _write_smi(timeline: Timeline, state: NodeState, times: np.ndarray, folder: Path) -> None:
    for host, name in enumerate(timeline.topology.host_names):
        rows = [_SMI]
        for t in times:
            at = datetime.fromtimestamp(_unix_ns(timeline, host, t) / 1e9, tz=UTC)
            stamp = f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03d}"
            rows += [_smi_row(state, rank, float(t), stamp) for rank in _ranks(timeline, host)]
        (folder / f"nvidia-smi.{name}.csv").write_text("\n".join(rows) + "\n")


def _smi_row(state: NodeState, rank: int, t: float, stamp: str) -> str:
    gpu = state.gpu(rank, t)
    running = state.running(t)
    mask = 0x1 if not running else 0x40 | 0x8 if gpu.thermal else 0x0
    active = "Active" if gpu.thermal else "Not Active"
    used = 62_890 if running else 3
    return (
        f"{stamp}, 570.124.06, {gpu.index}, {gpu.uuid}, 00000000:{gpu.bus}:00.0, {gpu.name}, 5, 5, 16, 16, P0, "
        f"0x{mask:016X}, Not Active, {active}, Not Active, 0 us, {gpu.thermal_us} us, 0 us, "
        f"{100 if running else 0} %, {round(38 * gpu.busy)} %, {used} MiB, {gpu.temperature}, {gpu.temperature + 7}, "
        f"{gpu.power_w:.2f} W, 700.00 W, {gpu.clock_mhz} MHz, {gpu.max_clock_mhz} MHz"
    )


def _gpu_samples(state: NodeState, host_name: str, ranks: list[int], t: float) -> list[Sample]:
    samples = []
    for rank in ranks:
        gpu = state.gpu(rank, t)
        labels = (
            ("gpu", str(gpu.index)),
            ("UUID", gpu.uuid),
            ("pci_bus_id", f"00000000:{gpu.bus}:00.0"),
            ("device", f"nvidia{gpu.index}"),
            ("modelName", gpu.name),
            ("Hostname", host_name),
        )
        values = (
            ("DCGM_FI_DEV_SM_CLOCK", "gauge", gpu.clock_mhz),
            ("DCGM_FI_DEV_GPU_TEMP", "gauge", gpu.temperature),
            ("DCGM_FI_DEV_POWER_USAGE", "gauge", round(gpu.power_w, 3)),
            ("DCGM_FI_DEV_GPU_UTIL", "gauge", 100 if state.running(t) else 0),
            ("DCGM_FI_DEV_XID_ERRORS", "gauge", 0),
            ("DCGM_FI_DEV_FB_USED", "gauge", 62_890 if state.running(t) else 3),
            ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", gpu.thermal_us * 1000),
            ("DCGM_FI_DEV_POWER_VIOLATION", "counter", 0),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", round(0.2 + 0.8 * gpu.busy, 6) if gpu.busy else 0.0),
        )
        samples += [Sample(name, kind, labels, value) for name, kind, value in values]
    return samples


def _node_samples(state: NodeState, host: int, host_name: str, now_s: float, t: float) -> list[Sample]:
    node = state.node(host, t)
    uname = (
        ("domainname", "(none)"),
        ("machine", "x86_64"),
        ("nodename", host_name),
        ("release", "5.15.0-1063-nvidia"),
    )
    samples = [Sample("node_boot_time_seconds", "gauge", (), 1_771_900_411.0)]
    for cpu in range(CORES):
        for mode in ("idle", "iowait", "system", "user"):
            label = (("cpu", str(cpu)), ("mode", mode))
            samples.append(Sample("node_cpu_seconds_total", "counter", label, round(node[mode] / CORES, 2)))
    disk = (("device", "nvme0n1"),)
    samples += [
        Sample("node_disk_io_time_seconds_total", "counter", disk, round(node["disk_busy"], 3)),
        Sample("node_disk_read_bytes_total", "counter", disk, round(node["disk_read"])),
    ]
    for local in range(state.job.cluster.gpus_per_host):
        port, label = state.port(host, local, t), (("device", f"mlx5_{local}"), ("port", "1"))
        for name, kind, value in (
            ("link_downed_total", "counter", 0),
            ("physical_state_id", "gauge", 5),
            ("port_data_received_bytes_total", "counter", round(node["port"] + node["foreign"] + local * 1e9)),
            ("port_data_transmitted_bytes_total", "counter", round(node["port"] + local * 1.1e9)),
            ("port_errors_received_total", "counter", port["receive_errors"]),
            ("port_transmit_wait_total", "counter", round(port["wait"])),
            ("rate_bytes_per_second", "gauge", port["rate"]),
            ("state_id", "gauge", 4),
            ("symbol_error_total", "counter", port["symbol_errors"]),
        ):
            samples.append(Sample(f"node_infiniband_{name}", kind, label, value))
    eth = (("device", "eth0"),)
    samples += [
        Sample("node_load1", "gauge", (), round(node["load1"], 2)),
        Sample("node_memory_MemAvailable_bytes", "gauge", (), 1.61e12),
        Sample("node_memory_MemTotal_bytes", "gauge", (), 2.16e12),
        Sample("node_network_receive_bytes_total", "counter", eth, round(node["eth"] * 1.01)),
        Sample("node_network_speed_bytes", "gauge", eth, 3.125e9),
        Sample("node_network_transmit_bytes_total", "counter", eth, round(node["eth"])),
        Sample("node_pressure_cpu_waiting_seconds_total", "counter", (), round(node["psi_cpu"], 6)),
        Sample("node_pressure_io_waiting_seconds_total", "counter", (), round(node["psi_io"], 6)),
        Sample("node_time_seconds", "gauge", (), round(now_s, 6)),
        Sample("node_timex_offset_seconds", "gauge", (), round(node["offset"], 6)),
        Sample("node_timex_sync_status", "gauge", (), 1),
        Sample("node_uname_info", "gauge", uname, 1),
    ]
    return samples


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e6 else f"{value:.12g}"


def _labels(pairs: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{k}="{v}"' for k, v in pairs) + "}" if pairs else ""


def _page(samples: list[Sample]) -> str:
    """Exposition text: all series of a metric under its TYPE line."""
    series: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        series[sample.name].append(sample)
    lines = []
    for name, rows in series.items():
        lines.append(f"# TYPE {name} {rows[0].kind}")
        lines += [f"{name}{_labels(r.labels)} {_number(r.value)}" for r in rows]
    return "\n".join(lines) + "\n"


def _write_scrapes(timeline: Timeline, state: NodeState, times: np.ndarray, folder: Path, *, gpus: bool) -> None:
    for host, name in enumerate(timeline.topology.host_names):
        place = folder / name
        place.mkdir(exist_ok=True)
        for t in times:
            now = _unix_ns(timeline, host, t) / 1e9
            page = _page(_node_samples(state, host, name, now, float(t)))
            (place / f"node_exporter-{int(now)}.prom").write_text(page)
            if gpus:
                page = _page(_gpu_samples(state, name, _ranks(timeline, host), float(t)))
                (place / f"dcgm-exporter-{int(now)}.prom").write_text(page)


def _write_dump(timeline: Timeline, state: NodeState, times: np.ndarray, folder: Path) -> None:
    """What `promtool tsdb dump-openmetrics` prints: every series with its samples, times in seconds."""
    series: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host, name in enumerate(timeline.topology.host_names):
        for t in times:
            now = _unix_ns(timeline, host, t) / 1e9
            stamp = f"{now:.3f}"
            for job, port, samples in (
                ("node", 9100, _node_samples(state, host, name, now, float(t))),
                ("dcgm", 9400, _gpu_samples(state, name, _ranks(timeline, host), float(t))),
            ):
                for sample in samples:
                    labels = (*sample.labels, ("instance", f"{name}:{port}"), ("job", job))
                    key = (sample.name, _labels(labels))
                    series[key].append(f"{sample.name}{key[1]} {_number(sample.value)} {stamp}")
    lines = [line for rows in series.values() for line in rows]
    (folder / "prometheus.om").write_text("\n".join(lines) + "\n# EOF\n")
