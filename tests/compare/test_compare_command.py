from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from compare_places import DATA, ROOT
from jsonschema import Draft202012Validator

from diagnose.cli.main import main
from diagnose.findings.rules import RuleBook
from diagnose.report.compare_document import json_schema

if TYPE_CHECKING:
    from pathlib import Path

Stores = "Callable[..., Path]"


def call(*arguments: object) -> tuple[int, str, str]:
    from diagnose.cli.main import cli

    result = CliRunner().invoke(cli, ["compare", *map(str, arguments)])
    return result.exit_code, result.stdout, str(result.exception or "")


@pytest.fixture(scope="session")
def pair(store_of: Stores) -> tuple[Path, Path]:
    return store_of("base0", seed=0), store_of("slow20", seed=20, slow=1.15)


def test_a_regression_exits_one_when_asked_to(pair: tuple[Path, Path]) -> None:
    base, slow = pair
    code, text, _ = call("--base", base, slow, "--fail-on", "regression")
    assert code == 1
    assert text.startswith("SLOWER: 1")
    assert "Compute took" in text
    assert max(map(len, text.splitlines())) <= 100
    assert call("--base", base, slow)[0] == 0
    assert call("--base", slow, base, "--fail-on", "regression")[0] == 0


def test_json_keeps_its_schema(pair: tuple[Path, Path]) -> None:
    _, text, _ = call("--base", pair[0], pair[1], "--format", "json")
    report = json.loads(text)
    assert next(iter(report)) == "schema"
    assert report["schema"] == "diagnose.compare/1"
    assert report["outcome"]["change"] == "regression"
    assert report["findings"][0]["code"] == "COMPARE-STEP"
    Draft202012Validator(json_schema()).validate(report)
    Draft202012Validator.check_schema(json_schema())


def test_junit_fails_the_step_and_what_grew(pair: tuple[Path, Path]) -> None:
    _, text, _ = call("--base", pair[0], pair[1], "--format", "junit")
    root = ET.fromstring(text)  # noqa: S314 - our own output
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert {"step time", "compute (median rank)", "COMPARE-STEP Slower than before"} <= set(failed)
    assert int(root.get("failures")) == len(failed) == sum(int(suite.get("failures")) for suite in root)
    rules = {case.get("name").split()[0] for case in root.iter("testcase") if case.get("classname") == "diagnose.rules"}
    assert rules == {rule.code for rule in RuleBook() if rule.code.startswith("COMPARE-")}
    _, text, _ = call("--base", pair[1], pair[0], "--format", "junit")
    assert ET.fromstring(text).get("failures") == "0"  # noqa: S314


