"""Keys of rocm-smi and amd-smi: matched by pattern, because versions move words, colons and units around."""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class AmdKey(NamedTuple):
    """Canonical metric, factor of the key's unit, and the order in which spellings of one metric are trusted."""

    metric: str
    scale: float
    rank: int


_PATTERNS: tuple[tuple[re.Pattern[str], str, float], ...] = tuple(
    (re.compile(text, re.IGNORECASE), metric, scale)
    for text, metric, scale in (
        (r"^temperature \(sensor junction\) \(c\)$", "gpu.temp", 1.0),
        (r"^temperature[./](?:hotspot|junction)(?:_temperature)?$|^hotspot_temperature$", "gpu.temp", 1.0),
        (r"^temperature \(sensor edge\) \(c\)$|^temperature[./]edge$|^edge_temperature$", "gpu.temp_edge", 1.0),
        (
            r"^temperature \(sensor (?:memory|hbm 0)\) \(c\)$|^temperature[./](?:mem|memory|vram)$|^mem_temperature$",
            "gpu.mem_temp",
            1.0,
        ),
        (r"^sclk clock speed:?$", "gpu.sm_clock", 1e6),
        (r"^sclk clock level:?$", "gpu.sm_clock", 1e6),
        (r"^clock[./]gfx_0[./]clk$|^clock[./]gfx[./]clk$|^gfx_0_clk$|^gfx_clk$", "gpu.sm_clock", 1e6),
        (r"^clock[./]gfx_0[./]max_clk$|^gfx_0_max_clk$", "gpu.sm_clock_max", 1e6),
        (r"^mclk clock speed:?$", "gpu.mem_clock", 1e6),
        (r"^clock[./]mem_0[./]clk$|^mem_0_clk$|^mem_clk$", "gpu.mem_clock", 1e6),
        (r"^average graphics package power \(w\)$", "gpu.power", 1.0),
        (r"^current socket graphics package power \(w\)$", "gpu.power", 1.0),
        (r"^power[./](?:socket_power|current_socket_power|average_socket_power)$|^socket_power$", "gpu.power", 1.0),
        (r"^max graphics package power \(w\)$", "gpu.power_limit", 1.0),
        (r"^(?:limit[./])?(?:socket_power|power_limit|max_power)$|^power[./]power_cap$", "gpu.power_limit", 1.0),
        (r"^gpu use \(%\)$", "gpu.util", 0.01),
        (r"^usage[./]gfx_activity$|^gfx_activity$|^gfx_usage$", "gpu.util", 0.01),
        (r"^memory activity$", "gpu.mem_util", 0.01),
        (r"^usage[./]umc_activity$|^umc_activity$", "gpu.mem_util", 0.01),
        (r"^gpu memory (?:use|allocated) \(?(?:vram)?%\)$", "gpu.mem_used_ratio", 0.01),
        (r"^vram total memory \(b\)$", "gpu.mem_total", 1.0),
        (r"^vram total used memory \(b\)$", "gpu.mem_used", 1.0),
        (r"^mem_usage[./]total_vram$|^total_vram$", "gpu.mem_total", 1048576.0),
        (r"^mem_usage[./]used_vram$|^used_vram$", "gpu.mem_used", 1048576.0),
        (r"^pcie replay count$|^pcie[./]replay_count$|^pcie_replay_count$", "gpu.pcie_replay_total", 1.0),
        (r"^pcie[./]width$|^pcie_width$", "gpu.pcie_width", 1.0),
        (r"^pcie[./]speed$|^pcie_speed$", "gpu.pcie_link_speed", 1e9),
        (r"^energy[./]total_energy_consumption$|^total_energy_consumption$", "gpu.energy_total", 1.0),
        (r"^ecc[./]total_correctable_count$|^total_correctable_count$", "gpu.ecc.corrected_volatile_total", 1.0),
        (r"^ecc[./]total_uncorrectable_count$|^total_uncorrectable_count$", "gpu.ecc.uncorrected_volatile_total", 1.0),
        (r"^(?:throttle[./])?accumulation_counter$", "gpu.throttle.ticks_total", 1.0),
        (r"^(?:throttle[./])?prochot_accumulated$", "gpu.throttle.prochot_ticks_total", 1.0),
        (r"^(?:throttle[./])?ppt_accumulated$", "gpu.throttle.power_ticks_total", 1.0),
        (r"^(?:throttle[./])?socket_thermal_accumulated$", "gpu.throttle.socket_thermal_ticks_total", 1.0),
        (r"^(?:throttle[./])?vr_thermal_accumulated$", "gpu.throttle.vr_thermal_ticks_total", 1.0),
        (r"^(?:throttle[./])?hbm_thermal_accumulated$", "gpu.throttle.hbm_thermal_ticks_total", 1.0),
        (r"^(?:throttle[./])?prochot_violation_(?:activity|percent)$", "gpu.throttle.prochot_ratio", 0.01),
        (r"^(?:throttle[./])?ppt_violation_(?:activity|percent)$", "gpu.throttle.power_ratio", 0.01),
        (
            r"^(?:throttle[./])?socket_thermal_violation_(?:activity|percent)$",
            "gpu.throttle.socket_thermal_ratio",
            0.01,
        ),
        (r"^(?:throttle[./])?vr_thermal_violation_(?:activity|percent)$", "gpu.throttle.vr_thermal_ratio", 0.01),
        (r"^(?:throttle[./])?hbm_thermal_violation_(?:activity|percent)$", "gpu.throttle.hbm_thermal_ratio", 0.01),
    )
)
"""Source: rocm-smi --json of ROCm 4.3 to 6.3; amd-smi metric --json. Accumulated counters are ticks of one counter."""

_CARD = re.compile(r"^(?:card|gpu)?\s*(\d+)$", re.IGNORECASE)


def amd_key(label: str) -> AmdKey | None:
    """What a key means, None when unknown."""
    cleaned = label.strip().strip('"')
    for rank, (key, metric, scale) in enumerate(_PATTERNS):
        if key.match(cleaned):
            return AmdKey(metric, scale, rank)
    return None


def flatten(value: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested keys joined by slashes; objects of value and unit stay whole."""
    items: list[tuple[str, Any]] = []
    for key, inner in value.items():
        path = f"{prefix}/{key}" if prefix else key
        if isinstance(inner, dict) and "value" not in inner:
            items += flatten(inner, path)
        else:
            items.append((path, inner))
    return items


def card_entity(key: str) -> tuple[str, int | None]:
    """``card0`` keeps its own name, a bare number is an index."""
    match = _CARD.match(key)
    if match is None:
        return f"gpu:{key}", None
    number = int(match.group(1))
    return (f"gpu:card{number}" if key.lower().startswith("card") else f"gpu:index:{number}"), number
