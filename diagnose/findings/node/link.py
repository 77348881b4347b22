"""NIC links: up, at their rate, steady, without errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from diagnose.findings.node.emit import Scope, Seen, emit
from diagnose.units import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.node.context import Context, Row
    from diagnose.model import Finding

ERRORS = (
    "nic.symbol_errors_total",
    "nic.phy_symbol_errors_total",
    "nic.rcv_errors_total",
    "nic.local_integrity_total",
    "nic.link_recovery_total",
    "nic.crc_errors_total",
)
DOWNS = ("nic.link_downed_total", "nic.carrier_down_total", "nic.link_down_events_total")
MAJORITY = 2 / 3
_PORT = re.compile(r"^nic:(.+)/(\d+|HCA-\d+)$")
"""RDMA ports have a port number; interfaces without one are often unused on purpose."""


def check_link(context: Context) -> Iterator[Finding]:
    """All rules of this module."""
    yield from _down(context)
    yield from _rate(context)
    yield from _flapping(context)
    yield from _errors(context)
    yield from _saturated(context)


def _up(context: Context) -> dict[tuple[str | None, str], float]:
    return {(row.host, row.entity): row.last for row in context.rows("nic.link_up") if row.last is not None}


def _port_state_down(context: Context) -> dict[tuple[str | None, str], float]:
    """Up or down from the state numbers, where no reader joined them (node_exporter, single sysfs files)."""
    states: dict[tuple[str | None, str], dict[str, float]] = {}
    for row in context.rows("nic.port_state", "nic.port_phys_state"):
        if row.last is not None:
            states.setdefault((row.host, row.entity), {})[row.metric] = row.last
    return {
        key: float(known.get("nic.port_state", 4) == 4 and known.get("nic.port_phys_state", 5) == 5)
        for key, known in states.items()
    }


def _down(context: Context) -> Iterator[Finding]:
    known = {**_up(context), **_port_state_down(context)}
    ports = {key: value for key, value in known.items() if _PORT.match(key[1])}
    down_by_name: dict[str, set[str | None]] = {}
    hosts_by_name: dict[str, set[str | None]] = {}
    for (host, entity), value in ports.items():
        hosts_by_name.setdefault(entity, set()).add(host)
        if value == 0:
            down_by_name.setdefault(entity, set()).add(host)
    single: list[Seen] = []
    unused: list[Seen] = []
    for entity, hosts in sorted(down_by_name.items()):
        everywhere = len(hosts_by_name[entity]) > 1 and hosts == hosts_by_name[entity]
        for host in sorted(hosts, key=str):
            text = "port down on every host: probably unused" if everywhere else "port not Active with its link up"
            level = "info" if everywhere else "critical"
            (unused if everywhere else single).append(Seen(host, entity, level, text, 0.0, "bool"))  # type: ignore[arg-type]
    scope = Scope(frozenset(host for host, _ in ports), intrinsic=True)
    yield from emit(context, "NIC-LINK-01", single, scope)
    yield from emit(context, "NIC-LINK-01", unused, scope)


def _rate(context: Context) -> Iterator[Finding]:
    """The same device of other hosts, then the port's own interface; a port that is down has no rate."""
    up = {**_up(context), **_port_state_down(context)}
    rates = {
        (row.host, row.entity): row.median
        for row in context.rows("nic.rate")
        if row.median and up.get((row.host, row.entity), 1.0) != 0 and row.entity.startswith("nic:")
    }
    threshold = context.facts.rules["NIC-LINK-02"].thresholds["rate_ratio"]
    seen: dict[tuple[str | None, str], Seen] = {}
    by_name: dict[str, dict[str | None, float]] = {}
    for (host, entity), rate in rates.items():
        by_name.setdefault(entity, {})[host] = rate
    for entity, group in by_name.items():
        usual = _usual(list(group.values()))
        for host, rate in group.items():
            severity = threshold.severity(rate / usual) if usual else None
            if severity and usual:
                text = f"{rate / 1e9:.0f} Gb/s, the same device of most other hosts {usual / 1e9:.0f} Gb/s"
                lost = 1 - rate / usual
                seen[host, entity] = Seen(host, entity, severity, text, rate / usual, "ratio", lost_share=lost)
    for host, entity, rate, claimed in _against_interface(context, rates):
        severity = threshold.severity(rate / claimed)
        if severity:
            text = f"port rate {rate / 1e9:.0f} Gb/s, its interface claims {claimed / 1e9:.0f} Gb/s"
            seen.setdefault((host, entity), Seen(host, entity, severity, text, rate / claimed, "ratio"))
    yield from emit(
        context, "NIC-LINK-02", seen.values(), Scope(frozenset(host for host, _ in rates), intrinsic=True, network=True)
    )


def _usual(rates: list[float]) -> float | None:
    """The rate that at least two thirds of three or more hosts share."""
    if len(rates) < 3:
        return None
    best = max(set(rates), key=lambda rate: (rates.count(rate), rate))
    return best if rates.count(best) >= MAJORITY * len(rates) else None


