"""Who is who: ranks and hosts of the sources, duplicates, what stays unknown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from diagnose.config import decode_yaml
from diagnose.errors import ConfigError
from diagnose.ingest.identity import short_host
from diagnose.model import Issue
from diagnose.pipeline.result import SourceResult


class Member(NamedTuple):
    """One trace with the rank it stands for; negative ranks stand for traces that name none."""

    rank: int
    result: SourceResult
    host: str | None


class Identified(NamedTuple):
    """The traces to use, every source as it is reported, and what was wrong with identities."""

    members: list[Member]
    results: list[SourceResult]
    issues: list[Issue]


def identify(results: list[SourceResult], host_map: HostMap) -> Identified:
    """Assign ranks. Two traces of one rank are never merged: the newer window wins, and the report names both."""
    issues: list[Issue] = []
    final: list[SourceResult] = []
    by_rank: dict[int, SourceResult] = {}
    unknown: list[SourceResult] = []
    for result in sorted(results, key=lambda item: item.path):
        if result.trace is None:
            final.append(result)
        elif result.identity.rank is None:
            unknown.append(result)
        else:
            final.extend(_placed(by_rank, result, issues))
    if unknown and (by_rank or len(unknown) > 1):
        issues.append(
            Issue(
                "rank_unknown", "warning", len(unknown),
                f"{len(unknown)} traces name no rank (first: {unknown[0].path}); they are analysed one by one and compared with nobody: "
                "give --rank-from REGEX",
            )
        )  # fmt: skip
    members = [Member(rank, result, _host(rank, result, host_map)) for rank, result in sorted(by_rank.items())]
    members += [Member(-1 - place, result, _host(None, result, host_map)) for place, result in enumerate(unknown)]
    final += [member.result for member in members]
    return Identified(members, sorted(final, key=lambda item: item.path), issues)


def _placed(by_rank: dict[int, SourceResult], result: SourceResult, issues: list[Issue]) -> list[SourceResult]:
    rank = result.identity.rank
    if rank is None:
        return []
    other = by_rank.get(rank)
    if other is None:
        by_rank[rank] = result
        return []
    newer, older = sorted((result, other), key=lambda item: (item.identity.start_ns or 0, item.path), reverse=True)
    by_rank[rank] = newer
    text = f"rank {rank} is in {older.path} and in {newer.path}: the newer window is used, the other one is not"
    issues.append(Issue("duplicate_rank", "warning", 1, text, older.path))
    return [msgspec.structs.replace(older, status="skipped", problem=text, trace=None, shards={})]


def _host(rank: int | None, result: SourceResult, host_map: HostMap) -> str | None:
    mapped = host_map.host(rank, result.path)
    named = mapped or result.identity.host
    return short_host(named) if named else None


class HostMap(NamedTuple):
    """Hosts the user gave: by rank, or by a pattern searched in the path."""

    by_rank: dict[int, str]
    by_pattern: list[tuple[re.Pattern[str], str]]

    def host(self, rank: int | None, path: str) -> str | None:
        """The host of a rank or path, None when the map does not say."""
        if rank is not None and rank in self.by_rank:
            return self.by_rank[rank]
        return next((host for pattern, host in self.by_pattern if pattern.search(path)), None)


def load_host_map(path: Path | None) -> HostMap:
    """A YAML mapping of ranks (``0: node-a``, ``8-15: node-b``) or path patterns (``node-a/.*: node-a``) to hosts.

    Raises:
        ConfigError: it is no such mapping, or cannot be read.
    """
    if path is None:
        return HostMap({}, [])
    try:
        raw = decode_yaml(path.read_text(encoding="utf-8"), dict, str(path))
    except OSError as error:
        raise ConfigError(f"cannot read the host map {path}: {error.strerror}") from error
    by_rank: dict[int, str] = {}
    by_pattern: list[tuple[re.Pattern[str], str]] = []
    for key, host in raw.items():
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", str(key))
        if span:
            for rank in range(int(span[1]), int(span[2] or span[1]) + 1):
                by_rank[rank] = str(host)
            continue
        try:
            by_pattern.append((re.compile(str(key)), str(host)))
        except re.error as error:
            raise ConfigError(f"{path}: {key!r} is neither a rank nor a pattern: {error}") from error
    return HostMap(by_rank, by_pattern)
