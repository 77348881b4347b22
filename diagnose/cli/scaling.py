"""`diagnose scaling`: where do more GPUs stop helping, and why."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from diagnose.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.analysis.scaling.analyse import Goals, ScalingResult
    from diagnose.analysis.scaling.one_run import Estimate
    from diagnose.analysis.scaling.table import Curve, ScalingType
    from diagnose.report.scaling_report import Format

STORE_ENDING = ".duckdb"
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
    help="Price, for cost per unit of work and --budget.",
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
    force: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Fit a scaling curve to PATHS and say where more stops helping.

    PATHS is one table (CSV or YAML: gpus,value,unit; - is standard input), or run stores, or folders of them.
    """
    from diagnose.analysis.scaling.analyse import analyse
    from diagnose.findings.scaling import curve_regression
    from diagnose.report.scaling_report import render
    from diagnose.report.scaling_svg import scaling_svg

    goals = _goals(cost_per_gpu_hour, work, deadline, budget)
    curve, estimate = _curve(paths, table, stated or "unknown")
    if goals.work is not None and curve.seconds is None:
        raise UsageError(f"--work needs a curve of work per time (tokens/s, samples/s); this one is in {curve.unit!r}")
    result = analyse(curve, sizes=sizes, goals=goals, model_estimate=estimate)
    extra = curve_regression(_base(base, table, stated or curve.type), result) if base else []
    _write(render(result, form, extra=extra), output, force=force)
    if svg is not None:
        _write(scaling_svg(result), svg, force=force)


def _base(path: str, table: str | None, stated: ScalingType) -> ScalingResult:
    from diagnose.analysis.scaling.analyse import analyse

    return analyse(_curve((path,), table, stated)[0])


def _goals(cost: float | None, work: float | None, deadline: str | None, budget: float | None) -> Goals:
    from diagnose.analysis.scaling.analyse import Goals

    if (deadline is not None or budget is not None) and work is None:
        raise UsageError("--deadline and --budget need --work: how many tokens or samples are to be done")
    if budget is not None and cost is None:
        raise UsageError("--budget needs --cost-per-gpu-hour")
    return Goals(
        cost_per_gpu_hour=cost, deadline_hours=None if deadline is None else _hours(deadline), budget=budget, work=work
    )


def _hours(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found["number"]) <= 0:
        raise UsageError(f"--deadline {text!r} is no time: write 72h, 3d or 90min")
    return float(found["number"]) * _HOURS[found["unit"] or "h"]


def _curve(paths: Sequence[str], table: str | None, stated: ScalingType) -> tuple[Curve, Estimate | None]:
    """One curve from one table, or from all stores; and for a single store the estimate from its model."""
    files = [found for path in paths for found in _files(path)]
    stores = [file for file in files if file.name.endswith(STORE_ENDING)]
    if stores and len(stores) < len(files):
        raise UsageError("give either run stores or one table, not both")
    if stores:
        return _from_stores(stores, stated)
    if len(files) > 1:
        raise UsageError(f"{len(files)} tables given: one curve comes from one table (compare two with --base)")
    return _from_table(files[0], table, stated), None


def _files(path: str) -> list[Path]:
    where = Path(path)
    if path == "-" or not where.is_dir():
        return [where]
    stores = sorted(where.rglob(f"*{STORE_ENDING}"))
    if stores:
        return stores
    raise SourceError(
        f"{where} holds no run store (*{STORE_ENDING}): make one of each run with `diagnose run FOLDER -o "
        f"NAME{STORE_ENDING}`, then give this folder again"
    )


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


def _from_stores(paths: Sequence[Path], stated: ScalingType) -> tuple[Curve, Estimate | None]:
    from diagnose.analysis.scaling.one_run import estimate
    from diagnose.analysis.scaling.stores import read_stores
    from diagnose.analysis.scaling.table import build_curve

    read = read_stores(paths)
    one = next(iter(read.runs)) if len({row.gpus for row in read.rows}) == 1 else None
    curve = build_curve(
        read.rows,
        unit=read.unit,
        kind=read.kind,
        seconds=read.seconds,
        notes=read.notes,
        stated_type=_assumed(stated, read.kind),
    )
    return curve, None if one is None else estimate(one)


def _assumed(stated: ScalingType, kind: str) -> ScalingType:
    """Step times without throughput carry no work: weak scaling is assumed, as the notes say."""
    return "weak" if stated == "unknown" and kind == "step_time" else stated


def _write(text: str, output: str, *, force: bool) -> None:
    if output == "-":
        click.echo(text, nl=False)
        return
    path = Path(output)
    if path.exists() and not force:
        raise UsageError(f"{path} exists already; choose another name, or overwrite it with --force")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from error
    click.echo(f"Wrote {path}", err=True)
