"""`diagnose report`: the diagnosis of a stored run again."""

from __future__ import annotations

from pathlib import Path

import click

from diagnose.cli.output import emit, report_options


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@report_options
def report(store: Path, format_: str, output: str, fail_on: str, config_path: Path | None) -> None:
    """Print the diagnosis of the run store STORE, with the rules of this version."""
    from diagnose.config import load_config
    from diagnose.report.assemble import assemble
    from diagnose.store.reader import Store

    config = load_config(config_path)
    with Store(store) as tables:
        document = assemble(tables, config)
    emit(document, format_=format_, output=output, fail_on=fail_on, config=config)
