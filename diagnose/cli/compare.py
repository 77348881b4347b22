"""`diagnose compare`: a regression or not, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from diagnose.cli.output import FORMATS, write
from diagnose.errors import UsageError
from diagnose.ingest.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.compare.facts import RunFacts
    from diagnose.config import Config
    from diagnose.findings.rules import RuleBook
    from diagnose.model import Finding

_STORE = str


@click.command()
@click.argument("runs", nargs=-1, required=True, type=_STORE)
@click.option(
    "--base",
    "bases",
    multiple=True,
    required=True,
    type=_STORE,
    help="Run store to compare with; repeatable, more are better.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.02,
    show_default=True,
    help="Changes within this share of the step do not matter.",
)
@click.option(
    "--between-run-sd",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.01,
    show_default=True,
    help="How much equal runs differ, where too few runs tell.",
)
@click.option(
    "--per-work", is_flag=True, help="Compare device time per unit of work (token, sample): size and batch may differ."
)
@click.option(
    "--base-work",
    type=click.FloatRange(0, min_open=True),
    help="Units of work in a step of the base runs, where their logs do not say.",
)
@click.option(
    "--work",
    type=click.FloatRange(0, min_open=True),
    help="Units of work in a step of RUNS, where their logs do not say.",
)
@click.option("--same-model", is_flag=True, help="Compare although kernels or traffic look like another model's.")
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Form of the report."
)
@click.option("--output", default="-", show_default=True, help="File to write it to, - for stdout.")
@click.option(
    "--fail-on",
    type=click.Choice(("regression", "never")),
    default="never",
    show_default=True,
    help="Exit 1 with a confirmed regression.",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration (default: nearest diagnose.yaml).",
)
def compare(
    runs: tuple[str, ...], bases: tuple[str, ...], margin: float, between_run_sd: float, per_work: bool, base_work: float | None, work: float | None,
    same_model: bool, format_: str, output: str, fail_on: str, config_path: Path | None,
) -> None:  # fmt: skip
    """Say whether the run stores RUNS (files or URLs) are slower than those of --base, by how much, and where the time went.

    Runs are the samples: give three or more a side where you can. Runs of another model, batch or size are refused.
    """
    from diagnose.analysis.compare.compare import Options, compare_runs, refusals
    from diagnose.config import load_config
    from diagnose.findings.rules import RuleBook
    from diagnose.report.compare_document import document
    from diagnose.report.compare_render import render

    config = load_config(config_path)
    rules = RuleBook(config.thresholds)
    options = Options(margin, between_run_sd, per_work, same_model)
    _no_run_twice((*bases, *runs))
    before, before_findings = _read(bases, config, rules, base_work)
    after, after_findings = _read(runs, config, rules, work)
    if reasons := refusals(before, after, options):
        advice = "" if per_work else "; runs of another size or batch compare with --per-work"
        raise UsageError(f"these runs cannot be compared{advice}:\n  " + "\n  ".join(reasons))
    report = document(compare_runs(before, after, options), rules, before=before_findings, after=after_findings)
    write(render(report, format_, rules), output)
    if fail_on == "regression" and report.outcome.change == "regression":
        raise click.exceptions.Exit(1)


def _no_run_twice(paths: Sequence[str]) -> None:
    places = [path if is_url(path) else str(Path(path).resolve()) for path in paths]
    if twice := {path for path in places if places.count(path) > 1}:
        raise UsageError(f"{min(twice)} is given twice: a run counts once")


def _read(
    paths: Sequence[str], config: Config, rules: RuleBook, work: float | None
) -> tuple[list[RunFacts], list[list[Finding]]]:
    from diagnose.analysis.compare.facts import Work, read_run
    from diagnose.findings.evaluate import evaluate
    from diagnose.pipeline.download import readable
    from diagnose.store.reader import Store

    facts, findings = [], []
    for path in paths:
        with readable(path) as place, Store(place) as tables:
            run = read_run(tables, path)
            findings.append(evaluate(tables, config, rules).findings)
        facts.append(run if work is None else run._replace(work=Work(work, run.work.unit if run.work else "work")))
    return facts, findings