def test_html_loads_nothing_and_runs_nothing(pair: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "c.html"
    assert call("--base", pair[0], pair[1], "--format", "html", "--output", target)[0] == 0
    page = target.read_text(encoding="utf-8")
    assert "SLOWER" in page
    assert not re.search(r"<script|<link|<img|src=|@import|https?://", page)
    assert page.count("<svg") == 2


def test_markdown_has_the_verdict_first(pair: tuple[Path, Path]) -> None:
    _, text, _ = call("--base", pair[0], pair[1], "--format", "md")
    assert text.startswith("## SLOWER: ")
    assert "| compute |" in text


def test_runs_that_cannot_be_compared_exit_two(store_of: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", "--base", str(store_of("base0", seed=0)), str(store_of("four0", seed=0, ranks=4))])
    assert stop.value.code == 2
    assert "world size 2 against 4" in capsys.readouterr().err


def test_a_run_counts_once(pair: tuple[Path, Path]) -> None:
    code, _, error = call("--base", pair[0], pair[0])
    assert code != 0
    assert "given twice" in error


def test_per_unit_of_work_with_stated_work(store_of: Stores) -> None:
    small, large = store_of("base0", seed=0), store_of("four0", seed=0, ranks=4)
    code, text, _ = call("--base", small, large, "--per-work", "--base-work", 1000, "--work", 2000)
    assert code == 0
    assert "device time per work" in text


@pytest.mark.parametrize(
    ("name", "part", "hosts"),
    [("slow_node", "compute", ("gpu-r01n02",)), ("socket_fallback", "exposed_transfer", ())],
)
def test_simulated_faults_are_regressions_in_the_right_part(
    store_of: Stores, name: str, part: str, hosts: tuple[str, ...]
) -> None:
    samples = ROOT / "sample_traces"
    base, new = (store_of(which, samples / which / "traces") for which in ("healthy", name))
    code, text, _ = call("--base", base, new, "--format", "json", "--fail-on", "regression")
    report = json.loads(text)
    assert (code, report["outcome"]["change"], report["attribution"]["part"]) == (1, "regression", part)
    assert tuple(report["attribution"]["hosts"]) == hosts


LAB = DATA / "lab"
FAULTS = [
    ("healthy_ddp_4h", "slow_device_r0_12x", "compute", (0,)),
    ("healthy_ddp_4h", "imbalance_seq_r3", "compute", (3,)),
    ("healthy_ddp_4h", "loader_stall_r1", "idle_input", (1,)),
    ("healthy_ddp_4h", "loader_slow_all", "idle_input", ()),
    ("healthy_ddp_4h", "allslow_50m", "exposed_transfer", ()),
    ("healthy_ddp_4h", "slownic_h3_50m", "exposed_transfer", ()),
    ("healthy_ddp_4h", "oversub_trunk_60m", "exposed_transfer", ()),
    ("healthy_mesh2x2", "mesh2x2_slow_device_r1", "compute", (1,)),
    ("healthy_pp_4h", "pp_slowlink_h2", "exposed_transfer", ()),
    ("healthy_pp_4h", "pp_imbalance_s2", "compute", (2,)),
]


@pytest.mark.skipif(not LAB.is_dir(), reason="the recorded runs are not here (../shared/data/lab)")
@pytest.mark.parametrize(("base", "new", "part", "ranks"), FAULTS)
def test_recorded_faults_are_regressions_in_the_right_part(
    store_of: Stores, base: str, new: str, part: str, ranks: tuple[int, ...]
) -> None:
    before, after = (store_of(name, LAB / name / "traces") for name in (base, new))
    code, text, _ = call("--base", before, after, "--format", "json", "--fail-on", "regression")
    report = json.loads(text)
    assert (code, report["attribution"]["part"], tuple(report["attribution"]["ranks"])) == (1, part, ranks), report[
        "attribution"
    ]["text"]


@pytest.mark.skipif(not LAB.is_dir(), reason="the recorded runs are not here (../shared/data/lab)")
@pytest.mark.parametrize(
    ("base", "new"),
    [
        ("healthy_ddp_4h", "ckpt_every10"),
        ("healthy_ddp_4h", "transient_pause_r1"),
        ("slownic_h3_50m", "slownic_h3_50m_clockskew_h1"),
    ],
)
def test_recorded_repeats_with_the_same_step_are_no_regressions(store_of: Stores, base: str, new: str) -> None:
    """The faults of these strike between the profiled steps, or are clocks only: their median step is that of the base."""
    before, after = (store_of(name, LAB / name / "traces") for name in (base, new))
    code, text, _ = call("--base", before, after, "--format", "json", "--fail-on", "regression")
    assert code == 0
    assert json.loads(text)["outcome"]["change"] in ("equivalent", "inconclusive")


@pytest.mark.skipif(not LAB.is_dir(), reason="the recorded runs are not here (../shared/data/lab)")
@pytest.mark.parametrize(
    ("base", "new", "reason"),
    [
        ("healthy_ddp_4h", "healthy_fsdp_4h", "other kernel set"),
        ("healthy_ddp_4h", "slownic_h3_30m_8r", "world size 4 against 8"),
    ],
)
def test_recorded_runs_of_other_jobs_are_refused(store_of: Stores, base: str, new: str, reason: str) -> None:
    before, after = (store_of(name, LAB / name / "traces") for name in (base, new))
    code, _, error = call("--base", before, after)
    assert code != 0
    assert reason in error
