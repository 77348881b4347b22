"""Each document once per test module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import report_documents as documents

if TYPE_CHECKING:
    from diagnose.report.document import Document


@pytest.fixture(scope="session")
def rich() -> Document:
    return documents.rich_document()


@pytest.fixture(scope="session")
def hostile() -> Document:
    return documents.hostile_document()


@pytest.fixture(scope="session")
def large() -> Document:
    return documents.large_document()


@pytest.fixture(params=["rich", "empty", "single", "hostile"])
def any_document(request: pytest.FixtureRequest) -> Document:
    return getattr(documents, f"{request.param}_document")()
