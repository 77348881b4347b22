"""Who is who: ranks and hosts of the sources, duplicates, what stays unknown."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.config import decode_yaml
from diagnose.errors import ConfigError
from diagnose.ingest.identity import short_host
from diagnose.model import Issue

if TYPE_CHECKING:
    from pathlib import Path

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
    """Assign ranks. Two traces of one rank are never merged: the newer window wins, and the report names both.

    A rank that was only inferred from names is dropped where several traces of it overlap in time: one process writes
    one trace at a time, so the names do not tell the ranks apart.
    """
    issues: list[Issue] = []
    final = [result for result in results if result.trace is None]
    by_rank: dict[int, list[SourceResult]] = {}
    unknown: list[SourceResult] = []
    for result in sorted((item for item in results if item.trace is not None), key=lambda item: item.path):
        if result.identity.rank is None:
            unknown.append(result)
        else:
            by_rank.setdefault(result.identity.rank, []).append(result)
    chosen: dict[int, SourceResult] = {}
    for rank, candidates in sorted(by_rank.items()):
        if all(item.identity.rank_from == "name" for item in candidates) and _overlap(candidates):
            issues.append(_indistinct(rank, candidates))
            unknown += [_without_rank(item) for item in candidates]
            continue
        chosen[rank], *older = sorted(candidates, key=_preference, reverse=True)
        for result in older:
            used = chosen[rank]
            text = f"rank {rank} is in {result.path} and in {used.path}: the second is used, being {_why(result, used)}"
            issues.append(Issue("duplicate_rank", "warning", 1, text, result.path))
            final.append(msgspec.structs.replace(result, status="skipped", problem=text, trace=None, shards={}))
    issues += _unnamed(unknown, alone=not chosen)
    members = [Member(rank, result, _host(rank, result, host_map)) for rank, result in chosen.items()]
    members += [Member(-1 - place, result, _host(None, result, host_map)) for place, result in enumerate(unknown)]
    final += [member.result for member in members]
    return Identified(members, sorted(final, key=lambda item: item.path), issues)


def _preference(result: SourceResult) -> tuple[bool, int, bool, str]:
    """What says its rank itself, then the newer window, then the whole one of two copies."""
    is_whole = result.trace is not None and not result.trace.truncated
    return result.identity.rank_from != "name", result.identity.start_ns or 0, is_whole, result.path


def _why(other: SourceResult, chosen: SourceResult) -> str:
    if _preference(other)[0] != _preference(chosen)[0]:
        return "the one that says its rank itself"
    if (other.identity.start_ns or 0) < (chosen.identity.start_ns or 0):
        return "newer"
    return "whole" if _preference(other)[2] != _preference(chosen)[2] else "the last by name"


def _overlap(results: list[SourceResult]) -> bool:
    spans = sorted((item.identity.start_ns or 0, item.identity.end_ns or 0) for item in results)
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))


def _indistinct(rank: int, results: list[SourceResult]) -> Issue:
    text = (
        f"{len(results)} traces are rank {rank} by their names and overlap in time ({results[0].path}, "
        f"{results[1].path}): the names do not tell the ranks, give --rank-from REGEX"
    )
    return Issue("rank_indistinct", "warning", len(results), text, results[0].path)


def _without_rank(result: SourceResult) -> SourceResult:
    identity = msgspec.structs.replace(result.identity, rank=None, rank_from=None)
    return msgspec.structs.replace(result, identity=identity)


def _unnamed(unknown: list[SourceResult], *, alone: bool) -> list[Issue]:
    """What it means that traces name no rank."""
    if not unknown:
        return []
    if alone and len(unknown) == 1:
        text = "the rank is not in the file (no distributedInfo) nor in its name; analysed as the only rank"
        return [Issue("rank_not_in_file", "info", 1, text, unknown[0].path)]
    text = (
        f"{len(unknown)} traces name no rank (first: {unknown[0].path}); they are analysed one by one and compared "
        "with nobody: give --rank-from REGEX"
    )
    return [Issue("rank_unknown", "warning", len(unknown), text, unknown[0].path)]


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
