"""The handful of numbers a person would look at per host, each with its unit and what counts as like its peers."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from diagnose.analysis.node_metrics.counters import base_entity

SECOND_NS = 1e9


class Facet(NamedTuple):
    """One measure of one host's device. ``rate`` of counters is per second of the window."""

    host: str
    entity: str
    name: str
    value: float
    unit: str


class Plan(NamedTuple):
    """How a facet is made: metrics whose increases add up over parts of a device, or the median of a gauge."""

    name: str
    metric: str
    unit: str
    how: str
    over: str = ""


PLANS: tuple[Plan, ...] = (
    Plan("SM clock", "gpu.sm_clock", "Hz", "median"),
    Plan("power", "gpu.power", "W", "median"),
    Plan("temperature", "gpu.temp", "degC", "high"),
    Plan("GPU utilisation", "gpu.util", "ratio", "median"),
    Plan("HW thermal slowdown", "gpu.throttle.hw_thermal_seconds_total", "ratio", "share"),
    Plan("SW thermal slowdown", "gpu.throttle.sw_thermal_seconds_total", "ratio", "share"),
    Plan("SW power cap", "gpu.throttle.sw_power_seconds_total", "ratio", "share"),
    Plan("HW power brake", "gpu.throttle.hw_brake_seconds_total", "ratio", "share"),
    Plan("thermal violation", "gpu.throttle.thermal_seconds_total", "ratio", "share"),
    Plan("PCIe replays", "gpu.pcie_replay_total", "count", "increase"),
    Plan("PCIe generation", "gpu.pcie_gen", "gen", "median"),
    Plan("PCIe width", "gpu.pcie_width", "lanes", "median"),
    Plan("NVLink replays", "gpu.nvlink.replay_errors_total", "count", "increase"),
    Plan("NVLink recoveries", "gpu.nvlink.recovery_errors_total", "count", "increase"),
    Plan("link rate", "nic.rate", "bit/s", "median"),
    Plan("sent", "nic.tx_bytes_total", "bytes/s", "rate"),
    Plan("received", "nic.rx_bytes_total", "bytes/s", "rate"),
    Plan("symbol errors", "nic.symbol_errors_total", "count", "increase"),
    Plan("receive errors", "nic.rcv_errors_total", "count", "increase"),
    Plan("link downs", "nic.link_downed_total", "count", "increase"),
    Plan("transmit discards", "nic.xmit_discards_total", "count", "increase"),
    Plan("xmit wait", "nic.xmit_wait_ticks_total", "ticks/s", "rate"),
    Plan("out of sequence", "nic.roce.out_of_sequence_total", "count", "increase"),
    Plan("packet sequence errors", "nic.roce.packet_seq_err_total", "count", "increase"),
    Plan("ACK timeouts", "nic.roce.ack_timeout_total", "count", "increase"),
    Plan("CNPs handled", "nic.roce.cnp_handled_total", "count", "increase"),
    Plan("rx pause", "nic.rx_pause_seconds_total", "ratio", "share"),
    Plan("tx pause", "nic.tx_pause_seconds_total", "ratio", "share"),
    Plan("rx discards", "nic.rx_discards_total", "count", "increase"),
    Plan("EFA retransmit time-outs", "nic.efa.retrans_timeout_total", "count", "increase"),
    Plan("interface drops", "nic.rx_drops_total", "count", "increase"),
    Plan("carrier losses", "nic.carrier_down_total", "count", "increase"),
    Plan("TCP retransmits", "node.tcp_retrans_total", "ratio", "per", "node.tcp_out_segs_total"),
    Plan("TCP time-outs", "node.tcp_timeouts_total", "count", "increase"),
    Plan("CPU throttled periods", "job.cpu_throttled_periods_total", "ratio", "per", "job.cpu_periods_total"),
    Plan("CPU throttled time", "job.cpu_throttled_seconds_total", "ratio", "share"),
    Plan("CPU used by the job", "job.cpu_seconds_total", "cores", "rate"),
    Plan("read by the job", "job.fs_read_bytes_total", "bytes/s", "rate"),
    Plan("major faults", "node.major_faults_total", "1/s", "rate"),
    Plan("load", "node.load1", "load", "median"),
    Plan("memory available", "node.mem_available", "bytes", "low"),
    Plan("io pressure", "node.psi_io_waiting_seconds_total", "ratio", "share"),
    Plan("cpu pressure", "node.psi_cpu_waiting_seconds_total", "ratio", "share"),
    Plan("disk busy", "disk.io_time_seconds_total", "ratio", "share"),
    Plan("disk read", "disk.read_bytes_total", "bytes/s", "rate"),
)

