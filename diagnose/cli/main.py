"""The command `diagnose`: parses, calls, prints, maps errors to exit codes. Commands are imported when used."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from diagnose import __version__
from diagnose.errors import DiagnoseError

_COMMANDS = {
    "run": "Read and analyse a run, print the diagnosis.",
    "inspect": "Say what files are, and what evidence is missing.",
    "report": "Print the diagnosis of a stored run again.",
    "compare": "Compare a run with earlier ones.",
    "scaling": "Fit a scaling curve to runs or to a table.",
    "watch": "Analyse runs as they appear in a folder.",
    "app": "Open the dashboard.",
    "rules": "List or explain the findings.",
}
_INTERNAL_ERROR = 70


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"diagnose.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="diagnose")
def cli() -> None:
    """Why is this training run slow: the network, one node, the input, the host, or the model?

    Start with: diagnose run FOLDER
    """


def main(arguments: list[str] | None = None) -> None:
    """Entry point: exit 0 done, 1 findings at or above --fail-on, 2 usage or nothing readable, 70 a bug here."""
    try:
        code = cli.main(args=arguments, prog_name="diagnose", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        code = 130
    except DiagnoseError as error:
        click.echo(f"diagnose: {error}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        code = 0
    except Exception as error:  # noqa: BLE001 - the last resort, so that a crash never looks like a finding
        code = _internal(error)
    sys.exit(code if isinstance(code, int) else 0)


def _internal(error: Exception) -> int:
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True)
    click.echo(
        f"diagnose: internal error ({type(error).__name__}); this is a bug, please report it with the lines above",
        err=True,
    )
    return _INTERNAL_ERROR
