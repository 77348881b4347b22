"""Findings of a comparison, and which findings of a run are new, worse or gone against an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from diagnose.analysis.compare.attribute import WORDS
from diagnose.model import SEVERITIES, Evidence, Finding, Impact
from diagnose.units import format_bytes, format_ns, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from diagnose.analysis.compare.result import CollectiveItem, Comparison, Item, KernelItem, RankItem
    from diagnose.findings.rules import Rule, RuleBook
    from diagnose.model import Severity

MOST = 5
WORSE_RATIO, WORSE_STEP_RATIO = 0.5, 0.02
"""A finding got worse when its cost grew by half and by 2 % of the step, or when it is louder."""
_SLOWER = ("P2P", "SHM", "COLLNET", "NET/IB/GDR", "NET/IB", "NET/Libfabric/GDR", "NET/Libfabric", "NET/Socket")
"""Transports from fast to slow; a plug-in's network of another name is left out."""


def compare_findings(comparison: Comparison, rules: RuleBook) -> list[Finding]:
    """What the comparison found, the change of the step first; without a confirmed regression only facts."""
    confirmed = comparison.outcome.change == "regression"
    found = [*_step(comparison, rules["COMPARE-STEP"])] if confirmed else []
    if confirmed:
        found += [*_parts(comparison, rules["COMPARE-PART"]), *_ranks(comparison, rules["COMPARE-RANK"])]
        found += [
            *_kernels(comparison, rules["COMPARE-KERNEL"]),
            *_collectives(comparison, rules["COMPARE-COLLECTIVE"]),
        ]
    return [
        *found,
        *_transports(comparison, rules["COMPARE-TRANSPORT"]),
        *_settings(comparison, rules["COMPARE-SETTING"]),
    ]


