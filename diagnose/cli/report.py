"""`diagnose report`: the diagnosis of a stored run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from diagnose.cli.output import emit, report_options

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("store", type=str)
@report_options
def report(store: str, format_: str, output: str, fail_on: str, config_path: Path | None) -> None:
    """Print the diagnosis of the run store STORE, a file or URL, with the rules of this version."""
    from diagnose.config import load_config
    from diagnose.pipeline.download import readable
    from diagnose.report.assemble import assemble
    from diagnose.store.reader import Store

    config = load_config(config_path)
    with readable(store) as place, Store(place) as tables:
        document = assemble(tables, config)
    emit(document, format_=format_, output=output, fail_on=fail_on, config=config)
