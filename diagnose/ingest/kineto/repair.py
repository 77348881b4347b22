"""Mending one event whose text is not JSON: the damage that writers are known to do, each kind counted by its name."""

from __future__ import annotations

import re

from diagnose.ingest.kineto.layout import object_end

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_RAW_BREAK = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_DRIVE_PATH = re.compile(rb'"[A-Za-z]:\\[^"]*"')
_BARE_WORD = re.compile(rb'("(?:[^"\\]|\\.)*"\s*:\s*)(-?(?:inf|infinity|nan|n/a|none|undefined|-nan\(ind\)))(?=\s*[,}\]\n])', re.I)
_EMPTY_VALUE = re.compile(rb'("(?:[^"\\]|\\.)*"\s*:\s*)(?=[,}])')
_INNER_QUOTE = re.compile(rb'("name"\s*:\s*")(.*?)("\s*,\s*"(?:pid|tid|ts|ph|cat|dur|args)"\s*:)', re.DOTALL)
_NEXT_START = re.compile(rb'\{\s*"(?:ph|name|cat)"\s*:')


def repaired(text: bytes) -> tuple[bytes, list[str]]:
    """The text with every known kind of damage mended, and the names of the kinds found."""
    kinds = []
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
        kinds.append("not_utf8")
    if _BARE_WORD.search(text):
        text = _BARE_WORD.sub(rb"\1null", text)
        kinds.append("bare_word")
    if _DRIVE_PATH.search(text):
        text = _DRIVE_PATH.sub(lambda match: match[0].replace(b"\\\\", b"\\").replace(b"\\", b"\\\\"), text)
        kinds.append("backslash")
    if _BAD_ESCAPE.search(text):
        text = _BAD_ESCAPE.sub(rb"\\\\", text)
        kinds.append("backslash")
    mended = _INNER_QUOTE.sub(_escape_quotes, text)
    if mended != text:
        text = mended
        kinds.append("unescaped_quote")
    if _CONTROL.search(text):
        text = _CONTROL.sub(b" ", text)
        kinds.append("control_character")
    flat = _RAW_BREAK.sub(lambda match: match[0].replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\t", b"\\t"), text)
    if flat != text:
        text = flat
        kinds.append("control_character")
    if _EMPTY_VALUE.search(text):
        text = _EMPTY_VALUE.sub(rb"\1null", text)
        kinds.append("empty_value")
    return text, list(dict.fromkeys(kinds))


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


def _escape_quotes(match: re.Match[bytes]) -> bytes:
    body = re.sub(rb'(?<!\\)"', rb'\\"', match[2])
    return match[1] + body + match[3]
