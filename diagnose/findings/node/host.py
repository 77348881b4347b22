"""The host: CPU time stolen or quota spent, waiting, memory, disks, NFS, clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.node_metrics.facets import facets
from diagnose.findings.node.emit import Scope, Seen, emit
from diagnose.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.node.context import Context
    from diagnose.model import Finding

MIN_NFS_REQUESTS = 100
MIN_DISK_OPERATIONS = 100
FACET_RULES = (
    ("HOST-CPU-01", "steal_share", "CPU steal", "of the CPU time stolen"),
    ("HOST-CPU-02", "iowait_share", "CPU iowait", "of the CPU time waiting for I/O"),
    ("HOST-CPU-02", "io_pressure_share", "io pressure", "of the time some task waits for I/O"),
    ("HOST-CPU-04", "throttled_periods_share", "CPU throttled periods", "of the quota periods throttled"),
    ("HOST-IO-01", "busy_share", "disk busy", "of the time busy"),
)


def check_host(context: Context) -> Iterator[Finding]:
    """All rules of this module."""
    yield from _shares(context)
    yield from _overload(context)
    yield from _memory(context)
    yield from _kills(context)
    yield from _disk_latency(context)
    yield from _nfs(context)
    yield from _clock(context)


def _shares(context: Context) -> Iterator[Finding]:
    known = facets(context.summary)
    found: dict[str, dict[tuple[str, str], Seen]] = {}
    hosts: dict[str, set[str | None]] = {}
    for code, name, facet_name, words in FACET_RULES:
        threshold = context.facts.rules[code].thresholds[name]
        for facet in known:
            if facet.name != facet_name:
                continue
            hosts.setdefault(code, set()).add(facet.host)
            severity = threshold.severity(facet.value)
            if severity:
                seen = Seen(
                    facet.host, facet.entity, severity, f"{format_ratio(facet.value)} {words}", facet.value, "ratio"
                )
                found.setdefault(code, {}).setdefault((facet.host, facet.entity), seen)
    for code in sorted(found):
        yield from emit(context, code, found[code].values(), Scope(frozenset(hosts[code])))


def _cores(context: Context) -> dict[str | None, float]:
    """CPUs of each host: stated, else those that were seen."""
    stated = {row.host: row.last for row in context.rows("node.cpu_count") if row.last}
    counted: dict[str | None, set[str]] = {}
    for row in context.rows("node.cpu_seconds_total"):
        counted.setdefault(row.host, set()).add(row.entity.split("/")[1])
    return {host: float(len(cpus)) for host, cpus in counted.items()} | {
        host: float(n) for host, n in stated.items() if n
    }


def _overload(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["HOST-CPU-03"]
    cores = _cores(context)
    idle: dict[str | None, float] = {
        facet.host: facet.value for facet in facets(context.summary) if facet.name == "CPU idle"
    }
    seen = []
    hosts: set[str | None] = set()
    for row in context.rows("node.load1"):
        hosts.add(row.host)
        count = cores.get(row.host)
        load = row.median / count if row.median is not None and count else None
        severity = rule.thresholds["load_per_core"].severity(load)
        if severity and load is not None and 1 - idle.get(row.host, 0.0) >= rule.limit("busy_with_load"):
            seen.append(Seen(row.host, "node", severity, f"load {row.median:.1f} on {count:.0f} CPUs", load, "load"))
    loaded = {item.host for item in seen}
    for facet in facets(context.summary):
        if facet.name == "CPU idle" and facet.host not in loaded:
            hosts.add(facet.host)
            severity = rule.thresholds["busy_share"].severity(1 - facet.value)
            if severity:
                seen.append(
                    Seen(
                        facet.host,
                        "node",
                        severity,
                        f"CPU busy {format_ratio(1 - facet.value)} of the time",
                        1 - facet.value,
                        "ratio",
                    )
                )
    yield from emit(context, "HOST-CPU-03", seen, Scope(frozenset(hosts)))


def _memory(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["HOST-MEM-01"]
    totals = {row.host: row.last for row in context.rows("node.mem_total") if row.last}
    swaps = {row.host: row.last for row in context.rows("node.swap_total") if row.last}
    seen: dict[str | None, Seen] = {}
    hosts: set[str | None] = set()
    for row in context.rows("node.mem_available"):
        hosts.add(row.host)
        total = totals.get(row.host)
        share = row.low / total if row.low is not None and total else None
        if severity := rule.thresholds["available_share"].severity(share):
            seen[row.host] = Seen(
                row.host, "node", severity, f"only {format_ratio(share)} of the memory available", share, "ratio"
            )
    for row in context.rows("node.major_faults_total"):
        hosts.add(row.host)
        if severity := rule.thresholds["major_faults_per_s"].severity(row.rate):
            seen.setdefault(
                row.host, Seen(row.host, "node", severity, f"{row.rate:.0f} major faults a second", row.rate, "1/s")
            )
    for host, used in _swap_used(context, swaps):
        if severity := rule.thresholds["swap_share"].severity(used):
            seen.setdefault(
                host, Seen(host, "node", severity, f"{format_ratio(used)} of the swap in use", used, "ratio")
            )
    yield from emit(context, "HOST-MEM-01", seen.values(), Scope(frozenset(hosts)))


def _swap_used(context: Context, totals: dict[str | None, float]) -> Iterator[tuple[str | None, float]]:
    for row in context.rows("node.swap_free", "node.swap_used"):
        total = totals.get(row.host)
        if total and row.last is not None:
            yield row.host, row.last / total if row.metric == "node.swap_used" else 1 - row.last / total


def _kills(context: Context) -> Iterator[Finding]:
    seen: dict[str | None, Seen] = {}
    events = context.events.filter(pl.col("kind") == "oom")
    for (host,), group in events.group_by(["host"], maintain_order=True):
        name = None if host is None else str(host)
        text = f"out of memory: {group.get_column('text')[0][:160]}"
        seen[name] = Seen(
            name, "node", "critical", text, float(group.height), "count", source=str(group.get_column("source")[0])
        )
    for row in context.rows("node.oom_kills_total"):
        if row.increase:
            seen.setdefault(
                row.host,
                Seen(
                    row.host,
                    "node",
                    "critical",
                    f"{row.increase:.0f} processes killed in the window",
                    row.increase,
                    "count",
                ),
            )
    yield from emit(context, "HOST-MEM-02", seen.values(), Scope(frozenset(seen), intrinsic=True))


def _disk_latency(context: Context) -> Iterator[Finding]:
    threshold = context.facts.rules["HOST-IO-01"].thresholds["latency_s"]
    seen = []
    hosts: set[str | None] = set()
    for way in ("read", "write"):
        names = (f"disk.{way}_time_seconds_total", f"disk.{way}s_total")
        for (host, entity), slot in context.devices(*names).items():
            hosts.add(host)
            spent, count = (slot[name].increase if name in slot else None for name in names)
            if spent is None or not count or count < MIN_DISK_OPERATIONS:
                continue
            severity = threshold.severity(spent / count)
            if severity:
                seen.append(Seen(host, entity, severity, f"{spent / count * 1e3:.0f} ms per {way}", spent / count, "s"))
    for row in context.rows("disk.await"):
        hosts.add(row.host)
        if severity := threshold.severity(row.median):
            seen.append(
                Seen(row.host, row.entity, severity, f"{(row.median or 0) * 1e3:.0f} ms per request", row.median, "s")
            )
    yield from emit(context, "HOST-IO-01", seen, Scope(frozenset(hosts)))


def _nfs(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["HOST-NFS-01"]
    metrics = ("mount.nfs_read_rtt_seconds_total", "mount.nfs_read_requests_total", "mount.nfs_timeouts_total")
    seen = []
    hosts: set[str | None] = set()
    for (host, entity), slot in context.devices(*metrics).items():
        hosts.add(host)
        rtt, requests, timeouts = (slot.get(name) for name in metrics)
        if timeouts and timeouts.increase and (severity := rule.thresholds["timeouts"].severity(timeouts.increase)):
            seen.append(
                Seen(host, entity, severity, f"{timeouts.increase:.0f} major time-outs", timeouts.increase, "count")
            )
        elif rtt and requests and rtt.increase is not None and (requests.increase or 0) >= MIN_NFS_REQUESTS:
            mean = rtt.increase / (requests.increase or 1)
            if severity := rule.thresholds["rtt_s"].severity(mean):
                seen.append(Seen(host, entity, severity, f"{mean * 1e3:.0f} ms per read request", mean, "s"))
    yield from emit(context, "HOST-NFS-01", seen, Scope(frozenset(hosts)))


def _clock(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["HOST-CLK-01"]
    seen: dict[str | None, Seen] = {}
    hosts: set[str | None] = set()
    for row in context.rows("node.clock_offset"):
        hosts.add(row.host)
        offset = max(abs(row.high or 0), abs(row.low or 0))
        if severity := rule.thresholds["offset_s"].severity(offset):
            seen[row.host] = Seen(row.host, "node", severity, f"clock off by {offset * 1e3:.0f} ms", offset, "s")
    for row in context.rows("node.clock_synced"):
        hosts.add(row.host)
        if row.last == 0:
            seen.setdefault(row.host, Seen(row.host, "node", "info", "clock not synchronised", 1.0, "count"))
    yield from emit(context, "HOST-CLK-01", seen.values(), Scope(frozenset(hosts)))
