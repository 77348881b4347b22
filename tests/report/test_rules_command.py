from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from report_findings import RULES

from diagnose.cli.rules import rules
from diagnose.errors import ConfigError, RuleError
from diagnose.findings import rules as rules_module

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _book(monkeypatch: pytest.MonkeyPatch) -> None:
    by_code = {rule.code: rule for rule in RULES}
    files = [SimpleNamespace(name=f"{code}.yaml") for code in by_code]
    monkeypatch.setattr(rules_module, "_rule_files", lambda _folder: iter(files))
    monkeypatch.setattr(rules_module, "_checked", lambda item: by_code[item.name.removesuffix(".yaml")])


def output(*arguments: str) -> str:
    result = CliRunner().invoke(rules, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= 80
    return result.output


def test_it_lists_every_rule_with_its_levels() -> None:
    lines = output().splitlines()
    assert lines[0].split("  ")[0] == "COMM002"
    assert next(line for line in lines if line.startswith("RANK001")).split() == [
        "RANK001",
        "critical,",
        "warning",
        "Straggling",
        "rank",
    ]
    assert lines[-1].startswith("5 rules.")


def test_it_explains_one_rule_whatever_the_case() -> None:
    text = output("rank001")
    for words in (
        "RANK001 Straggling rank",
        "cause: gpu_slow; severity: critical, warning",
        "critical at least 10 %, warning at least 5.0 %",
    ):
        assert words in text
    for words in (
        "below 5 % the noise of a step hides it",
        "- Drain the node.",
        "- docs/rules/RANK001.md",
        "Explains: COMM002",
    ):
        assert words in text


def test_thresholds_are_shown_as_configured(tmp_path: Path) -> None:
    config = tmp_path / "diagnose.yaml"
    config.write_text("thresholds: {RANK001: {slowdown: {critical: 0.3}}}\n")
    assert "critical at least 30 %" in output("RANK001", "--config", str(config))


def test_an_unknown_code_is_an_error_that_says_where_to_look() -> None:
    with pytest.raises(RuleError, match="`diagnose rules` lists them all"):
        CliRunner().invoke(rules, ["NOPE"], catch_exceptions=False)
    with pytest.raises(ConfigError):
        CliRunner().invoke(rules, ["--config", "/does/not/exist.yaml"], catch_exceptions=False)
