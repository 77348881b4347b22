"""Rank and host of a source from its name, when its content does not say. What is inferred is marked so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from pathlib import PurePosixPath

_RANK_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:^|[_\-.])rank[_\-]?(\d{1,7})(?![\d.]*of)",  # torchtitan, HTA, vLLM, flight recorder, plain
        r"^worker[_\-]?(\d{1,7})(?=[_.\-])",  # tensorboard handler with a worker name, PARAM
        r"^r(\d{1,7})-",  # torchtune
        r"(?:^|[_\-.])TP-(\d{1,7})(?![\w.-]*(?:DP|PP|EP)-[1-9])",  # sglang, while only one dimension is in use
    )
)
_RANK_FOLDER = re.compile(r"^(?:global[_\-]?)?rank[_\-]?(\d{1,7})$", re.IGNORECASE)
_TENSORBOARD = re.compile(r"^(?P<host>[A-Za-z0-9][\w.\-]*?)_(?P<pid>\d+)\.(?P<stamp>\d{10,})\.pt\.trace\.json")
_HOST_FOLDER = re.compile(r"^(?:host|node)(?:[_\-]?\d[\w\-]*|[_\-][a-z])$", re.IGNORECASE)


def check_rank_pattern(pattern: str | None) -> None:
    """Refuse what cannot give a rank.

    Raises:
        UsageError: no regular expression, or one without a group.
    """
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UsageError(f"--rank-from {pattern!r} is no regular expression: {error}") from error
    if not groups:
        raise UsageError(f"--rank-from {pattern!r} has no group; put the digits of the rank in parentheses: rank(\\d+)")


def rank_from_name(name: PurePosixPath, pattern: str | None = None) -> tuple[int, str] | None:
    """The rank in a file name and how it was found: ``option`` with a pattern of the user's, else ``name``.

    The user's pattern is searched in the whole path; its first group is the rank. Without one, the file name is
    looked at first, then the folders from the inside out.
    """
    if pattern is not None:
        match = re.search(pattern, str(name))
        return (int(match[1]), "option") if match and match[1] and match[1].isdecimal() else None
    for known in _RANK_PATTERNS:
        if match := known.search(name.name):
            return int(match[1]), "name"
    for folder in reversed(name.parts[:-1]):
        if match := _RANK_FOLDER.match(folder):
            return int(match[1]), "name"
    return None


def host_from_name(name: PurePosixPath) -> str | None:
    """The host in the name that torch's tensorboard handler gives its files, or a folder named for a host."""
    match = _TENSORBOARD.match(name.name)
    if match and rank_from_name(name) is None:
        return match["host"]
    return next((part for part in reversed(name.parts[:-1]) if _HOST_FOLDER.match(part)), None)


def short_host(name: str) -> str:
    """A host name as used for joins: without domain and port, lower case; addresses stay whole."""
    name = name.strip().lower()
    if re.fullmatch(r"[\d.]+(?::\d+)?", name):
        return name.split(":")[0]
    return name.split(":")[0].split(".")[0]