def _step(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    outcome, source = comparison.outcome, comparison.attribution
    severity = rule.judge(slower=outcome.effect_ratio)
    if severity is None:
        return
    names = [side.name for side in comparison.base]
    base = names[0] if len(names) == 1 else f"{len(names)} base runs"
    evidence = [
        Evidence(f"change of the median step: {outcome.text}", outcome.effect_ratio, "ratio", outcome.measured_from),
        Evidence("p-value of this change", float(f"{outcome.p_value:.2g}"), None, outcome.method),
        Evidence(outcome.detail, source=outcome.method),
    ]
    yield rule.finding(
        severity, ranks=source.ranks, hosts=source.hosts, evidence=evidence, confidence=1 - min(outcome.p_value, 0.5),
        fields={
            "slower": outcome.effect_ratio, "base": base, "before": outcome.base_ns, "after": outcome.new_ns,
            "unit": "step" if outcome.unit == "step" else f"{outcome.unit} (device time)", "where": source.text,
        },
        impact=Impact(round(outcome.new_ns - outcome.base_ns), round(1 - outcome.base_ns / outcome.new_ns, 4)),
    )  # fmt: skip


def _parts(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    for item in comparison.parts:
        if item.view == "median" and (severity := _grown(item, rule)):
            word = WORDS[item.part]
            yield rule.finding(
                severity, title=rule.title, fields={"part": word, "before": item.base_ns, "after": item.new_ns, "grown": item.step_ratio},
                devices=(item.part,), impact=_impact(item), evidence=[_chance(item, "breakdown")], confidence=_sure(item),
            )  # fmt: skip


def _ranks(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    grown = [(item, severity) for item in comparison.ranks if (severity := _grown(item, rule))]
    for item, severity in grown[:MOST]:
        yield rule.finding(
            severity, ranks=(item.rank,), hosts=(item.host,) if item.host else (), impact=_impact(item), confidence=_sure(item),
            fields={
                "rank": item.rank, "place": f" ({item.host})" if item.host else "", "change": item.change_ns,
                "part": WORDS.get(item.part or "", "unknown"),
            },
            evidence=[_rank_evidence(item), _chance(item, "breakdown")],
        )  # fmt: skip


def _rank_evidence(item: RankItem) -> Evidence:
    text = f"own work of rank {item.rank} above the reference rank's: {format_ns(item.base_ns)} before, {format_ns(item.new_ns)} now"
    return Evidence(text, round(item.change_ns or 0), "ns", "breakdown")


def _kernels(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    for item in [item for item in comparison.kernels if item.state == "both"][:MOST]:
        if severity := _grown(item, rule):
            yield rule.finding(
                severity, devices=(item.name[:200],), ranks=() if item.rank is None else (item.rank,), impact=_impact(item), confidence=_sure(item),
                fields={"name": item.name[:200], "before": item.base_ns, "after": item.new_ns, "calls": _calls(item)},
                evidence=[_chance(item, "kernel_stat")],
            )  # fmt: skip


def _calls(item: KernelItem) -> str:
    before, after = item.count_base or 0, item.count_new or 0
    return (
        f", in {before:.4g} launches"
        if round(before) == round(after)
        else f", {before:.4g} launches before and {after:.4g} now"
    )


def _collectives(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    for item in [item for item in comparison.collectives if item.state == "both"][:MOST]:
        if severity := _grown(item, rule):
            yield rule.finding(
                severity, devices=(collective_name(item),), impact=_impact(item), confidence=_sure(item), evidence=[_chance(item, "collective")],
                fields={"name": collective_name(item), "before": item.base_ns, "after": item.new_ns, "calls": item.calls_new or 0},
            )  # fmt: skip


def collective_name(item: CollectiveItem) -> str:
    """``all_reduce of 592.9 kB on 8 ranks``."""
    size = f" of {format_bytes(item.msg_bytes)}" if item.msg_bytes is not None else ""
    return f"{item.collective}{size}{f' on {item.group_size} ranks' if item.group_size else ''}"


def _transports(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    """A transport that gained connections at the cost of a faster one."""
    lost = [
        _SLOWER.index(item.transport)
        for item in comparison.transports
        if _moved(item.transport, item.base_ratio - item.new_ratio, changed=item.changed)
    ]
    for item in comparison.transports:
        if (
            _moved(item.transport, item.new_ratio - item.base_ratio, changed=item.changed)
            and lost
            and _SLOWER.index(item.transport) > min(lost)
        ):
            yield rule.finding(
                devices=(item.transport,), fields={"name": item.transport, "before": item.base_ratio, "after": item.new_ratio},
                evidence=[Evidence("share of the connections now", item.new_ratio, "ratio", "channel")],
            )  # fmt: skip


def _moved(name: str, gained: float, *, changed: bool) -> bool:
    return changed and gained > 0 and name in _SLOWER


def _settings(comparison: Comparison, rule: Rule) -> Iterator[Finding]:
    if comparison.configuration:
        listed = ", ".join(item.what for item in comparison.configuration[:MOST])
        more = len(comparison.configuration) - MOST
        yield rule.finding(
            fields={
                "count": len(comparison.configuration),
                "list": f"{listed} and {more} more" if more > 0 else listed,
            },
            evidence=[
                Evidence(f"{item.what}: {item.base or 'n/a'} before, {item.new} now", source="run, logs")
                for item in comparison.configuration
            ],
        )


def _grown(item: Item, rule: Rule) -> Severity | None:
    return rule.judge(grown=item.step_ratio) if item.changed and (item.change_ns or 0) > 0 else None


def _impact(item: Item) -> Impact:
    return Impact(
        None if item.change_ns is None else round(item.change_ns),
        None if item.step_ratio is None else round(item.step_ratio, 4),
    )


def _sure(item: Item) -> float:
    return 1 - min(item.p_corrected if item.p_corrected is not None else 0.1, 0.5)


def _chance(item: Item, source: str) -> Evidence:
    low, high = item.interval_ns or (None, None)
    text = f"change per step {format_ns(item.change_ns)}, 95 % interval {format_ns(low)} to {format_ns(high)}, corrected p-value"
    return Evidence(text, None if item.p_corrected is None else float(f"{item.p_corrected:.2g}"), None, source)


class Found(Protocol):
    """A finding as model or report have it."""

    @property
    def code(self) -> str: ...  # noqa: D102
    @property
    def severity(self) -> Severity: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def message(self) -> str: ...  # noqa: D102
    @property
    def impact(self) -> Impact: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102


F = TypeVar("F", bound=Found)


class FindingChanges(NamedTuple):
    """Findings by what became of them."""

    new: tuple[Found, ...] = ()
    worse: tuple[Found, ...] = ()
    resolved: tuple[Found, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.new or self.worse or self.resolved)


def changed_findings(before: Sequence[Sequence[Found]], after: Sequence[Sequence[Found]]) -> FindingChanges:
    """Of several runs a side: new is in every later run and in no earlier one, resolved the reverse. Info is left out."""
    earlier, later = ([_by_fingerprint(run) for run in side] for side in (before, after))
    if not earlier or not later:
        return FindingChanges()
    new = [
        item
        for key, item in later[-1].items()
        if all(key in run for run in later) and not any(key in run for run in earlier)
    ]
    resolved = [
        item
        for key, item in earlier[-1].items()
        if all(key in run for run in earlier) and not any(key in run for run in later)
    ]
    worse = [
        item
        for key, item in later[-1].items()
        if all(key in run for run in later) and all(key in run and _worse(run[key], item) for run in earlier)
    ]
    return FindingChanges(tuple(_ordered(new)), tuple(_ordered(worse)), tuple(_ordered(resolved)))


def _by_fingerprint(findings: Iterable[F]) -> dict[str, F]:
    return {finding.fingerprint: finding for finding in findings if finding.severity != "info"}


def _worse(before: Found, after: Found) -> bool:
    if SEVERITIES.index(after.severity) < SEVERITIES.index(before.severity):
        return True
    old, new = before.impact.step_ratio, after.impact.step_ratio
    return old is not None and new is not None and new > old * (1 + WORSE_RATIO) and new - old >= WORSE_STEP_RATIO


def _ordered(findings: Iterable[F]) -> list[F]:
    """Dearest first, then loudest."""
    return sorted(
        findings,
        key=lambda item: (
            -(item.impact.step_ratio or 0.0),
            SEVERITIES.index(item.severity),
            item.code,
            item.fingerprint,
        ),
    )


def change_words(changes: FindingChanges) -> str:
    """``2 new (Slow NIC, ...), 1 worse, 1 resolved``; empty when nothing changed."""
    pieces = []
    for word, items in (("new", changes.new), ("worse", changes.worse), ("resolved", changes.resolved)):
        if items:
            titles = list(dict.fromkeys(item.title for item in items))
            pieces.append(f"{word}: {', '.join(titles[:3])}{f' and {len(titles) - 3} more' if len(titles) > 3 else ''}")
    return "; ".join(pieces)


def cost_words(item: Found) -> str:
    """What a finding costs, short."""
    return "" if item.impact.step_ratio is None else f"{format_ratio(item.impact.step_ratio)} of the step"
