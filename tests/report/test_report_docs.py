from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_published_report_schema_is_up_to_date(generate: ModuleType) -> None:
    assert (DOCS / "report.schema.json").read_text(encoding="utf-8") == generate.report_schema(), (
        "run python docs/generate.py"
    )


def test_the_published_store_schema_is_up_to_date(generate: ModuleType) -> None:
    assert (DOCS / "schema.md").read_text(encoding="utf-8") == generate.store_schema(), "run python docs/generate.py"
