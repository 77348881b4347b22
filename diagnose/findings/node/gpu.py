"""GPU clocks, heat, power and PCIe: judged while the GPU worked, against its peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from diagnose.analysis.node_metrics.peers import compare
from diagnose.findings.node.emit import Scope, Seen, emit
from diagnose.units import format_ratio, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.node.context import Context, Row
    from diagnose.model import Finding

HW_SLOWDOWN_BITS = 0x8 | 0x40
SW_THERMAL_BIT = 0x20
POWER_BRAKE_BIT = 0x80
CLOCK_KEPT = 0.98
SHARE_RULES = (
    ("GPU-THERM-01", "hw_thermal_share", "gpu.throttle.hw_thermal_seconds_total", "hardware thermal slowdown"),
    ("GPU-THERM-02", "sw_thermal_share", "gpu.throttle.sw_thermal_seconds_total", "software thermal slowdown"),
    ("GPU-PWR-02", "hw_brake_share", "gpu.throttle.hw_brake_seconds_total", "hardware power brake"),
    ("GPU-PWR-04", "thermal_violation_share", "gpu.throttle.thermal_seconds_total", "thermal violation"),
)
MASK_RULES = (
    ("GPU-THERM-01", "hw_thermal_share", HW_SLOWDOWN_BITS, "hardware slowdown bit set"),
    ("GPU-THERM-02", "sw_thermal_share", SW_THERMAL_BIT, "software thermal bit set"),
    ("GPU-PWR-02", "hw_brake_share", POWER_BRAKE_BIT, "power brake bit set"),
)
TICK_RULES = (
    ("GPU-THERM-01", "hw_thermal_share", "prochot", "processor hot"),
    ("GPU-THERM-01", "hw_thermal_share", "socket_thermal", "socket thermal violation"),
    ("GPU-THERM-01", "hw_thermal_share", "vr_thermal", "voltage regulator thermal violation"),
    ("GPU-THERM-01", "hw_thermal_share", "hbm_thermal", "HBM thermal violation"),
    ("GPU-PWR-01", "sw_power_share", "power", "package power violation"),
)


def check_gpu(context: Context) -> Iterator[Finding]:
    """All rules of this module."""
    yield from _throttling(context)
    yield from _power_cap(context)
    polls = context.polls
    if polls.is_empty():
        return
    yield from _clock(context, polls)
    yield from _heat(context, polls)
    yield from _power(context, polls)
    yield from _pcie(context, polls)


def _throttling(context: Context) -> Iterator[Finding]:
    found: dict[str, dict[tuple[str | None, str], Seen]] = {}
    scopes: dict[str, set[str | None]] = {}
    for code, name, metric, words in SHARE_RULES:
        for row in context.rows(metric):
            scopes.setdefault(code, set()).add(row.host)
            _keep(found, code, _counted(context, code, name, row, words))
    for code, name, bits, words in MASK_RULES:
        for host, entity, share in _mask_shares(context.polls, bits):
            scopes.setdefault(code, set()).add(host)
            severity = context.facts.rules[code].thresholds[name].severity(share)
            if severity and share > 0:
                text = f"{words} in {format_ratio(share)} of the polls under load"
                _keep(found, code, Seen(host, entity, severity, text, share, "ratio"))
    for code, name, kind, words in TICK_RULES:
        for seen in _ticks(context, code, name, kind, words):
            scopes.setdefault(code, set()).add(seen.host)
            _keep(found, code, seen)
    for code in sorted(found):
        yield from emit(context, code, found[code].values(), Scope(frozenset(scopes[code])))


def _keep(found: dict[str, dict[tuple[str | None, str], Seen]], code: str, seen: Seen | None) -> None:
    """One observation a device and rule: a counter before a bit mask, which is only a point sample."""
    if seen is not None:
        found.setdefault(code, {}).setdefault((seen.host, seen.device), seen)


def _counted(context: Context, code: str, name: str, row: Row, words: str) -> Seen | None:
    share = row.share
    if row.snapshot:
        if not row.last:
            return None
        return Seen(row.host, row.entity, "info", f"{words} {row.last:.3g} s", row.last, "s", dated=False)
    severity = context.facts.rules[code].thresholds[name].severity(share)
    if not severity or not share:
        return None
    text = f"{words} for {row.increase:.3g} s, {format_ratio(share)} of the window"
    return Seen(row.host, row.entity, severity, text, share, "ratio")


def _mask_shares(polls: pl.DataFrame, bits: int) -> Iterator[tuple[str | None, str, float]]:
    """Share of loaded polls in which any of the bits was set; polls that are idle by the mask itself do not count."""
    if polls.is_empty() or "gpu.throttle_mask" not in polls.columns:
        return
    masked = polls.filter(pl.col("gpu.throttle_mask").is_not_null() & pl.col("loaded").fill_null(value=True))
    mask = pl.col("gpu.throttle_mask").cast(pl.Int64)
    counted = (
        masked.with_columns(((mask & bits) != 0).alias("hit")).group_by("host", "entity").agg(pl.col("hit").mean())
    )
    yield from counted.sort("host", "entity", nulls_last=True).iter_rows()


def _ticks(context: Context, code: str, name: str, kind: str, words: str) -> Iterator[Seen]:
    """AMD: accumulated violation ticks over the ticks of the same time, or the momentary percentage."""
    metric = f"gpu.throttle.{kind}_ticks_total"
    rule = context.facts.rules[code].thresholds[name]
    for (host, entity), slot in context.devices(metric, "gpu.throttle.ticks_total").items():
        part, whole = slot.get(metric), slot.get("gpu.throttle.ticks_total")
        if part is None or whole is None or not part.total or not whole.total:
            continue
        share = part.total / whole.total
        severity = rule.severity(share)
        if severity:
            text = f"{words} in {format_ratio(share)} of the ticks"
            yield Seen(host, entity, severity, text, share, "ratio", dated=not part.snapshot)
    for row in context.rows(f"gpu.throttle.{kind}_ratio"):
        severity = rule.severity(row.high) if row.high else None
        if severity:
            yield Seen(row.host, row.entity, severity, f"{words}, up to {format_ratio(row.high)}", row.high, "ratio")


def _power_cap(context: Context) -> Iterator[Finding]:
    rule = context.facts.rules["GPU-PWR-01"]
    seen: list[Seen] = []
    hosts: set[str | None] = set()
    for row in context.rows("gpu.throttle.sw_power_seconds_total", "gpu.throttle.power_seconds_total"):
        hosts.add(row.host)
        share = row.share
        if row.snapshot or not share or rule.thresholds["sw_power_share"].severity(share) is None:
            continue
        text = f"software power cap for {row.increase:.3g} s, {format_ratio(share)} of the window"
        seen.append(Seen(row.host, row.entity, "info", text + _clock_note(context.polls, row), share, "ratio"))
    yield from emit(context, "GPU-PWR-01", seen, Scope(frozenset(hosts)))
    limits = {(row.host, row.entity): row.median for row in context.rows("gpu.power_limit") if row.median}
    lower: list[Seen] = []
    compared = compare({f"{host}|{entity}": value for (host, entity), value in limits.items() if value})
    for (host, entity), value in limits.items():
        peers = compared.get(f"{host}|{entity}")
        severity = rule.thresholds["limit_ratio"].severity(peers.ratio) if peers else None
        if severity and peers:
            text = f"power limit {format_value(value, 'W')}, its peers {format_value(peers.peers_median, 'W')}"
            lower.append(Seen(host, entity, severity, text, peers.ratio, "ratio"))
    yield from emit(context, "GPU-PWR-01", lower, Scope(frozenset(host for host, _ in limits)))


def _clock_note(polls: pl.DataFrame, row: Row) -> str:
    """Whether the clock stayed at its maximum: then the cap cost nothing."""
    if polls.is_empty():
        return ""
    mine = polls.filter((pl.col("entity") == row.entity) & pl.col("host").eq_missing(pl.lit(row.host)))
    ratio = (mine.get_column("gpu.sm_clock") / mine.get_column("gpu.sm_clock_max")).min()
    if not isinstance(ratio, float):
        return ""
    return "; SM clock stayed at its maximum" if ratio >= CLOCK_KEPT else ""


def _clock(context: Context, polls: pl.DataFrame) -> Iterator[Finding]:
    clocks = _loaded_median(polls, "gpu.sm_clock")
    threshold = context.facts.rules["GPU-CLK-01"].thresholds["clock_ratio"]
    compared = compare({f"{host}|{entity}": value for (host, entity), value in clocks.items()})
    seen: list[Seen] = []
    for (host, entity), value in clocks.items():
        peers = compared.get(f"{host}|{entity}")
        severity = threshold.severity(peers.ratio) if peers else None
        if severity and peers:
            text = (
                f"SM clock {value / 1e6:.0f} MHz under load, its {peers.peers} peers {peers.peers_median / 1e6:.0f} MHz"
            )
            seen.append(Seen(host, entity, severity, text, peers.ratio, "ratio"))
    yield from emit(context, "GPU-CLK-01", seen, Scope(frozenset(host for host, _ in clocks)))


def _loaded_median(polls: pl.DataFrame, metric: str) -> dict[tuple[str | None, str], float]:
    used = polls.filter(pl.col("loaded").fill_null(value=False) & pl.col(metric).is_not_null())
    grouped = used.group_by("host", "entity").agg(pl.col(metric).median()).sort("host", "entity", nulls_last=True)
    return {(host, entity): value for host, entity, value in grouped.iter_rows()}


def _heat(context: Context, polls: pl.DataFrame) -> Iterator[Finding]:
    rules = context.facts.rules
    hot: list[Seen] = []
    spent: list[Seen] = []
    hosts: set[str | None] = set()
    grouped = polls.group_by("host", "entity").agg(
        pl.col("gpu.temp").max().alias("temp"),
        (pl.col("gpu.temp_margin") - pl.col("gpu.temp_limit_slowdown").max().fill_null(0)).min().alias("margin"),
    )
    for host, entity, temp, margin in grouped.sort("host", "entity", nulls_last=True).iter_rows():
        hosts.add(host)
        if severity := rules["GPU-THERM-03"].thresholds["temp_degc"].severity(temp):
            hot.append(Seen(host, entity, severity, f"up to {temp:.0f} degC", temp, "degC"))
        if severity := rules["GPU-THERM-04"].thresholds["margin_left_degc"].severity(margin):
            spent.append(
                Seen(host, entity, severity, f"margin {margin:.0f} degC beyond the slowdown limit", margin, "degC")
            )
    yield from emit(context, "GPU-THERM-03", hot, Scope(frozenset(hosts)))
    yield from emit(context, "GPU-THERM-04", spent, Scope(frozenset(hosts)))


def _power(context: Context, polls: pl.DataFrame) -> Iterator[Finding]:
    """Full utilisation at low power and normal clock: slow in a hidden way, or only waiting."""
    threshold = context.facts.rules["GPU-PWR-03"].thresholds["power_ratio"]
    powers, clocks = _loaded_median(polls, "gpu.power"), _loaded_median(polls, "gpu.sm_clock")
    compared = compare({f"{host}|{entity}": value for (host, entity), value in powers.items()})
    clock_peers = compare({f"{host}|{entity}": value for (host, entity), value in clocks.items()})
    seen: list[Seen] = []
    for (host, entity), value in powers.items():
        key = f"{host}|{entity}"
        peers, clock = compared.get(key), clock_peers.get(key)
        severity = threshold.severity(peers.ratio) if peers else None
        if severity and peers and (clock is None or (clock.ratio or 1) > 0.95):
            text = f"{value:.0f} W at full utilisation, its peers {peers.peers_median:.0f} W"
            seen.append(Seen(host, entity, severity, text, peers.ratio, "ratio"))
    yield from emit(context, "GPU-PWR-03", seen, Scope(frozenset(host for host, _ in powers)))


def _pcie(context: Context, polls: pl.DataFrame) -> Iterator[Finding]:
    """Lanes times two to the generation, against the maximum, the best value seen under load counting."""
    loaded = polls.filter(pl.col("loaded").fill_null(value=False))
    speed = pl.col("gpu.pcie_width") * (2.0 ** pl.col("gpu.pcie_gen"))
    most = pl.col("gpu.pcie_width_max") * (2.0 ** pl.col("gpu.pcie_gen_max"))
    grouped = loaded.group_by("host", "entity").agg(
        (speed / most).max().alias("ratio"),
        pl.col("gpu.pcie_gen").max(),
        pl.col("gpu.pcie_gen_max").max(),
        pl.col("gpu.pcie_width").max(),
        pl.col("gpu.pcie_width_max").max(),
    )
    threshold = context.facts.rules["GPU-PCIE-01"].thresholds["link_ratio"]
    seen: list[Seen] = []
    hosts: set[str | None] = set()
    for host, entity, ratio, gen, gen_max, width, width_max in grouped.sort(
        "host", "entity", nulls_last=True
    ).iter_rows():
        hosts.add(host)
        severity = threshold.severity(ratio)
        if severity:
            text = f"PCIe gen {gen:.0f} x{width:.0f} under load, capable of gen {gen_max:.0f} x{width_max:.0f}"
            seen.append(Seen(host, entity, severity, text, ratio, "ratio"))
    yield from emit(context, "GPU-PCIE-01", seen, Scope(frozenset(hosts)))
