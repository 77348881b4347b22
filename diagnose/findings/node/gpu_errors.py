"""GPU memory errors, Xid and SXid events, NVLink, PCIe errors: faults by themselves, whatever they cost."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from diagnose.findings.node.emit import Scope, Seen, emit
from diagnose.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.node.context import Context
    from diagnose.model import Finding, Severity

SEVERE_XIDS = frozenset(
    {
        *(48, 54, 56, 57, 58, 62, 64, 65, 68, 69, 73, 74, 79, 80, 81, 95, 109, 110, 119, 120, 136, 140, 143),
        *range(144, 151),
        *(151, 155, 156, 158, 168),
    }
)
"""Node or hardware, reset, NVLink. Source: Xid catalog; AWS, Azure and NVIDIA health checks (docs/node_metrics.md)."""

BURST_SILENCE_NS = 180_000_000_000
LINKS_OF = (
    ("A100", 12),
    ("A800", 12),
    ("H100", 18),
    ("H200", 18),
    ("H800", 18),
    ("H20", 18),
    ("GH200", 18),
    ("B200", 18),
    ("GB200", 18),
    ("GB300", 18),
    ("B300", 18),
)
"""NVLinks of SXM products; PCIe boards have fewer and are told by their name."""

NVLINK_ERRORS = ("replay", "recovery", "crc", "crc_flit", "crc_data")


def check_gpu_errors(context: Context) -> Iterator[Finding]:
    """All rules of this module."""
    yield from _memory(context)
    yield from _xids(context)
    yield from _sxids(context)
    yield from _nvlink_active(context)
    yield from _nvlink_errors(context)
    yield from _pcie_errors(context)
    yield from _pcie_limited(context)


def _memory(context: Context) -> Iterator[Finding]:
    plans = (
        ("GPU-ECC-01", "remap_pending", ("gpu.row_remap_pending",), "row remap pending", True),
        ("GPU-ECC-01", "remap_failure", ("gpu.row_remap_failure",), "row remap failed", True),
        (
            "GPU-ECC-02",
            "pages_retired",
            ("gpu.pages_retired_sbe_total", "gpu.pages_retired_dbe_total"),
            "{n:.0f} retired pages",
            True,
        ),
        ("GPU-ECC-02", "page_pending", ("gpu.page_retire_pending",), "page retirement pending", True),
        (
            "GPU-ECC-02",
            "rows_remapped",
            ("gpu.row_remap_uncorrected_total",),
            "{n:.0f} rows remapped for uncorrectable errors",
            True,
        ),
        (
            "GPU-ECC-02",
            "sram_uncorrected",
            ("gpu.ecc.sram_uncorrected_aggregate_total",),
            "{n:.0f} uncorrectable SRAM errors in aggregate",
            True,
        ),
        (
            "GPU-ECC-03",
            "uncorrected",
            (
                "gpu.ecc.uncorrected_volatile_total",
                "gpu.ecc.dram_uncorrected_volatile_total",
                "gpu.ecc.sram_uncorrected_volatile_total",
            ),
            "{n:.0f} uncorrected errors since the driver was loaded",
            False,
        ),
    )
    found: dict[str, list[Seen]] = {}
    for code, name, metrics, words, summed in plans:
        threshold = context.facts.rules[code].thresholds[name]
        for (host, entity), slot in context.devices(*metrics).items():
            values = [row.last for row in slot.values() if row.last is not None]
            value = (sum(values) if summed else max(values)) if values else None
            severity = threshold.severity(value)
            if severity and value is not None:
                found.setdefault(code, []).append(Seen(host, entity, severity, words.format(n=value), value, "count"))
    for code in sorted(found):
        yield from emit(
            context, code, found[code], Scope(frozenset({item.host for item in found[code]}), intrinsic=True)
        )


def _xids(context: Context) -> Iterator[Finding]:
    events = context.events.filter(pl.col("kind") == "xid")
    found: dict[str, list[Seen]] = {}
    for (host, device, code), group in events.group_by(["host", "device", "code"], maintain_order=True):
        number = int(str(code))
        times = [int(t) for t in group.get_column("t_ns").drop_nulls().sort().to_list()]
        text = str(group.get_column("text")[0])
        caused = re.search(r"[Cc]aused by previous Xid (\d+)", text)
        rule = "GPU-XID-01" if number in SEVERE_XIDS and not caused else "GPU-XID-02"
        what = f"Xid {number}, {group.height} lines"
        if len(times) > 1:
            what += f" in {bursts(times)} bursts"
        if "ate limit" in text or "printing 1 of" in text:
            what += ", rate-limited: a lower bound"
        level: Severity = "critical" if rule == "GPU-XID-01" else "info"
        name = None if host is None else str(host)
        found.setdefault(rule, []).append(
            Seen(
                name,
                str(device),
                level,
                f"{what}: {text[:160]}",
                float(number),
                "xid",
                source=str(group.get_column("source")[0]),
            )
        )
    for host, entity, value in _last_xids(context, events):
        rule = "GPU-XID-01" if int(value) in SEVERE_XIDS else "GPU-XID-02"
        level = "critical" if rule == "GPU-XID-01" else "info"
        found.setdefault(rule, []).append(
            Seen(host, entity, level, f"last Xid {value:.0f} (exporter), new in the window", value, "xid")
        )
    for rule in sorted(found):
        yield from emit(
            context, rule, found[rule], Scope(frozenset({item.host for item in found[rule]}), intrinsic=True)
        )


def _last_xids(context: Context, events: pl.DataFrame) -> Iterator[tuple[str | None, str, float]]:
    """DCGM's last Xid stays for ever: only a change in the window is an event; the kernel log is the better source."""
    if not events.is_empty():
        return
    for row in context.rows("gpu.last_xid"):
        if row.high and row.low is not None and row.high != row.low and row.last:
            yield row.host, row.entity, row.last


