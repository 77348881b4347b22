from __future__ import annotations

import subprocess
import sys

import pytest
from report_findings import RULES

from diagnose.errors import UsageError
from diagnose.report.document import Document, encode
from diagnose.report.render import FORMATS, render


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_renders_every_document(any_document: Document, name: str) -> None:
    text = render(any_document, name, rules=RULES)
    assert text.endswith("\n")
    text.encode()


def test_json_is_the_encoded_document(rich: Document) -> None:
    assert render(rich, "json").encode() == encode(rich)


def test_an_unknown_format_is_a_usage_error(rich: Document) -> None:
    with pytest.raises(UsageError, match="there are text, json, md, html, junit"):
        render(rich, "pdf")


def test_importing_it_imports_no_renderer() -> None:
    heavy = ("rich", "jinja2", "msgspec", "polars", "duckdb")
    code = f"import sys, diagnose.report.render; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
