"""One entry to all formats. Importing this costs nothing: each renderer is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diagnose.findings.rules import Rule
    from diagnose.report.document import Document

FORMATS = ("text", "json", "md", "html", "junit")
PLAIN_WIDTH = 80


def render(
    document: Document,
    format: str,  # noqa: A002 - the name of the command's option
    *,
    rules: Iterable[Rule] = (),
    width: int | None = None,
    color: bool = False,
    app_address: str | None = None,
) -> str:
    """The document in one of `FORMATS`; the same document gives the same text.

    Args:
        document: the report.
        format: one of `FORMATS`.
        rules: every rule that was evaluated; JUnit lists them, HTML explains with them.
        width: columns of the text format, 80 when not given.
        color: ANSI colours in the text format.
        app_address: address of the app, for links from findings.

    Raises:
        UsageError: the format is unknown.
    """
    if format == "text":
        return _text(document, width or PLAIN_WIDTH, color=color)
    if format == "json":
        from diagnose.report.document import encode

        return encode(document).decode()
    if format == "md":
        from diagnose.report.markdown import markdown

        return markdown(document, app_address)
    if format == "html":
        from diagnose.report.html import html

        return html(document, rules, app_address)
    if format == "junit":
        from diagnose.report.junit import junit

        return junit(document, rules)
    raise UsageError(f"unknown report format {format!r}; there are {', '.join(FORMATS)}")


def _text(document: Document, width: int, *, color: bool) -> str:
    import io

    from rich.console import Console

    from diagnose.report.text import print_report

    console = Console(
        file=io.StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        legacy_windows=False,
        _environ={},  # COLUMNS, NO_COLOR and TERM were the caller's to read
    )
    print_report(document, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.split("\n"))
