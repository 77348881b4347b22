"""What was set up differently: transports in use, versions, environment, hosts, size, batch, launches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.compare.comparable import overlap
from diagnose.analysis.compare.result import Setting, TransportItem
from diagnose.units import format_bytes, format_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from diagnose.analysis.compare.facts import RunFacts

SHARE_MOVED = 0.05
"""Links differ by a few between equal runs (lazy connections): a transport has changed when a twentieth moved."""
REWRITTEN_RATIO = 0.97
_MIXED = "differs among the runs"


def compare_transports(base: Sequence[RunFacts], new: Sequence[RunFacts]) -> tuple[TransportItem, ...]:
    """Share of the connections of every transport, mean over the runs whose logs tell it."""
    sides = [_shares(side) for side in (base, new)]
    if not all(sides):
        return ()
    return tuple(
        TransportItem(
            transport=name, base_ratio=sides[0].get(name, 0.0), new_ratio=sides[1].get(name, 0.0),
            changed=abs(sides[1].get(name, 0.0) - sides[0].get(name, 0.0)) > SHARE_MOVED,
        )
        for name in sorted(set(sides[0]) | set(sides[1]))
    )  # fmt: skip


def _shares(runs: Sequence[RunFacts]) -> dict[str, float]:
    told = [run.transports for run in runs if sum(run.transports.values()) > 0]
    shares: dict[str, float] = {}
    for lines in told:
        for name, count in lines.items():
            shares[name] = shares.get(name, 0.0) + count / sum(lines.values()) / len(told)
    return shares


def compare_settings(base: Sequence[RunFacts], new: Sequence[RunFacts]) -> tuple[Setting, ...]:
    """Settings that differ between the sides; one that only one side's files tell is no difference."""
    found = []
    names = sorted({name for run in (*base, *new) for name in run.settings})
    env_told = [any(name.startswith("env ") for run in side for name in run.settings) for side in (base, new)]
    for name in names:
        before, after = (_agreed(side, lambda run, name=name: run.settings.get(name)) for side in (base, new))  # type: ignore[misc]
        if name.startswith("env ") and all(env_told):
            before, after = before or "not set", after or "not set"
        if before is not None and after is not None and before != after:
            found.append(Setting(what=name, base=before, new=after))
    for what, get in _MEASURED.items():
        before, after = _agreed(base, get), _agreed(new, get)
        if before is not None and after is not None and before != after:
            found.append(Setting(what=what, base=before, new=after))
    names_kept = overlap(base, new, "name")
    if names_kept is not None and names_kept < REWRITTEN_RATIO:
        found.append(
            Setting(
                what="kernels", base="", new=f"{format_ratio(names_kept)} of the launches have the same kernel names"
            )
        )
    return tuple(found)


def _agreed(runs: Sequence[RunFacts], get: Callable[[RunFacts], str | None]) -> str | None:
    values = {value for run in runs if (value := get(run)) is not None}
    return None if not values else next(iter(values)) if len(values) == 1 else _MIXED


_MEASURED: dict[str, Callable[[RunFacts], str | None]] = {
    "world size": lambda run: None if run.world_size is None else str(run.world_size),
    "ranks seen": lambda run: str(len(run.ranks_seen)) if run.ranks_seen else None,
    "work per step": lambda run: None if run.work is None else f"{run.work.per_step:.3g} {run.work.unit}",
    "collective traffic per step and rank": lambda run: (
        None if run.comm_bytes is None else format_bytes(run.comm_bytes)
    ),
}
