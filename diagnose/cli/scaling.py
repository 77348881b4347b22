"""`diagnose scaling`: where do more GPUs stop helping, and why."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from diagnose.errors import SourceError, UsageError
from diagnose.ingest.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import Goals, ScalingResult
    from diagnose.analysis.scaling.one_run import Estimate
    from diagnose.analysis.scaling.table import Curve, ScalingType
    from diagnose.cli.scaling_runs import Inputs
    from diagnose.config import Config
    from diagnose.report.scaling_report import Format

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>min|h|d)?")
_HOURS = {"min": 1 / 60, "h": 1.0, "d": 24.0}


@click.command()
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--predict",
    "sizes",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Predict this size; repeatable. Default: twice the largest.",
)
@click.option(
    "--type",
    "stated",
    type=click.Choice(["weak", "strong"]),
    help="weak: work grows with the size; strong: the global batch is fixed.",
)
@click.option(
    "--base", metavar="TABLE", help="An earlier table or store folder of the same job: report a regression against it."
)
@click.option("--table", metavar="ID", help="Which table of a YAML file with several.")
@click.option(
    "--cost-per-gpu-hour",
    type=click.FloatRange(min=0, min_open=True),
    help="Price, for cost per unit of work and --budget. Default: price_per_gpu_hour in diagnose.yaml.",
)
@click.option(
    "--work",
    type=click.FloatRange(min=0, min_open=True),
    help="Units of work to do (tokens, samples), for --deadline and --budget.",
)
@click.option(
    "--deadline", metavar="TIME", help="Finish --work within this time (72h, 3d): the smallest size that does."
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    help="Spend at most this on --work: the fastest size that does.",
)
@click.option("--format", "form", type=click.Choice(["text", "json", "md", "html"]), default="text", show_default=True)
@click.option(
    "--output", default="-", show_default=True, metavar="FILE", help="Where the report goes; - is standard output."
)
@click.option("--svg", metavar="FILE", help="Also write the chart as SVG.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration (default: nearest diagnose.yaml).",
)
def scaling(
    paths: tuple[str, ...],
    sizes: tuple[int, ...],
    stated: ScalingType | None,
    base: str | None,
    table: str | None,
    cost_per_gpu_hour: float | None,
    work: float | None,
    deadline: str | None,
    budget: float | None,
    form: Format,
    output: str,
    svg: str | None,
    force: bool,
    config_path: Path | None,
) -> None:
    """Fit a scaling curve to PATHS and say where more stops helping.

    PATHS is one table (CSV or YAML: gpus,value,unit; - is standard input), or runs: run stores, or folders that hold
    run stores or one sub-folder a run, here or behind a URL (there: of one run, or of stores). A single run gets an
    estimate at twice its size.
    """
    from diagnose.analysis.scaling.analyse import analyse
    from diagnose.config import load_config
    from diagnose.findings.rules import RuleBook
    from diagnose.findings.scaling import curve_regression
    from diagnose.report.scaling_report import render
    from diagnose.report.scaling_svg import scaling_svg

    config = load_config(config_path)
    goals = _goals(cost_per_gpu_hour or config.price_per_gpu_hour, work, deadline, budget)
    rules = RuleBook(config.thresholds)
    curve, estimate = _curve(paths, table, stated or "unknown", config)
    if goals.work is not None and curve.seconds is None:
        raise UsageError(f"--work needs a curve of work per time (tokens/s, samples/s); this one is in {curve.unit!r}")
    result = analyse(curve, sizes=sizes, goals=goals, model_estimate=estimate)
    extra = curve_regression(_base(base, table, stated or curve.type, config), result, rules) if base else []
    _write(render(result, form, extra=extra, rules=rules), output, force=force)
    if svg is not None:
        _write(scaling_svg(result), svg, force=force)


def _base(path: str, table: str | None, stated: ScalingType, config: Config) -> ScalingResult:
    from diagnose.analysis.scaling.analyse import analyse

    return analyse(_curve((path,), table, stated, config)[0])


def _goals(cost: float | None, work: float | None, deadline: str | None, budget: float | None) -> Goals:
    from diagnose.analysis.scaling.analyse import Goals

    if (deadline is not None or budget is not None) and work is None:
        raise UsageError("--deadline and --budget need --work: how many tokens or samples are to be done")
    if budget is not None and cost is None:
        raise UsageError("--budget needs --cost-per-gpu-hour, or price_per_gpu_hour in diagnose.yaml")
    return Goals(
        cost_per_gpu_hour=cost, deadline_hours=None if deadline is None else _hours(deadline), budget=budget, work=work
    )


def _hours(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found["number"]) <= 0:
        raise UsageError(f"--deadline {text!r} is no time: write 72h, 3d or 90min")
    return float(found["number"]) * _HOURS[found["unit"] or "h"]


def _curve(
    paths: Sequence[str], table: str | None, stated: ScalingType, config: Config
) -> tuple[Curve, Estimate | None]:
    """One curve from one table, or from all runs; and for a single run the estimate from its model."""
    from diagnose.cli.scaling_runs import inputs

    with inputs(paths, config) as given:
        if given.stores and given.tables:
            raise UsageError("give either runs or one table, not both")
        if given.stores:
            return _from_stores(given, stated)
        if len(given.tables) > 1:
            raise UsageError(
                f"{len(given.tables)} tables given: one curve comes from one table (compare two with --base)"
            )
        return _from_table(given.tables[0], table, stated), None


def _from_table(path: Path, table: str | None, stated: ScalingType) -> Curve:
    from diagnose.analysis.scaling.table import build_curve
    from diagnose.ingest.scaling_table import decode, read_table, read_text

    if str(path) == "-":
        read = read_text(decode(sys.stdin.buffer.read(), "standard input"), "standard input", table=table)
    else:
        read = read_table(path, table=table)
    said: Literal["weak", "strong", "unknown"] = stated if stated != "unknown" else read.stated_type
    unit = read.unit
    curve = build_curve(
        read.rows,
        unit=unit.label,
        kind=unit.kind,
        seconds=unit.seconds,
        scale=read.scale,
        stated_type=said,
        notes=read.notes,
    )
    sizes = {point.gpus for point in curve.points}
    if len(sizes) < 2:
        name = "standard input" if str(path) == "-" else str(path)
        raise SourceError(f"{name} has one size only ({sizes.pop()}): scaling needs at least two, three for a curve")
    return curve


def _from_stores(given: Inputs, stated: ScalingType) -> tuple[Curve, Estimate | None]:
    from diagnose.analysis.scaling.one_run import estimate
    from diagnose.analysis.scaling.stores import read_stores
    from diagnose.analysis.scaling.table import build_curve

    read = read_stores(list(given.stores), names=given.stores, stated=stated)
    one = next(iter(read.runs)) if len({row.gpus for row in read.rows}) == 1 else None
    curve = build_curve(
        read.rows,
        unit=read.unit,
        kind=read.kind,
        seconds=read.seconds,
        notes=(*read.notes, *given.notes),
        stated_type=stated,
    )
    return curve, None if one is None else estimate(one)


def _write(text: str, output: str, *, force: bool) -> None:
    if output == "-":
        click.echo(text, nl=False)
        return
    if is_url(output):
        from diagnose.pipeline.upload import write_url

        write_url(text, output, force=force)
        return
    path = Path(output)
    if path.exists() and not force:
        raise UsageError(f"{path} exists already; choose another name, or overwrite it with --force")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from error
    click.echo(f"Wrote {path}", err=True)
