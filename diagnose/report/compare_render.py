"""One entry to all formats of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from diagnose.findings.rules import Rule
    from diagnose.report.compare_document import CompareDocument


def render(report: CompareDocument, format_: str, rules: Iterable[Rule] = ()) -> str:
    """The comparison as text, json, md, html or junit, which lists the ``rules`` of comparisons that found nothing too.

    Raises:
        UsageError: the format is unknown.
    """
    if format_ == "text":
        from diagnose.report.compare_text import text

        return text(report)
    if format_ == "json":
        from diagnose.report.compare_document import encode

        return encode(report).decode()
    if format_ == "md":
        from diagnose.report.compare_text import markdown

        return markdown(report)
    if format_ == "html":
        from diagnose.report.compare_html import html

        return html(report)
    if format_ == "junit":
        from diagnose.report.compare_junit import junit

        return junit(report, rules)
    raise UsageError(f"unknown report format {format_!r}; there are text, json, md, html, junit")
