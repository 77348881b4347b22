"""From observations to findings: one finding a rule and severity, fleet-wide values and costless faults made quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.analysis.node_metrics.peers import is_fleet_wide
from diagnose.findings.through_hosts import through_hosts
from diagnose.model import Evidence, Finding, Impact, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.node.context import Context

MAX_NAMED = 4
MAX_EVIDENCE = 20
UNDATED = "; a total since reset, which cannot be dated"
COSTLESS = "; it costs nothing measurable in step time"
FLEET = "; all comparable hosts show it: a design limit or a fleet-wide setting, not the fault of one host"


class Seen(NamedTuple):
    """One device that a rule speaks of. ``dated`` is False for totals since reset."""

    host: str | None
    device: str
    severity: Severity
    what: str
    value: float | None = None
    unit: str | None = None
    dated: bool = True
    source: str = "metric_sample"
    lost_share: float | None = None
    """Of the exposed transfer, the share that this fault alone can have cost (network rules)."""


class Scope(NamedTuple):
    """How a rule is weighed.

    ``hosts`` are those where the metric exists (for the fleet rule). ``intrinsic`` rules are faults by themselves,
    whatever they cost and however many hosts show them. ``network`` rules cost exposed transfer, others local work.
    """

    hosts: frozenset[str | None]
    intrinsic: bool = False
    network: bool = False


def emit(context: Context, code: str, seen: Iterable[Seen], scope: Scope) -> Iterator[Finding]:
    """The findings of one rule."""
    items = list(seen)
    if not items:
        return
    affected = {item.host for item in items if item.dated}
    fleet = not scope.intrinsic and is_fleet_wide(len(affected), len(scope.hosts))
    levels: dict[tuple[Severity, str], list[Seen]] = {}
    for item in items:
        levels.setdefault(_weigh(context, item, scope, fleet=fleet), []).append(item)
    for (severity, tail), group in sorted(levels.items(), key=lambda pair: (_loudness(pair[0][0]), pair[0][1])):
        yield _finding(context, code, severity, tail, group, scope)


def _weigh(context: Context, item: Seen, scope: Scope, *, fleet: bool) -> tuple[Severity, str]:
    if not item.dated and not scope.intrinsic:
        return "info", UNDATED
    if fleet:
        return "info", FLEET
    lost = _lost(context, item.host, scope)
    if not scope.intrinsic and item.severity != "info" and context.cost.is_measurable(lost) is False:
        return "info", COSTLESS
    return item.severity, ""


def _lost(context: Context, host: str | None, scope: Scope) -> float | None:
    return context.cost.transfer_ns if scope.network else context.cost.of_host(host)


def _finding(context: Context, code: str, severity: Severity, tail: str, group: list[Seen], scope: Scope) -> Finding:
    hosts = sorted({item.host for item in group if item.host})
    moved = through_hosts(context.facts, hosts) if scope.network and severity != "info" else None
    measured = moved.lost_ns if moved else None
    lost = None if tail else measured or _price(context, group, hosts, scope)
    impact = context.facts.impact(lost) if lost and context.cost.is_measurable(lost) else Impact()
    finding = context.facts.rules[code].finding(
        severity,
        fields={"where": _where(group), "what": _what(group), "tail": tail},
        ranks=[] if tail == FLEET else _ranks(context, hosts),
        hosts=hosts,
        devices=[item.device for item in group if item.device != "node"],
        impact=impact,
        confidence=_confidence(severity, tail, lost),
        evidence=[
            *(_evidence(item) for item in group[:1]),
            *(moved.evidence() if moved and measured else ()),
            *(_evidence(item) for item in group[1:MAX_EVIDENCE]),
        ],
    )
    # Only a fault with a measured price stands above the findings that it may explain.
    return finding if impact.ns_per_step else msgspec.structs.replace(finding, explains=())


def _price(context: Context, group: list[Seen], hosts: list[str], scope: Scope) -> float | None:
    """Lost time per step: excess work of the slowest host, or the share of the exposed transfer that is named."""
    if scope.network:
        shares = [item.lost_share for item in group if item.lost_share is not None]
        transfer = context.cost.transfer_ns
        return transfer * max(shares) if shares and transfer else None
    return max((context.cost.of_host(host) or 0 for host in hosts), default=0)


def _confidence(severity: Severity, tail: str, lost: float | None) -> float:
    """One kind of evidence is half sure; a measured loss on the same host makes it probable."""
    if tail in (UNDATED, COSTLESS):
        return 0.5
    return (0.85 if lost else 0.7) if severity != "info" else 0.6


def _ranks(context: Context, hosts: list[str]) -> list[int]:
    if not hosts:
        return []
    rows = context.facts.tables.query(
        "SELECT rank FROM rank WHERE host IN (SELECT unnest($hosts)) ORDER BY rank", {"hosts": hosts}
    )
    return [int(rank) for rank in rows.get_column("rank").to_list() if rank is not None and rank >= 0]


def _where(group: list[Seen]) -> str:
    """Devices, each host named once."""
    names = list(dict.fromkeys((item.host, _name(item), item.device) for item in group))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    shown: list[str] = []
    last: str | None = None
    for host, name, device in names[:MAX_NAMED]:
        shown.append(device if host is not None and host == last else name)
        last = host
    return ", ".join(shown) + more


def _what(group: list[Seen]) -> str:
    worst = max(group, key=lambda item: (item.severity == "critical", item.severity == "warning", abs(item.value or 0)))
    return worst.what if len({item.what for item in group}) == 1 else f"{worst.what} ({_name(worst)}; others alike)"


def _name(item: Seen) -> str:
    return " ".join(part for part in (item.host, item.device if item.device != "node" or not item.host else "") if part)


def _evidence(item: Seen) -> Evidence:
    return Evidence(f"{_name(item)}: {item.what}", item.value, item.unit, item.source)


def _loudness(severity: Severity) -> int:
    return ("critical", "warning", "info").index(severity)
