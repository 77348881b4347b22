"""Where results go: stdout carries the result, stderr progress and log; files are never overwritten silently."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from diagnose.config import Config
    from diagnose.report.document import Document

FORMATS = ("text", "json", "md", "html", "junit")
_LEVELS = {"critical": ("critical",), "warning": ("critical", "warning"), "never": ()}


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--format, --output, --fail-on, --config."""
    for option in reversed(
        (
            click.option(
                "--format",
                "format_",
                type=click.Choice(FORMATS),
                default="text",
                show_default=True,
                help="Form of the report.",
            ),
            click.option(
                "--output", type=str, default="-", show_default=True, help="File to write it to, - for stdout."
            ),
            click.option(
                "--fail-on",
                type=click.Choice(list(_LEVELS)),
                default="never",
                show_default=True,
                help="Exit 1 with a finding at or above this.",
            ),
            click.option(
                "--config",
                "config_path",
                type=click.Path(path_type=Path, dir_okay=False),
                help="Configuration (default: nearest diagnose.yaml).",
            ),
        )
    ):
        command = option(command)
    return command


def emit(document: Document, *, format_: str, output: str, fail_on: str, config: Config) -> None:
    """Print or write the report; exits 1 when a finding reaches --fail-on."""
    from diagnose.findings.rules import RuleBook
    from diagnose.report.render import render

    terminal = output == "-" and sys.stdout.isatty()
    width = shutil.get_terminal_size((80, 24)).columns if terminal else 80
    color = terminal and "NO_COLOR" not in os.environ
    text = render(
        document, format_, rules=RuleBook(config.thresholds), width=width, color=color, app_address=config.app_address
    )
    write(text, output)
    if any(finding.severity in _LEVELS[fail_on] for finding in document.findings):
        raise click.exceptions.Exit(1)


def write(text: str, output: str) -> None:
    """Text to stdout, a file or a URL.

    Raises:
        UsageError: the file cannot be written.
    """
    if output == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    try:
        if "://" in output:
            from diagnose.pipeline.upload import write_url

            write_url(text, output)
        else:
            Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}") from error
    click.echo(f"Wrote {output}", err=True)
