"""`diagnose run`: the main job."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.cli.output import emit, report_options
from diagnose.cli.progress import reading


@click.command()
@click.argument("paths", nargs=-1, required=True, type=str)
@click.option("-o", "store", metavar="FILE", help="Run store to write, a file or URL (default: ./<name>.duckdb).")
@click.option("--force", is_flag=True, help="Overwrite the store.")
@click.option("--name", help="Name of the run (default: from the first path).")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: processors, at most 8).")
@click.option(
    "--keep",
    type=click.Choice(("kernels", "stats")),
    default="kernels",
    show_default=True,
    help="Keep every device activity, or statistics only.",
)
@click.option("--rank-from", metavar="REGEX", help="Rank in the path, first group, for traces that do not say it.")
@click.option("--host-map", type=click.Path(path_type=Path, dir_okay=False), help="YAML: rank or path pattern to host.")
@click.option("--timezone", help="Zone of local times in logs and metrics, such as Europe/Berlin.")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler to read on (tcp://HOST:PORT).")
@click.option("--cluster", type=click.Choice(("slurm", "k8s")), help="Start Dask workers there, as diagnose.yaml says.")
@report_options
def run(
    paths: tuple[str, ...], store: str | None, force: bool, name: str | None, jobs: int | None, keep: str, rank_from: str | None,
    host_map: Path | None, timezone: str | None, scheduler: str | None, cluster: str | None, format_: str, output: str, fail_on: str, config_path: Path | None,
) -> None:  # fmt: skip
    """Read the traces, logs and metrics in PATHS, find what holds the run back, print it, and keep the run store.

    PATHS are files, folders or URLs (s3://...). Kinds are found by content.
    """
    from diagnose.config import load_config
    from diagnose.pipeline.build import RunOptions, build_run, run_name
    from diagnose.pipeline.choose_engine import engine_for
    from diagnose.pipeline.upload import built_for
    from diagnose.report.assemble import assemble
    from diagnose.store.reader import Store

    config = load_config(config_path)
    title = name or run_name(paths)
    target = store or f"{title}.duckdb"
    options = RunOptions(
        name=title, jobs=jobs, keep=keep, timezone=timezone, rank_from=rank_from, host_map=host_map, force=force
    )

    def notice(text: str) -> None:
        click.echo(text, err=True)

    with built_for(target, force=force) as place:
        with engine_for(scheduler, cluster, config, notice) as engine, reading(paths) as progress:
            build_run(paths, place, config, options, engine=engine, progress=progress)
        with Store(place) as tables:
            document = assemble(tables, config)
    click.echo(f"Run store: {target}", err=True)
    emit(document, format_=format_, output=output, fail_on=fail_on, config=config)
