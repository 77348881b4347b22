"""Metrics that get worse when steps of the training log get longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.node_metrics.correlate import step_associations
from diagnose.model import Evidence
from diagnose.units import format_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.analysis.node_metrics.correlate import Association
    from diagnose.findings.node.context import Context
    from diagnose.model import Finding

_RISING = 1
_FALLING = -1
WORSE = {
    "gpu.sm_clock": _FALLING,
    **dict.fromkeys(
        (
            "gpu.temp", "gpu.mem_temp", "gpu.throttle.sw_power_seconds_total", "gpu.throttle.sw_thermal_seconds_total",
            "gpu.throttle.hw_thermal_seconds_total", "gpu.throttle.hw_brake_seconds_total", "gpu.pcie_replay_total",
            "nic.xmit_wait_ticks_total", "nic.symbol_errors_total", "nic.roce.out_of_sequence_total",
            "nic.roce.packet_seq_err_total", "nic.roce.ack_timeout_total", "nic.roce.cnp_handled_total",
            "nic.rx_pause_total", "nic.tx_pause_total", "nic.rx_discards_total", "nic.tx_discards_total",
            "node.cpu_iowait", "node.cpu_steal", "node.procs_blocked", "node.swap_used", "node.major_faults_total",
            "node.tcp_retrans_total", "node.psi_cpu_waiting_seconds_total", "node.psi_io_waiting_seconds_total",
            "node.psi_mem_waiting_seconds_total", "job.cpu_throttled_seconds_total", "disk.util", "disk.await",
            "disk.io_time_seconds_total", "mount.nfs_retrans_total",
        ),
        _RISING,
    ),
}  # fmt: skip
"""Which way each gets worse. Traffic, power and utilisation are not here: they follow the steps, slow or not."""

_SHOWN = 5


def check_moves(context: Context) -> Iterator[Finding]:
    """The strongest of them, as one remark."""
    rule = context.facts.rules["HOST-MOVES-01"]
    least = rule.limit("correlation", "info")
    tried = step_associations(context.facts.tables, sorted(WORSE), q=rule.limit("false_discovery", "info"))
    found = [one for one in tried if one.correlation * WORSE[one.metric] >= least]
    if not found:
        return
    found.sort(key=lambda one: (-abs(one.correlation), one.host or "", one.entity, one.metric))
    hosts = sorted({one.host for one in found if one.host})
    yield rule.finding(
        fields={"what": _listed(found)},
        hosts=hosts, devices=sorted({one.entity for one in found[:_SHOWN] if one.entity != "node"}),
        confidence=0.5, evidence=[_evidence(one) for one in found[:_SHOWN]],
    )  # fmt: skip


def _listed(found: list[Association]) -> str:
    shown = ", ".join(_where(one) for one in found[:_SHOWN])
    return f"{shown} and {len(found) - _SHOWN} more" if len(found) > _SHOWN else shown


def _where(one: Association) -> str:
    return " ".join(part for part in (one.host, None if one.entity == "node" else one.entity, one.metric) if part)


def _evidence(one: Association) -> Evidence:
    when = "together"
    if one.lag_ns:
        when = f"the metric {format_ns(abs(one.lag_ns))} {'before' if one.lag_ns > 0 else 'after'} the step"
    text = f"{_where(one)}: rank correlation with the step time over {one.windows} windows, {when}"
    return Evidence(text, round(one.correlation, 3), "ratio", "training_log")
