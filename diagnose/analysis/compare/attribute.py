"""From a confirmed change to the part that carries it, and to the ranks and hosts where they stand out.

The step is as long as the path of the rank that nobody waits for: its parts say what the job lost. Where the median
rank only waits more, that rank is the culprit, and the others' waiting is its echo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.compare.result import Attribution
from diagnose.units import format_ns, format_ratio, opening

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.compare.result import HostItem, Outcome, PartItem, RankItem

WORDS = {
    "compute": "compute",
    "exposed_wait": "waiting for peers",
    "exposed_transfer": "exposed transfer",
    "exposed_comm": "exposed communication",
    "exposed_memcpy": "memory copies",
    "idle_input": "waiting for input",
    "idle_host": "idle because of the host",
    "idle_sync": "idle in synchronisation",
    "idle_bubble": "pipeline bubbles",
    "idle_other": "other idle time",
    "late_comm": "late launches behind communication",
}
_ECHO_RATIO = 0.4
"""Ranks whose own work grew by so much of the change, beyond the others', explain it: the others wait for them."""

_BESIDE_RATIO = 0.2
_BESIDE_WORST_RATIO = 0.5
"""Other ranks are named beside the worst one when they changed at least half as much."""


def attribute(
    outcome: Outcome, parts: Sequence[PartItem], ranks: Sequence[RankItem], hosts: Sequence[HostItem]
) -> Attribution:
    """The part with the largest confirmed share of the change, in the direction of the change."""
    if outcome.change not in ("regression", "improvement"):
        return Attribution()
    sign = 1 if outcome.change == "regression" else -1
    total = outcome.new_ns - outcome.base_ns
    pace = _largest(parts, "critical", sign) or _largest(parts, "median", sign)
    if pace is None or pace.change_ns is None:
        text = (
            "No part of the step changed beyond chance: the change is spread over several."
            if parts
            else "Without traces no part can be named."
        )
        return Attribution(text=text)
    culprits = [item for item in ranks if item.changed and sign * (item.change_ns or 0) > 0]
    most = culprits[0] if sign > 0 and culprits else culprits[-1] if culprits else None
    alone = most is not None and abs(most.change_ns or 0) >= _ECHO_RATIO * abs(pace.change_ns)
    least = _BESIDE_WORST_RATIO * abs(most.change_ns or 0) if most is not None else 0.0
    chosen = [item for item in culprits if abs(item.change_ns or 0) >= least] if alone else []
    named = _hosts(chosen, hosts, sign)
    part = most.part if alone and most is not None and most.part else pace.part
    change = pace.change_ns
    where = _where(chosen, named) if alone else ""
    text = f"{opening(WORDS[part])}{where} took {format_ns(abs(change))} {'more' if sign > 0 else 'less'} ({_share(change, total)})"
    others = [item for item in parts if _beside(item, pace, total)]
    for item in others:
        text += f", {WORDS[item.part]} {format_ns(abs(item.change_ns or 0))}"
    text += f"; the other ranks wait for {'it' if len(chosen) == 1 else 'them'}." if alone and sign > 0 else "."
    return Attribution(
        part=part, change_ns=change, share=change / total if total else None, also=tuple(item.part for item in others), ranks=tuple(sorted(item.rank for item in chosen)), hosts=named,
        others_wait=alone, text=text,
    )  # fmt: skip


def _share(change: float, total: float) -> str:
    """Parts of different ranks' paths can add up to more than the step's change."""
    return "all of the change" if change / total >= 1 else f"{format_ratio(change / total)} of the change"


def _beside(item: PartItem, main: PartItem, total: float) -> bool:
    return (
        item.view == main.view
        and item.part != main.part
        and item.changed
        and (item.change_ns or 0.0) / total >= _BESIDE_RATIO
    )


def _largest(parts: Sequence[PartItem], view: str, sign: int) -> PartItem | None:
    moved = [item for item in parts if item.view == view and item.changed and sign * (item.change_ns or 0) > 0]
    return max(moved, key=lambda item: abs(item.change_ns or 0), default=None)


def _hosts(culprits: Sequence[RankItem], hosts: Sequence[HostItem], sign: int) -> tuple[str, ...]:
    """Hosts on which most ranks changed, else the hosts of the culprits."""
    named = [item.host for item in hosts if item.changed and sign * (item.change_ns or 0) > 0]
    own = {item.host for item in culprits if item.host is not None}
    return tuple(sorted(own & set(named) or own))


def _where(culprits: Sequence[RankItem], hosts: Sequence[str]) -> str:
    ranks = ", ".join(str(item.rank) for item in sorted(culprits, key=lambda item: item.rank)[:8])
    more = f" and {len(culprits) - 8} more" if len(culprits) > 8 else ""
    place = f" ({', '.join(hosts[:4])})" if hosts else ""
    return f" on rank{'s' if len(culprits) > 1 else ''} {ranks}{more}{place}"