def _against_interface(
    context: Context, rates: dict[tuple[str | None, str], float]
) -> Iterator[tuple[str | None, str, float, float]]:
    """IPoIB's speed beside the port's own rate: the port is right, so the link trained below what was set up."""
    speeds = {(row.host, row.entity): row.median for row in context.rows("nic.netdev_speed") if row.median}
    pairs = context.facts.tables.query(
        "SELECT DISTINCT host, entity, netdev FROM host_device WHERE netdev IS NOT NULL ORDER BY ALL"
    ).rows()
    for raw_host, device, netdev in pairs:
        host = context.aliases.get(raw_host, raw_host) if raw_host else None
        claimed = speeds.get((host, f"nic:{netdev}"))
        for (owner, entity), rate in rates.items():
            if claimed and owner == host and entity.startswith(f"{device}/"):
                yield host, entity, rate, claimed


def _flapping(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["NIC-LINK-03"]
    seen: dict[tuple[str | None, str], Seen] = {}
    hosts: set[str | None] = set()
    for row in context.rows(*DOWNS):
        hosts.add(row.host)
        if row.increase and (severity := rule.thresholds["downs"].severity(row.increase)):
            text = f"link lost {row.increase:.0f} times in the window"
            seen.setdefault((row.host, row.entity), Seen(row.host, row.entity, severity, text, row.increase, "count"))
        elif row.snapshot and rule.thresholds["downs_since_reset"].severity(row.last):
            text = f"link lost {'at least ' if row.saturated else ''}{row.last:.0f} times"
            seen.setdefault(
                (row.host, row.entity), Seen(row.host, row.entity, "info", text, row.last, "count", dated=False)
            )
    for host, device, group in _link_events(context):
        severity = "critical" if group.height > 1 or context.window else "info"
        text = f"{group.height} link-down messages"
        seen.setdefault(
            (host, device), Seen(host, device, severity, text, float(group.height), "count", source="node_event")
        )
    yield from emit(context, "NIC-LINK-03", seen.values(), Scope(frozenset(hosts), network=True))


def _link_events(context: Context) -> Iterator[tuple[str | None, str, pl.DataFrame]]:
    events = context.events.filter(pl.col("kind") == "link_down")
    if context.window is not None:
        events = events.filter(pl.col("t_ns").is_null() | pl.col("t_ns").is_between(*context.window))
    for (host, device), group in events.group_by(["host", "device"], maintain_order=True):
        yield (None if host is None else str(host)), str(device), group


def _errors(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["NIC-ERR-01"]
    counted: dict[tuple[str | None, str], list[Seen]] = {}
    hosts: set[str | None] = set()
    for metrics, name in ((ERRORS, "errors"), (("nic.rcv_remote_phys_total",), "remote_errors")):
        for row in context.rows(*metrics):
            hosts.add(row.host)
            item = _counted(row, rule.thresholds[name].severity(row.total), _words(row.metric))
            if item:
                counted.setdefault((item.host, item.device), []).append(item)
    seen = [_together(items) for items in counted.values()]
    yield from emit(context, "NIC-ERR-01", seen, Scope(frozenset(hosts), network=True))
    discards = context.facts.rules["NIC-ERR-02"].thresholds["discards"]
    found = []
    scope: set[str | None] = set()
    for row in context.rows("nic.xmit_discards_total", "nic.tx_discards_total"):
        scope.add(row.host)
        item = _counted(row, discards.severity(row.total), "packets discarded on transmit")
        if item:
            found.append(item)
    yield from emit(context, "NIC-ERR-02", found, Scope(frozenset(scope), network=True))


def _counted(row: Row, severity: object, words: str) -> Seen | None:
    if severity is None or not row.total:
        return None
    at_least = "at least " if row.saturated else ""
    text = f"{at_least}{format_count(row.total)} {words}{'' if row.snapshot else ' in the window'}"
    return Seen(row.host, row.entity, severity, text, row.total, "count", dated=not row.snapshot)  # type: ignore[arg-type]


def _together(items: list[Seen]) -> Seen:
    """One line for a port: its loudest and largest count first."""
    ordered = sorted(items, key=lambda item: (item.severity == "info", not item.dated, -(item.value or 0)))
    return ordered[0]._replace(what=", ".join(item.what for item in ordered[:3]))


def _words(metric: str) -> str:
    return metric.removeprefix("nic.").removesuffix("_total").replace("_", " ")


def _saturated(context: Context) -> Iterator[Finding]:
    rows = context.summary
    if rows.is_empty():
        return
    stuck = rows.filter(pl.col("saturated") > 0).sort("host", "entity", "metric", nulls_last=True)
    seen = [
        Seen(
            host,
            entity,
            "info",
            f"{_words(metric)} stands at {last:.0f}, all-ones of its width: blind since then",
            last,
            "count",
        )
        for host, entity, metric, last in stuck.select("host", "entity", "metric", "last").iter_rows()
    ]
    yield from emit(context, "NIC-SAT-01", seen, Scope(frozenset({item.host for item in seen}), intrinsic=True))