def bursts(times: list[int]) -> int:
    """Groups of sorted times with more than three minutes of silence between them."""
    return 1 + sum(later - earlier > BURST_SILENCE_NS for earlier, later in pairwise(times))


def _sxids(context: Context) -> Iterator[Finding]:
    events = context.events.filter(pl.col("kind") == "sxid")
    seen = []
    for host, device, code, fatal, text, source in events.select(
        "host", "device", "code", "fatal", "text", "source"
    ).iter_rows():
        level: Severity = "critical" if fatal else "warning"
        seen.append(Seen(host, device, level, f"SXid {code}: {text[:160]}", float(code), "sxid", source=source))
    yield from emit(context, "GPU-NVL-03", seen, Scope(frozenset({item.host for item in seen}), intrinsic=True))


def _nvlink_active(context: Context) -> Iterator[Finding]:
    names = {(host, entity): name for host, entity, name in _device_names(context)}
    slots = context.devices("gpu.nvlink_links_active", "gpu.nvlink_links_inactive")
    counts = {
        key: slot["gpu.nvlink_links_active"].last or 0.0
        for key, slot in slots.items()
        if "gpu.nvlink_links_active" in slot
    }
    most = max(counts.values(), default=0.0)
    seen = []
    for key, count in counts.items():
        inactive = slots[key].get("gpu.nvlink_links_inactive")
        wanted = max(expected_links(names.get(key)), most, count + ((inactive.last or 0) if inactive else 0))
        if count < wanted or (inactive is not None and count == 0):
            text = f"{count:.0f} of {wanted:.0f} NVLinks active" if wanted else "all NVLinks inactive"
            seen.append(Seen(key[0], key[1], "critical", text, wanted - count, "links"))
    yield from emit(context, "GPU-NVL-01", seen, Scope(frozenset(host for host, _ in counts), intrinsic=True))


def _device_names(context: Context) -> list[tuple[str | None, str, str]]:
    rows = context.facts.tables.query(
        "SELECT DISTINCT host, entity, name FROM host_device WHERE name IS NOT NULL ORDER BY ALL"
    ).rows()
    return [(context.aliases.get(host, host) if host else None, entity, name) for host, entity, name in rows]


