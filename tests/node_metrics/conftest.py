"""A store of metric files for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from node_metrics_support import Ingested

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ingest(tmp_path: Path) -> Ingested:
    return Ingested(tmp_path)
