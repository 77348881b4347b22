"""`diagnose inspect`: what files are, and which evidence is missing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from diagnose.cli.output import write
from diagnose.cli.progress import reading
from diagnose.units import format_ns, opening

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.model import NotChecked
    from diagnose.pipeline.identify import Identified
    from diagnose.pipeline.result import SourceResult

WIDTH = 80
SCHEMA = "diagnose.inspect/1"


@click.command()
@click.argument("paths", nargs=-1, required=True, type=str)
@click.option(
    "--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True, help="Form."
)
@click.option("--output", type=str, default="-", show_default=True, help="File to write it to, - for stdout.")
@click.option("--jobs", type=click.IntRange(1), help="Worker processes (default: processors, at most 8).")
@click.option("--rank-from", metavar="REGEX", help="Rank in the path, first group, for traces that do not say it.")
@click.option("--host-map", type=click.Path(path_type=Path, dir_okay=False), help="YAML: rank or path pattern to host.")
@click.option("--timezone", help="Zone of local times in logs and metrics, such as Europe/Berlin.")
def inspect(
    paths: tuple[str, ...],
    format_: str,
    output: str,
    jobs: int | None,
    rank_from: str | None,
    host_map: Path | None,
    timezone: str | None,
) -> None:
    """Say what the files in PATHS are: kind, rank, host, time range, problems; and which evidence is missing.

    Nothing is analysed across ranks and nothing is kept.
    """
    import msgspec

    from diagnose.errors import SourceError
    from diagnose.pipeline.build import RunOptions, read_sources
    from diagnose.pipeline.evidence import missing_evidence
    from diagnose.pipeline.identify import identify, load_host_map

    hosts = load_host_map(host_map)
    options = RunOptions(jobs=jobs, keep="stats", timezone=timezone, rank_from=rank_from, host_map=host_map)
    with tempfile.TemporaryDirectory(prefix="diagnose-") as scratch:
        with reading(paths) as progress:
            results = read_sources(paths, options, Path(scratch), progress=progress)
        if not results:
            raise SourceError(f"no files in {', '.join(paths)}")
        identified = identify(results, hosts)
        missing = missing_evidence(identified)
    if format_ == "json":
        text = msgspec.json.format(msgspec.json.encode(_document(identified, missing)), indent=2).decode() + "\n"
    else:
        text = "\n".join(_text(identified, missing)) + "\n"
    write(text, output)


def _document(identified: Identified, missing: list[NotChecked]) -> dict[str, Any]:
    hosts = _hosts(identified)
    return {
        "schema": SCHEMA,
        "files": [
            {
                "path": result.path,
                "kind": result.kind,
                "bytes": result.size_bytes,
                "rank": result.identity.rank,
                "rank_from": result.identity.rank_from,
                "host": hosts.get(result.path, result.identity.host),
                "host_from": result.identity.host_from,
                "start_ns": result.identity.start_ns,
                "end_ns": result.identity.end_ns,
                "rows": result.rows,
                "status": result.status,
                "problem": result.problem,
                "issues": list(result.issues),
            }
            for result in identified.results
        ],
        "issues": identified.issues,
        "missing": missing,
    }


def _text(identified: Identified, missing: list[NotChecked]) -> Iterator[str]:
    yield from _summary(identified)
    hosts = _hosts(identified)
    for result in identified.results:
        yield ""
        yield from _file(result, hosts.get(result.path, result.identity.host))
    if identified.issues:
        yield from ("", "Identities")
        for issue in identified.issues:
            yield from _wrapped(issue.example, "  - ", "    ")
    yield from ("", "What is missing, and how to collect it" if missing else "No evidence is missing.")
    for item in missing:
        yield ""
        yield from _wrapped(f"{item.question} {opening(item.why)}.", "- ", "  ")
        for line in item.collect.splitlines():
            yield f"    {line}"


def _summary(identified: Identified) -> Iterator[str]:
    from collections import Counter

    kinds = Counter(result.kind for result in identified.results)
    yield from _wrapped(
        f"{len(identified.results)} files: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}"
    )
    ranks = sorted(member.rank for member in identified.members if member.rank >= 0)
    world = max((result.identity.world_size or 0 for result in identified.results), default=0)
    if ranks:
        yield from _wrapped(f"ranks: {_ranges(ranks)}{f' of {world}' if world else ''}")
    hosts = sorted({member.host for member in identified.members if member.host})
    if hosts:
        yield from _wrapped(f"hosts: {', '.join(hosts)}")
    times = [(item.start_ns, item.end_ns) for member in identified.members if (item := member.result.identity)]
    known = [(start, end) for start, end in times if start is not None and end is not None]
    if known:
        first, last = min(start for start, _ in known), max(end for _, end in known)
        yield f"traces: {_when(first)}, {format_ns(last - first)}"


def _file(result: SourceResult, host: str | None) -> Iterator[str]:
    from diagnose.units import format_bytes, format_count, format_ns

    identity = result.identity
    yield _clean(result.path)
    parts = [result.kind, format_bytes(result.size_bytes)]
    if result.rows:
        parts.append(f"{format_count(result.rows)} rows")
    if identity.rank is not None:
        parts.append(f"rank {identity.rank} ({identity.rank_from})")
    elif result.trace is not None:
        parts.append("rank unknown")
    if host:
        parts.append(f"host {host} ({identity.host_from or 'host map'})")
    yield from _wrapped(", ".join(parts), "  ")
    if identity.start_ns is not None and identity.end_ns is not None:
        yield f"  {_when(identity.start_ns)}, {format_ns(identity.end_ns - identity.start_ns)}"
    if result.problem or result.status != "ok":
        yield from _wrapped(f"{result.status}: {result.problem or 'no reason given'}", "  ")
    for issue in result.issues:
        if issue.example != result.problem:
            times = f" ({format_count(issue.count)} times)" if issue.count > 1 else ""
            yield from _wrapped(f"{issue.code}{times}: {issue.example}", "  ! ", "    ")


def _hosts(identified: Identified) -> dict[str, str]:
    return {member.result.path: member.host for member in identified.members if member.host}


def _ranges(ranks: list[int]) -> str:
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1][1:] = [rank]
        else:
            parts.append([rank])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def _when(time_ns: int) -> str:
    from datetime import UTC, datetime

    seconds, rest = divmod(time_ns, 1_000_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1_000_000:03d} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ns} ns"


def _clean(text: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return click.wrap_text(_clean(" ".join(text.split())), WIDTH, first, first if rest is None else rest).splitlines()
