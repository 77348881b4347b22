"""Comparison with peers: the same metric of the same role on other hosts or devices, by robust statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

MAD_TO_SIGMA = 1.4826
MIN_PEERS = 2
FLEET_SHARE = 0.9
"""From this share of the hosts on a deviation is the fleet's design and no host's fault."""


class Comparison(NamedTuple):
    """One subject against its peers: their median without it, the ratio, and the robust deviation in sigmas."""

    value: float
    peers_median: float
    ratio: float | None
    sigmas: float | None
    peers: int
    largest_other: float
    smallest_other: float


def compare(values: Mapping[str, float]) -> dict[str, Comparison]:
    """Every subject against all others; nothing when fewer than two others exist."""
    names = list(values)
    if len(names) <= MIN_PEERS:
        return {}
    numbers = np.array([values[name] for name in names], dtype=float)
    spread = robust_sigma(numbers)
    found: dict[str, Comparison] = {}
    for index, name in enumerate(names):
        others = np.delete(numbers, index)
        middle = float(np.median(others))
        sigma = max(robust_sigma(others), spread * 0.5)
        found[name] = Comparison(
            value=float(numbers[index]),
            peers_median=middle,
            ratio=float(numbers[index]) / middle if middle else None,
            sigmas=(float(numbers[index]) - middle) / sigma if sigma > 0 else None,
            peers=len(others),
            largest_other=float(others.max()),
            smallest_other=float(others.min()),
        )
    return found


def robust_sigma(numbers: np.ndarray) -> float:
    """Standard deviation estimated from the median absolute deviation."""
    if len(numbers) == 0:
        return 0.0
    return float(MAD_TO_SIGMA * np.median(np.abs(numbers - np.median(numbers))))


def is_fleet_wide(affected: int, total: int) -> bool:
    """Whether a finding on ``affected`` of ``total`` comparable hosts is the fleet's and not a host's."""
    return total >= MIN_PEERS and affected >= FLEET_SHARE * total
