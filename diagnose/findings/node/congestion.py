"""Congestion and loss: waits, RDMA retransmissions, pause, drops, EFA, TCP; traffic that does not belong there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.node_metrics.facets import IGNORED_ENTITIES
from diagnose.analysis.node_metrics.peers import compare
from diagnose.findings.node.emit import Scope, Seen, emit
from diagnose.units import format_count, format_rate, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.node.context import Context, Row
    from diagnose.model import Finding

SMALL_TICK_BYTES = 8
"""Bytes per XmitWait tick and port on Quantum and newer: the smaller of the two known sizes, so a lower bound."""

RETRANSMITS = (
    "nic.roce.packet_seq_err_total",
    "nic.roce.out_of_sequence_total",
    "nic.roce.ack_timeout_total",
    "nic.roce.adp_retrans_total",
    "nic.roce.implied_nak_total",
)
ROUGHLY_SYMMETRIC = 0.2
BUSY_BYTES_PER_S = 50_000_000


def check_congestion(context: Context) -> Iterator[Finding]:
    """All rules of this module."""
    yield from _wait(context)
    yield from _counts(context, "NIC-ROCE-01", "retransmits", RETRANSMITS, "RDMA retransmission events", summed=True)
    yield from _rates(
        context, "NIC-ROCE-02", "cnps_per_second", ("nic.roce.cnp_handled_total", "nic.roce.cnp_sent_total")
    )
    yield from _pause(context)
    yield from _counts(
        context,
        "NIC-DROP-01",
        "drops",
        ("nic.rx_discards_total", "nic.roce.out_of_buffer_total"),
        "packets dropped on receive",
    )
    yield from _efa(context)
    yield from _tcp(context)
    yield from _mixed(context)
    yield from _path(context)
    yield from _quality_of_service(context)


def _counts(
    context: Context, code: str, name: str, metrics: tuple[str, ...], words: str, *, summed: bool = False
) -> Iterator[Finding]:
    """Counters of which the increase counts; several kinds of one event are added up, else the largest stands."""
    threshold = context.facts.rules[code].thresholds[name]
    seen = []
    hosts: set[str | None] = set()
    for (host, entity), slot in context.devices(*metrics).items():
        hosts.add(host)
        rows = list(slot.values())
        dated = [row.increase for row in rows if row.increase is not None]
        values = dated or [row.last or 0 for row in rows]
        value = sum(values) if summed else max(values)
        severity = threshold.severity(value)
        if severity:
            text = f"{format_count(value)} {words}{' in the window' if dated else ''}"
            seen.append(Seen(host, entity, severity, text, value, "count", dated=bool(dated)))
    yield from emit(context, code, seen, Scope(frozenset(hosts), network=True))


def _rates(context: Context, code: str, name: str, metrics: tuple[str, ...]) -> Iterator[Finding]:
    threshold = context.facts.rules[code].thresholds[name]
    seen = []
    hosts: set[str | None] = set()
    for row in context.rows(*metrics):
        hosts.add(row.host)
        severity = threshold.severity(row.rate)
        if severity and row.rate is not None:
            words = row.metric.rsplit(".", 1)[1].removesuffix("_total").replace("_", " ")
            seen.append(Seen(row.host, row.entity, severity, f"{row.rate:.0f} {words} a second", row.rate, "1/s"))
        elif row.snapshot and row.last:
            words = row.metric.rsplit(".", 1)[1].removesuffix("_total").replace("_", " ")
            seen.append(
                Seen(row.host, row.entity, "info", f"{format_count(row.last)} {words}", row.last, "count", dated=False)
            )
    yield from emit(context, code, seen, Scope(frozenset(hosts), network=True))


def _wait(context: Context) -> Iterator[Finding]:
    threshold = context.facts.rules["NIC-WAIT-01"].thresholds["wait_share"]
    speeds = {(row.host, row.entity): row.median for row in context.rows("nic.rate") if row.median}
    seen = []
    hosts: set[str | None] = set()
    for row in context.rows("nic.xmit_wait_ticks_total"):
        hosts.add(row.host)
        speed = speeds.get((row.host, row.entity))
        if row.rate is None or not speed:
            continue
        share = row.rate * SMALL_TICK_BYTES * 8 / speed
        severity = threshold.severity(share)
        if severity:
            seen.append(
                Seen(
                    row.host,
                    row.entity,
                    severity,
                    f"waited to send at least {format_ratio(share)} of the window",
                    share,
                    "ratio",
                )
            )
    yield from emit(context, "NIC-WAIT-01", seen, Scope(frozenset(hosts), network=True))


def _pause(context: Context) -> Iterator[Finding]:
    """Received pause blames the far side, sent pause this host."""
    for way, code, name in (("rx", "NIC-PFC-01", "rx_pause_share"), ("tx", "NIC-PFC-02", "tx_pause_share")):
        rule = context.facts.rules[code]
        seen: list[Seen] = []
        hosts: set[str | None] = set()
        metrics = (f"nic.{way}_pause_seconds_total", f"nic.{way}_pause_total")
        for (host, entity), slot in context.devices(*metrics).items():
            hosts.add(host)
            item = _paused(
                rule.thresholds[name].severity, slot.get(metrics[0]), slot.get(metrics[1]), host, entity, way
            )
            if (
                item is None
                and way == "tx"
                and (frames := slot.get(metrics[1]))
                and frames.increase
                and metrics[0] not in slot
            ):
                severity = rule.thresholds["tx_pause_frames"].severity(frames.increase)
                text = f"{format_count(frames.increase)} pause frames sent in the window"
                item = Seen(host, entity, severity, text, frames.increase, "count") if severity else None
            if item:
                seen.append(item)
        for row in context.rows("nic.tx_pause_storm_total", "nic.rx_buffer_passed_thres_total") if way == "tx" else ():
            if row.total:
                what = "pause storms" if "storm" in row.metric else "receive buffer over its threshold"
                seen.append(
                    Seen(
                        row.host,
                        row.entity,
                        "warning",
                        f"{what}: {format_count(row.total)}",
                        row.total,
                        "count",
                        dated=not row.snapshot,
                    )
                )
        yield from emit(context, code, seen, Scope(frozenset(hosts), network=True))


def _paused(
    severity_of: object, duration: Row | None, frames: Row | None, host: str | None, entity: str, way: str
) -> Seen | None:
    words = "told to stop" if way == "rx" else "made others stop"
    if duration is not None and duration.share is not None:
        severity = severity_of(duration.share)  # type: ignore[operator]
        text = f"{words} for {duration.increase:.3g} s, {format_ratio(duration.share)} of the window"
        return Seen(host, entity, severity, text, duration.share, "ratio") if severity else None
    if duration is not None and duration.increase:
        return Seen(
            host,
            entity,
            "warning",
            f"{words} for {duration.increase:.3g} s between two snapshots",
            duration.increase,
            "s",
        )
    total = duration.last if duration is not None and duration.snapshot else None
    if total:
        return Seen(host, entity, "info", f"{words} for {total:.3g} s", total, "s", dated=False)
    if frames is not None and frames.total and duration is None and (frames.snapshot or way == "rx"):
        text = f"{format_count(frames.total)} pause frames {'received' if way == 'rx' else 'sent'}"
        return Seen(host, entity, "info", text, frames.total, "count", dated=not frames.snapshot)
    return None


def _efa(context: Context) -> Iterator[Finding]:
    plans = (
        ("NIC-EFA-01", "timeouts", "nic.efa.retrans_timeout_total", "retransmission time-outs"),
        ("NIC-EFA-01", "rx_drops", "nic.efa.rx_drops_total", "receive drops"),
        ("NIC-EFA-02", "impaired", "nic.efa.impaired_total", "peers with a reduced rate"),
        ("NIC-EFA-02", "impaired", "nic.efa.unresponsive_total", "peers that did not answer"),
    )
    found: dict[str, list[Seen]] = {}
    hosts: set[str | None] = set()
    for code, name, metric, words in plans:
        for row in context.rows(metric):
            hosts.add(row.host)
            severity = context.facts.rules[code].thresholds[name].severity(row.total)
            if severity and row.total:
                text = f"{format_count(row.total)} {words}{'' if row.snapshot else ' in the window'}"
                found.setdefault(code, []).append(
                    Seen(row.host, row.entity, severity, text, row.total, "count", dated=not row.snapshot)
                )
    for code in sorted(found):
        yield from emit(context, code, found[code], Scope(frozenset(hosts), network=True))


def _tcp(context: Context) -> Iterator[Finding]:
    threshold = context.facts.rules["NIC-TCP-01"].thresholds["retransmit_share"]
    sent = {row.host: row.increase for row in context.rows("node.tcp_out_segs_total")}
    seen = []
    for row in context.rows("node.tcp_retrans_total"):
        total = sent.get(row.host)
        share = row.increase / total if row.increase is not None and total else None
        severity = threshold.severity(share)
        if severity and share is not None:
            text = f"{format_ratio(share)} of its TCP segments sent again ({format_count(row.increase)})"
            seen.append(Seen(row.host, "node", severity, text, share, "ratio"))
    yield from emit(context, "NIC-TCP-01", seen, Scope(frozenset(sent), network=True))


def _mixed(context: Context) -> Iterator[Finding]:
    """One host sends or receives far more than the busiest other: collectives are symmetric, so it is not theirs."""
    rule = context.facts.rules["NIC-MIX-01"]
    rates: dict[tuple[str, str], dict[str, float]] = {}
    for row in context.rows("nic.tx_bytes_total", "nic.rx_bytes_total"):
        if row.host and row.rate is not None and not row.entity.startswith(IGNORED_ENTITIES):
            rates.setdefault((row.metric, row.entity), {})[row.host] = row.rate
    seen = []
    hosts: set[str | None] = set()
    for (metric, entity), group in rates.items():
        hosts |= set(group)
        for host, peers in compare(group).items():
            excess = peers.value - peers.largest_other
            ratio = peers.value / peers.largest_other if peers.largest_other else None
            severity = rule.judge(traffic_ratio=ratio, excess_bytes_per_s=excess)
            if severity and peers.largest_other > excess * ROUGHLY_SYMMETRIC:
                way = "sent" if ".tx_" in metric else "received"
                busiest = format_rate(peers.largest_other)
                text = f"{way} {format_rate(peers.value)}, the busiest of {peers.peers} peers {busiest}"
                share = None if ratio is None else 1 - 1 / ratio
                seen.append(Seen(host, entity, severity, text, ratio, "ratio", lost_share=share))
    yield from emit(context, "NIC-MIX-01", seen, Scope(frozenset(hosts), network=True))


def _path(context: Context) -> Iterator[Finding]:
    """Hosts with RDMA ports whose bytes run over another interface."""
    threshold = context.facts.rules["NIC-PATH-01"].thresholds["other_share"]
    rdma: dict[str, float] = {}
    other: dict[str, tuple[float, str]] = {}
    for row in context.rows("nic.tx_bytes_total"):
        if row.host is None or row.rate is None or row.entity.startswith(IGNORED_ENTITIES):
            continue
        if "/" in row.entity:
            rdma[row.host] = rdma.get(row.host, 0.0) + row.rate
        elif row.rate > other.get(row.host, (0.0, ""))[0]:
            other[row.host] = (row.rate, row.entity)
    seen = []
    for host, (rate, entity) in sorted(other.items()):
        if host not in rdma or rate < BUSY_BYTES_PER_S:
            continue
        share = rate / (rate + rdma[host])
        severity = threshold.severity(share)
        if severity:
            text = f"sent {format_rate(rate)} while its RDMA ports sent {format_rate(rdma[host])}"
            seen.append(Seen(host, entity, severity, text, share, "ratio"))
    yield from emit(context, "NIC-PATH-01", seen, Scope(frozenset(rdma), intrinsic=True))


def _quality_of_service(context: Context) -> Iterator[Finding]:
    """All bytes in priority 0 while pause of another priority is counted."""
    threshold = context.facts.rules["NIC-QOS-01"].thresholds["default_class_share"]
    parts: dict[tuple[str | None, str], dict[str, float]] = {}
    for row in context.rows("nic.tx_prio_bytes_total"):
        device, _, prio = row.entity.rpartition("/prio:")
        if row.total:
            parts.setdefault((row.host, device), {})[prio] = row.total
    paused = {
        row.entity.rpartition("/prio:")[0]
        for row in context.rows("nic.rx_pause_total", "nic.tx_pause_total")
        if "/prio:" in row.entity and not row.entity.endswith(":0")
    }
    seen = []
    for (host, device), shares in parts.items():
        total = sum(shares.values())
        share = shares.get("0", 0.0) / total if total else None
        severity = threshold.severity(share)
        if severity and share is not None and device in paused:
            seen.append(
                Seen(host, device, severity, f"{format_ratio(share)} of the bytes in priority 0", share, "ratio")
            )
    yield from emit(context, "NIC-QOS-01", seen, Scope(frozenset(host for host, _ in parts), network=True))
