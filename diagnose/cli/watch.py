"""`diagnose watch`: every run of a folder, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from diagnose.watch.loop import Watcher

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("inbox", type=_FOLDER)
@click.option(
    "--out",
    required=True,
    type=_FOLDER,
    help="Folder for stores, reports, history and index; may be shared by watchers.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Look once and end: for cron, timers, epilogs. Exit 2 when a run failed or an alert could not be sent.",
)
@click.option(
    "--depth",
    type=click.IntRange(0, 8),
    default=1,
    show_default=True,
    help="Folders between INBOX and a run; 0: INBOX is the run.",
)
@click.option(
    "--job-from",
    metavar="REGEX",
    help="Job of a run: first group in its path below INBOX (default: folders above it, else its name).",
)
@click.option("--ready-file", metavar="NAME", help="A file of this name in a run's folder says that it is finished.")
@click.option(
    "--settle",
    "settle_s",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="A run is finished when no file changed for so long.",
)
@click.option(
    "--poll",
    "poll_s",
    type=click.FloatRange(0.05),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause between looks.",
)
@click.option(
    "--lease",
    "lease_s",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="A claim of another machine ends when not renewed for so long.",
)
@click.option(
    "--failures", type=click.IntRange(1), default=3, show_default=True, help="Set a run aside after so many failures."
)
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.02,
    show_default=True,
    help="Changes within this share of the step do not matter.",
)
@click.option("--keep-runs", type=click.IntRange(1), help="Stores and reports to keep per job; history keeps all.")
@click.option("--keep-days", type=click.FloatRange(0, min_open=True), help="Days to keep stores and reports.")
@click.option(
    "--notify",
    is_flag=True,
    help="Send an alert when something changed. Addresses: DIAGNOSE_NOTIFY_URLS or --notify-file.",
)
@click.option("--notify-file", type=_FILE, help="File with notification addresses, readable by its owner alone.")
@click.option("--link-prefix", metavar="URL", help="Where --out is served, for links in alerts.")
@click.option("--dry-run", is_flag=True, help="Say what would be analysed and sent; write nothing.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: processors, at most 8).")
@click.option(
    "--keep",
    type=click.Choice(("kernels", "stats")),
    default="kernels",
    show_default=True,
    help="Keep every device activity, or statistics only.",
)
@click.option("--rank-from", metavar="REGEX", help="Rank in the path, first group, for traces that do not say it.")
@click.option("--host-map", type=_FILE, help="YAML: rank or path pattern to host.")
@click.option("--timezone", help="Zone of local times in logs and metrics, such as Europe/Berlin.")
@click.option("--config", "config_path", type=_FILE, help="Configuration (default: nearest diagnose.yaml).")
def watch(
    inbox: Path, out: Path, once: bool, depth: int, job_from: str | None, ready_file: str | None, settle_s: float, poll_s: float, lease_s: float,
    failures: int, margin: float, keep_runs: int | None, keep_days: float | None, notify: bool, notify_file: Path | None, link_prefix: str | None,
    dry_run: bool, jobs: int | None, keep: str, rank_from: str | None, host_map: Path | None, timezone: str | None, config_path: Path | None,
) -> None:  # fmt: skip
    """Analyse every finished run in INBOX exactly once, compare it with its job's earlier runs, and keep an index.

    INBOX is only read. Each run is a folder (or a single file) in it.
    """
    from diagnose.config import load_config
    from diagnose.pipeline.build import RunOptions
    from diagnose.watch.loop import Events, Watcher
    from diagnose.watch.options import Retention, WatchOptions
    from diagnose.watch.services import describe, load_services
    from diagnose.watch.stop import on_signals

    options = WatchOptions(
        inbox=inbox, out=out, config=load_config(config_path), depth=depth, job_from=job_from, ready_file=ready_file, settle_s=settle_s, poll_s=poll_s,
        lease_s=lease_s, failures=failures, margin=margin, retention=Retention(keep_runs=keep_runs, keep_days=keep_days), notify=notify,
        link_prefix=link_prefix, dry_run=dry_run, run=RunOptions(jobs=jobs, keep=keep, rank_from=rank_from, host_map=host_map, timezone=timezone),
    )  # fmt: skip
    services = load_services(notify_file) if notify else ()
    events = Events(click.echo, lambda line: click.echo(line, err=True))
    with on_signals() as stop:
        watcher = Watcher(options, () if dry_run else services, events, stop)
        if dry_run:
            _rehearse(watcher, describe(services))
            return
        if not once:
            watcher.watch()
            return
        if watcher.look().troubled:
            raise click.exceptions.Exit(2)


def _rehearse(watcher: Watcher, services: str) -> None:
    for record in watcher.rehearse():
        click.echo(f"would publish {record.job}/{record.name}: {record.since}")
        if record.alert is not None:
            to = f"would send to {services}" if services else "would send with --notify"
            click.echo(
                f"{to}:\n  {record.alert.title}\n"
                + "\n".join(f"  {line}".rstrip() for line in record.alert.body.splitlines())
            )
