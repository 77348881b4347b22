"""Rules as data: one YAML file a code, with meaning, thresholds and the reason for each value, message and actions.

A check (``findings/checks``) measures; the rule decides how loud it is and what is said. Third-party rules are not
loaded: a rule file is part of the package, or its thresholds are overridden in diagnose.yaml.
"""

from __future__ import annotations

import copy
import string
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from diagnose.config import decode_yaml
from diagnose.errors import ConfigError, RuleError
from diagnose.findings.accelerator import KINDS
from diagnose.model import CAUSES, Evidence, Finding, Impact, Persistence, Severity
from diagnose.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.resources.abc import Traversable


class Threshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values at which a measure becomes info, warning, critical. ``why`` is shown by `diagnose rules CODE`."""

    why: str
    unit: str | None = None
    direction: Literal["above", "below"] = "above"
    info: float | None = None
    warning: float | None = None
    critical: float | None = None

    def severity(self, value: float | None) -> Severity | None:
        """The loudest level that the value reaches, None when it reaches none or is unknown."""
        if value is None or value != value:  # NaN is unknown
            return None
        for level in ("critical", "warning", "info"):
            limit = getattr(self, level)
            if limit is not None and (value >= limit if self.direction == "above" else value <= limit):
                return level
        return None


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rule says instead on another kind of accelerator; None keeps the rule's own text."""

    title: str | None = None
    meaning: str | None = None
    message: str | None = None
    actions: tuple[str, ...] | None = None


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finding the tool can make. ``message`` has ``{name:unit}`` fields, unit as in units.format_value."""

    code: str
    title: str
    cause: str
    meaning: str
    message: str
    actions: tuple[str, ...] = ()
    thresholds: dict[str, Threshold] = {}
    explains: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    severity: Severity | None = None
    """Fixed severity, for rules whose evidence is a fact and not a measure."""

    wording: dict[str, Wording] = {}
    """By kind of accelerator (``accelerator.KINDS``); the texts above are for NVIDIA devices."""

    def worded(self, accelerator: str | None) -> Rule:
        """The rule in the words of a kind of accelerator."""
        other = self.wording.get(accelerator or "")
        if other is None:
            return self
        return msgspec.structs.replace(
            self, **{name: text for name, text in msgspec.structs.asdict(other).items() if text is not None}
        )

    def judge(self, **measures: float | None) -> Severity | None:
        """The severity when *every* named threshold is reached: the mildest of the reached levels.

        Raises:
            RuleError: a measure has no threshold of that name.
        """
        levels: list[Severity] = []
        for name, value in measures.items():
            if name not in self.thresholds:
                raise RuleError(f"rule {self.code} has no threshold {name!r}")
            level = self.thresholds[name].severity(value)
            if level is None:
                return None
            levels.append(level)
        return max(levels, key=("critical", "warning", "info").index) if levels else self.severity

    def limit(self, name: str, level: Severity = "warning") -> float:
        """The value of one threshold.

        Raises:
            RuleError: there is none.
        """
        value = getattr(self.thresholds.get(name), level, None)
        if value is None:
            raise RuleError(f"rule {self.code} has no {level} value for {name!r}")
        return float(value)

    def finding(
        self,
        severity: Severity | None = None,
        *,
        fields: Mapping[str, object] | None = None,
        cause: str | None = None,
        ranks: Iterable[int] = (),
        hosts: Iterable[str] = (),
        devices: Iterable[str] = (),
        steps: Iterable[int] | Literal["all"] = "all",
        persistence: Persistence | None = None,
        impact: Impact | None = None,
        confidence: float = 1.0,
        evidence: Iterable[Evidence] = (),
        actions: Iterable[str] | None = None,
        title: str | None = None,
    ) -> Finding:
        """The finding this rule makes of the given facts; subjects are sorted so that bytes are deterministic."""
        level = severity or self.severity
        if level is None:
            raise RuleError(f"rule {self.code} was applied without a severity")
        values = dict(fields or {})
        return Finding(
            code=self.code,
            title=_fill(title or self.title, values),
            severity=level,
            cause=cause or self.cause,
            message=_fill(self.message, values),
            ranks=tuple(sorted(set(ranks))),
            hosts=tuple(sorted(set(hosts))),
            devices=tuple(sorted(set(devices))),
            steps="all" if steps == "all" else tuple(sorted(set(steps))),
            persistence=persistence,
            impact=impact or Impact(),
            confidence=round(confidence, 3),
            evidence=tuple(evidence),
            actions=tuple(_fill(action, values) for action in (self.actions if actions is None else actions)),
            explains=self.explains,
        )


class RuleBook:
    """All rules by code, thresholds as configured. A rule file is read when its rule is first used.

    Raises:
        RuleError: a rule file is wrong, or an override names a rule or threshold that does not exist.
    """

    def __init__(self, overrides: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None) -> None:
        self._files = {
            item.name.removesuffix(".yaml"): item
            for item in _rule_files(resources.files("diagnose.findings").joinpath("rules"))
        }
        self._rules: dict[str, Rule] = {}
        self.accelerator: str | None = None
        for code, thresholds in (overrides or {}).items():
            self._rules[code] = _override(self[code], thresholds)

    def __getitem__(self, code: str) -> Rule:
        if code not in self._files:
            raise RuleError(f"there is no rule {code!r}; `diagnose rules` lists them all")
        if code not in self._rules:
            self._rules[code] = _checked(self._files[code])
        return self._rules[code].worded(self.accelerator)

    def worded(self, accelerator: str | None) -> RuleBook:
        """The same rules, in the words of a kind of accelerator."""
        other = copy.copy(self)
        other.accelerator = accelerator
        return other

    def __contains__(self, code: str) -> bool:
        return code in self._files

    def __iter__(self) -> Iterator[Rule]:
        return iter([self[code] for code in sorted(self._files)])


def _rule_files(folder: Traversable) -> Iterator[Traversable]:
    for item in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if item.is_dir():
            yield from _rule_files(item)
        elif item.name.endswith(".yaml"):
            yield item


def _checked(item: Traversable) -> Rule:
    try:
        rule = decode_yaml(item.read_text(encoding="utf-8"), Rule, item.name)
    except ConfigError as error:
        raise RuleError(str(error)) from error
    if rule.code != item.name.removesuffix(".yaml"):
        raise RuleError(f"{item.name}: the code is {rule.code!r}; a rule file is named by its code")
    if rule.cause not in CAUSES:
        raise RuleError(f"{item.name}: unknown cause {rule.cause!r}")
    if unknown := set(rule.wording) - set(KINDS):
        raise RuleError(f"{item.name}: unknown kind of accelerator {sorted(unknown)}, only {KINDS}")
    return rule


def _override(rule: Rule, thresholds: Mapping[str, Mapping[str, float]]) -> Rule:
    changed = dict(rule.thresholds)
    for name, levels in thresholds.items():
        if name not in changed:
            raise RuleError(f"thresholds: rule {rule.code} has no threshold {name!r}, only {sorted(changed)}")
        if unknown := set(levels) - {"info", "warning", "critical"}:
            raise RuleError(f"thresholds: {rule.code}.{name} has no level {sorted(unknown)}")
        changed[name] = msgspec.structs.replace(changed[name], **levels)
    return msgspec.structs.replace(rule, thresholds=changed)


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:  # noqa: ANN401 - string.Formatter's signature
        return format_value(value, format_spec or None)


def _fill(text: str, values: Mapping[str, object]) -> str:
    try:
        return _Formatter().vformat(text, (), values)
    except (KeyError, IndexError) as error:
        raise RuleError(f"message needs the field {error}: {text!r}") from error
