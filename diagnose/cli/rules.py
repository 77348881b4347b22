"""`diagnose rules [CODE]`: every finding the tool can make, or one of them explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.rules import Rule, RuleBook, Threshold

WIDTH = 80
_ELSEWHERE = {"cpu": "On CPUs", "amd": "On AMD devices", "other": "On other devices"}


@click.command()
@click.argument("code", required=False)
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file; its thresholds are shown.")
def rules(code: str | None, config: Path | None) -> None:
    """List every finding that diagnose can make, or explain the one named CODE.

    Thresholds are shown as configured: from --config, or the nearest diagnose.yaml.
    """
    from diagnose.config import load_config
    from diagnose.findings.rules import RuleBook

    book = RuleBook(load_config(config).thresholds)
    lines = _listed(book) if code is None else _explained(_find(book, code))
    click.echo("\n".join(lines))


def _find(book: RuleBook, code: str) -> Rule:
    """The rule, whatever the case of its code was typed in."""
    return next((rule for rule in book if rule.code.casefold() == code.casefold()), None) or book[code]


def _listed(book: RuleBook) -> Iterator[str]:
    rows = [(rule.code, ", ".join(_levels(rule)), rule.title) for rule in book]
    code_width, level_width = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    for code, levels, title in rows:
        yield f"{code:<{code_width}}  {levels:<{level_width}}  {title}".rstrip()
    yield ""
    yield f"{len(rows)} rules. `diagnose rules CODE` explains one."


def _levels(rule: Rule) -> list[str]:
    """The severities the rule can have, loudest first."""
    found = {level for item in rule.thresholds.values() for level, _ in _values(item)} | {rule.severity}
    return [level for level in ("critical", "warning", "info") if level in found]


def _explained(rule: Rule) -> Iterator[str]:
    yield from _wrapped(f"{rule.code} {rule.title}")
    yield from _wrapped(f"cause: {rule.cause}; severity: {', '.join(_levels(rule)) or 'as the check finds'}")
    yield ""
    yield from _wrapped(rule.meaning)
    if rule.thresholds:
        yield from ("", "Thresholds")
        for name, item in rule.thresholds.items():
            yield from _threshold(name, item)
        yield from _wrapped("Change them in diagnose.yaml under thresholds, by code, name and severity.", "  ")
    elsewhere = [(_ELSEWHERE[kind], other.actions or ()) for kind, other in rule.wording.items()]
    for title, entries in (("What to do", rule.actions), *elsewhere, ("References", rule.references)):
        if entries:
            yield from ("", title)
            for entry in entries:
                yield from _wrapped(entry, "  - ", "    ")
    if rule.explains:
        yield from ("", *_wrapped(f"Explains: {', '.join(rule.explains)}"))


def _threshold(name: str, item: Threshold) -> Iterator[str]:
    from diagnose.units import format_value

    word = "at least" if item.direction == "above" else "at most"
    values = ", ".join(f"{level} {word} {format_value(value, item.unit)}" for level, value in _values(item))
    yield from _wrapped(f"{name}: {values or 'no level set'}", "  ", "    ")
    yield from _wrapped(item.why, "    ")


def _values(item: Threshold) -> list[tuple[str, float]]:
    levels = (("critical", item.critical), ("warning", item.warning), ("info", item.info))
    return [(level, value) for level, value in levels if value is not None]


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    text = " ".join(text.split())
    return click.wrap_text(text, WIDTH, first, first if rest is None else rest).splitlines()