IGNORED_ENTITIES = ("nic:lo", "disk:loop", "disk:ram", "nic:veth", "nic:docker", "nic:cali", "switch:", "agg:")


def facets(summary: pl.DataFrame) -> list[Facet]:
    """All facets that a summary holds, by host and device."""
    if summary.is_empty():
        return []
    found: list[Facet] = []
    rows = summary.filter(pl.col("host").is_not_null() & ~pl.col("snapshot")).with_columns(
        pl.col("entity").map_elements(base_entity, return_dtype=pl.String).alias("base")
    )
    for plan in PLANS:
        for row in _grouped(rows, plan.metric).iter_rows(named=True):
            value = _value(row, plan, rows)
            if value is not None and not row["base"].startswith(IGNORED_ENTITIES):
                found.append(Facet(row["host"], row["base"], plan.name, value, plan.unit))
    return found + _cpu_modes(rows)


def _grouped(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    return (
        rows.filter(pl.col("metric") == metric)
        .group_by("host", "base")
        .agg(
            pl.col("increase").sum(),
            pl.col("span_ns").max(),
            pl.col("median").mean(),
            pl.col("high").max(),
            pl.col("low").min(),
        )
        .sort("host", "base")
    )


def _value(row: dict[str, float | None], plan: Plan, rows: pl.DataFrame) -> float | None:
    if plan.how in ("median", "high", "low"):
        return row[plan.how]
    increase, span = row["increase"], row["span_ns"]
    if increase is None:
        return None
    if plan.how == "increase":
        return increase
    if plan.how == "per":
        whole = rows.filter(
            (pl.col("metric") == plan.over) & (pl.col("host") == row["host"]) & (pl.col("base") == row["base"])
        ).get_column("increase")
        total = float(whole.sum() or 0)
        return increase / total if total else None
    return increase * SECOND_NS / span if span else None


def _cpu_modes(rows: pl.DataFrame) -> list[Facet]:
    """Shares of CPU time by mode, over all CPUs of a host; sadf and others give them as gauges."""
    seconds = rows.filter(
        (pl.col("metric") == "node.cpu_seconds_total") & pl.col("increase").is_not_null()
    ).with_columns(pl.col("entity").str.extract(r"mode:(\w+)").alias("mode"))
    found: list[Facet] = []
    totals = seconds.group_by("host").agg(pl.col("increase").sum().alias("total"))
    shares = seconds.group_by("host", "mode").agg(pl.col("increase").sum()).join(totals, on="host").sort("host", "mode")
    for host, mode, increase, total in shares.select("host", "mode", "increase", "total").iter_rows():
        if total and mode in ("steal", "iowait", "idle", "softirq"):
            found.append(Facet(host, "node", f"CPU {mode}", increase / total, "ratio"))
    counted = {facet.host for facet in found}
    gauges = rows.filter(
        (pl.col("entity") == "node") & pl.col("metric").str.contains(r"^node\.cpu_(?:steal|iowait|idle|softirq)$")
    )
    for host, metric, median in gauges.select("host", "metric", "median").iter_rows():
        if host not in counted and median is not None:
            found.append(Facet(host, "node", f"CPU {metric.removeprefix('node.cpu_')}", median, "ratio"))
    return found
