"""Stores for the dashboard's tests, made once; the app's modules are importable as they are for streamlit."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "app"))
