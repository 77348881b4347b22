"""Mending text that is no JSON: the damage that writers are known to do, each kind counted by its name."""

from __future__ import annotations

import json
import math
import re
from collections import Counter

from diagnose.ingest.kineto.layout import object_end

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRING_OR_WORD = re.compile(
    rb'"(?:[^"\\]|\\.)*"|(?<![\w."])(-?(?:inf(?:inity)?|nan(?:\(\w*\))?|n/a|none|undefined))(?![\w"])',
    re.DOTALL | re.IGNORECASE,
)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE = re.compile(rb'\\(["\\]|u[0-9a-fA-F]{4})?', re.DOTALL)
_PATH_ESCAPE = re.compile(rb"\\(\\)?")
_DRIVE_PATH = re.compile(rb'"[A-Za-z]:\\[^"]*"(?=\s*[,}\]:])')
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..)\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_EMPTY_VALUE = re.compile(rb'("(?:[^"\\]|\\.)*"\s*:\s*)(?=[,}])')
_ESCAPED_OR_QUOTE = re.compile(rb'\\.|"', re.DOTALL)
_CLOSES = {
    "key": re.compile(rb"\s*:"),
    "value": re.compile(rb'\s*(?:\}|\]|$|,\s*(?:"[^"\\]*"\s*:|\{))'),
    "item": re.compile(rb"\s*(?:\]|,|$)"),
}
_NEXT_START = re.compile(rb'\{\s*"(?:ph|name|cat)"\s*:')
_REPLACEMENT = "�".encode()
_TYPES: dict[str, type | tuple[type, ...]] = {
    "ph": str,
    "cat": str,
    "ts": (int, float, str),
    "dur": (int, float, str),
    "pid": (int, float, str),
    "tid": (int, float, str),
    "args": dict,
}


def repaired(text: bytes) -> tuple[bytes, Counter[str]]:
    """The text with every known kind of damage mended, and how often each kind was found."""
    kinds: Counter[str] = Counter()
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        kinds["not_utf8"] += 1
    for kind, mend in (
        ("control_character", _without_controls),
        ("backslash", _literal_backslashes),
        ("unescaped_quote", _escaped_quotes),
        ("control_character", _escaped_breaks),
        ("not_utf8", _without_surrogates),
        ("bare_word", words_as_null),
        ("empty_value", lambda damaged: _EMPTY_VALUE.subn(rb"\1null", damaged)),
    ):
        text, count = mend(text)
        if count:
            kinds[kind] += count
    return text, kinds


def words_as_null(text: bytes) -> tuple[bytes, int]:
    """Bare ``inf``, ``nan``, ``N/A`` and the like outside strings as null, and their number."""
    count = 0

    def null(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match[1] is None:
            return match[0]
        count += 1
        return b"null"

    return _STRING_OR_WORD.sub(null, text), count


def as_plain_json(text: bytes) -> bytes | None:
    """The one object in a text that is JSON but holds values no typed decoder takes, without these; else None."""
    try:
        value = json.loads(
            text.decode("utf-8", "replace"), strict=False, parse_float=_finite, parse_constant=lambda _: None
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    for key, types in _TYPES.items():
        if key in value and not isinstance(value[key], types):
            del value[key]
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def whole_objects(text: bytes) -> list[bytes]:
    """The complete JSON objects that start like an event inside a damaged text, in order."""
    found = []
    position = 0
    while (match := _NEXT_START.search(text, position)) is not None:
        end = object_end(text, match.start())
        following = _NEXT_START.search(text, match.end())
        if end is not None and (following is None or end <= following.start()):
            found.append(text[match.start() : end])
            position = end
        else:
            position = match.end()
    return found


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _without_controls(text: bytes) -> tuple[bytes, int]:
    return _CONTROL.subn(b" ", text)


def _literal_backslashes(text: bytes) -> tuple[bytes, int]:
    """Windows paths: in a string with one impossible escape, and in a path with a drive, no backslash escapes."""
    count = 0

    def double(match: re.Match[bytes]) -> bytes:
        nonlocal count
        is_path = match.re is _DRIVE_PATH
        if not is_path and not _BAD_ESCAPE.search(match[0]):
            return match[0]
        kept = _PATH_ESCAPE if is_path else _ESCAPE
        mended = kept.sub(lambda escape: escape[0] if escape[1] else b"\\\\", match[0])
        count += mended != match[0]
        return mended

    text = _DRIVE_PATH.sub(double, text)
    return _STRING.sub(double, text), count


def _escaped_quotes(text: bytes) -> tuple[bytes, int]:
    """Quotes inside strings, told from closing ones by what follows: a colon, a bracket, or a comma and a key."""
    parts: list[bytes] = []
    done = count = 0
    role: str | None = None
    for match in _ESCAPED_OR_QUOTE.finditer(text):
        if match[0] != b'"':
            continue
        if role is None:
            role = _role(text, match.start())
        elif _CLOSES[role].match(text, match.end()):
            role = None
        else:
            parts += (text[done : match.start()], b'\\"')
            done = match.end()
            count += 1
    return b"".join((*parts, text[done:])), count


def _role(text: bytes, quote: int) -> str:
    before = text[max(quote - 32, 0) : quote].rstrip()[-1:]
    if before == b":":
        return "value"
    if before == b"{":
        return "key"
    return "key" if before == b"," and re.match(rb'"[^"\\]*"\s*:', text[quote : quote + 256]) else "item"


def _escaped_breaks(text: bytes) -> tuple[bytes, int]:
    """Raw line breaks and tabs inside strings."""
    count = 0

    def escape(match: re.Match[bytes]) -> bytes:
        nonlocal count
        mended = match[0].replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\t", b"\\t")
        count += mended != match[0]
        return mended

    return _STRING.sub(escape, text), count


def _without_surrogates(text: bytes) -> tuple[bytes, int]:
    return _LONE_SURROGATE.subn(_REPLACEMENT, text)