def expected_links(name: str | None) -> float:
    """NVLinks an SXM product has, 0 when the name tells nothing or names a PCIe board."""
    if not name or "PCIe" in name or "NVL" in name.split():
        return 0.0
    for product, links in LINKS_OF:
        if re.search(rf"\b{product}\b", name):
            return float(links)
    return 0.0


def _nvlink_errors(context: Context) -> Iterator[Finding]:
    threshold = context.facts.rules["GPU-NVL-02"].thresholds["errors_per_minute"]
    seen = []
    hosts = set()
    for (host, entity), slot in context.devices(*(f"gpu.nvlink.{kind}_errors_total" for kind in NVLINK_ERRORS)).items():
        hosts.add(host)
        increase = sum(row.increase or 0 for row in slot.values())
        span = max((row.span_ns or 0 for row in slot.values()), default=0)
        total = sum(row.last or 0 for row in slot.values())
        if increase:
            per_minute = increase * 60e9 / span if span else increase
            severity = threshold.severity(per_minute)
            if severity:
                seen.append(
                    Seen(host, entity, severity, f"{increase:.0f} NVLink errors in the window", per_minute, "1/min")
                )
        elif total and all(row.snapshot for row in slot.values()):
            seen.append(Seen(host, entity, "info", f"{total:.0f} NVLink errors", total, "count", dated=False))
    yield from emit(context, "GPU-NVL-02", seen, Scope(frozenset(hosts)))


def _pcie_errors(context: Context) -> Iterator[Finding]:
    threshold = context.facts.rules["GPU-PCIE-02"].thresholds["replays_per_minute"]
    seen = []
    hosts: set[str | None] = set()
    for row in context.rows("gpu.pcie_replay_total"):
        hosts.add(row.host)
        rate = row.rate
        severity = threshold.severity(rate * 60 if rate is not None else None)
        if severity and rate is not None:
            seen.append(
                Seen(
                    row.host, row.entity, severity, f"{row.increase:.0f} PCIe replays in the window", rate * 60, "1/min"
                )
            )
    yield from emit(context, "GPU-PCIE-02", seen, Scope(frozenset(hosts)))
    events = context.events.filter(pl.col("kind") == "pcie_aer")
    found = []
    for (host, device, fatal), group in events.group_by(["host", "device", "fatal"], maintain_order=True):
        corrected = "corrected" in str(group.get_column("text")[0]).lower()
        level: Severity = "critical" if fatal else ("info" if corrected else "warning")
        name = None if host is None else str(host)
        found.append(
            Seen(
                name,
                str(device),
                level,
                f"{group.height} PCIe bus errors: {group.get_column('text')[0][:120]}",
                float(group.height),
                "count",
                source=str(group.get_column("source")[0]),
            )
        )
    yield from emit(context, "GPU-PCIE-02", found, Scope(frozenset({item.host for item in found}), intrinsic=True))


def _pcie_limited(context: Context) -> Iterator[Finding]:
    """The kernel's "limited by": the same limit on every device is the design of the machine, and said so."""
    events = context.events.filter(pl.col("kind") == "pcie_limited")
    if events.is_empty():
        return
    slots = context.devices("pcie.available_rate", "pcie.capable_rate")
    ratios = {
        key: (slot["pcie.available_rate"].last or 0) / slot["pcie.capable_rate"].last
        for key, slot in slots.items()
        if "pcie.available_rate" in slot and "pcie.capable_rate" in slot and slot["pcie.capable_rate"].last
    }
    threshold = context.facts.rules["GPU-PCIE-01"].thresholds["link_ratio"]
    alike = len({round(value, 2) for value in ratios.values()}) == 1 and len(ratios) > 1
    seen = []
    for (host, entity), ratio in ratios.items():
        severity = threshold.severity(ratio)
        if severity:
            note = ", the same on all devices named: looks like the machine's design" if alike else ""
            seen.append(
                Seen(
                    host,
                    entity,
                    severity,
                    f"{format_ratio(ratio)} of its PCIe bandwidth available{note}",
                    ratio,
                    "ratio",
                    source="node_event",
                )
            )
    yield from emit(context, "GPU-PCIE-01", seen, Scope(frozenset(host for host, _ in ratios)))
