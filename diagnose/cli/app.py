"""`diagnose app`: the dashboard over one run store or a folder of them."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import click

from diagnose.errors import UsageError
from diagnose.ingest.urls import is_url

DEFAULT_PORT = 8501
ROOT_VARIABLE, CONFIG_VARIABLE = "DIAGNOSE_APP_ROOT", "DIAGNOSE_APP_CONFIG"


@click.command()
@click.argument("store", type=str, default=".", required=False)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True, help="Port to listen on."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; anything but this machine needs --allow-network.",
)
@click.option(
    "--allow-network", is_flag=True, help="Let other machines connect: everyone who reaches the port reads every run."
)
@click.option("--open", "open_browser", is_flag=True, help="Open a browser on this machine.")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration (default: nearest diagnose.yaml).",
)
def app(
    store: str,
    port: int,
    host: str,
    allow_network: bool,
    open_browser: bool,
    config_path: Path | None,
) -> None:
    """Open the dashboard of STORE: one run store, or a folder of them (default: this folder), here or behind a URL.

    It listens on this machine only, sends nothing anywhere, and never writes to a store.
    """
    from diagnose.config import load_config
    from diagnose.pipeline.download import readable_folder

    if importlib.util.find_spec("streamlit") is None or importlib.util.find_spec("altair") is None:
        raise UsageError("the dashboard needs its extra: pip install 'diagnose-training[app]'")
    if not _is_loopback(host) and not allow_network:
        raise UsageError(
            f"--host {host} lets other machines read every run here, without a password; add --allow-network if that is meant"
        )
    load_config(config_path)  # a mistake in it is told here, not in a browser
    environment = dict(os.environ)
    if config_path is not None:
        environment[CONFIG_VARIABLE] = str(config_path.resolve())
    server = command(script(), port=port, host=host, open_browser=open_browser)
    with readable_folder(store) as place:
        if not place.exists():
            raise UsageError(f"{store} does not exist; `diagnose run PATH... -o {store}` makes a run store")
        environment[ROOT_VARIABLE] = str(place.resolve())
        shown = store if is_url(store) else place.resolve()
        address = "localhost" if _is_loopback(host) else host
        click.echo(f"Dashboard of {shown}: http://{address}:{port} (Ctrl-C ends it)", err=True)
        if _is_loopback(host):
            click.echo(f"From another machine: ssh -N -L {port}:127.0.0.1:{port} {socket.gethostname()}", err=True)
        sys.stderr.flush()
        if is_url(store):
            _serve_copies(server, environment)
        else:
            os.execve(sys.executable, server, environment)  # noqa: S606 - our own interpreter


def _serve_copies(server: list[str], environment: dict[str, str]) -> None:
    """Serve stores that were copied here, and outlive the server to remove them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        done = subprocess.call(server, env=environment)  # noqa: S603 - our own interpreter
    except KeyboardInterrupt:
        return
    if done:
        raise click.exceptions.Exit(done)


def script() -> Path:
    """The dashboard's entry file: inside the installed package, else in the checkout.

    Raises:
        UsageError: neither is there.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "_app", package.parent / "app"):
        if (folder / "main.py").is_file():
            return folder / "main.py"
    raise UsageError("this installation lacks the dashboard's files; install diagnose-training again")


def command(main: Path, *, port: int, host: str, open_browser: bool = False) -> list[str]:
    """The command line of the server. What keeps it private is said here too, so that no other configuration undoes it."""
    settings = {
        "server.address": host, "server.port": port, "server.headless": str(not open_browser).lower(), "server.fileWatcherType": "none",
        "server.enableAgentApi": "false", "browser.gatherUsageStats": "false", "browser.serverAddress": "localhost" if _is_loopback(host) else host,
        "client.showErrorDetails": "type", "client.toolbarMode": "viewer", "global.developmentMode": "false",
    }  # fmt: skip
    flags = [item for name, value in settings.items() for item in (f"--{name}", str(value))]
    allowed = [item for name in _hosts(host) for item in ("--server.allowedHosts", name)]
    return [sys.executable, str(main.with_name("launch.py")), *flags, *allowed]


def _hosts(host: str) -> list[str]:
    """Names under which a browser may ask: others are refused, so that no foreign page reaches in by a name of its own."""
    names = ["localhost", "127.0.0.1"]
    if not _is_loopback(host):
        names += [socket.gethostname(), socket.getfqdn(), host]
    return list(dict.fromkeys(names))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
