"""Stores for the dashboard's tests, made once for all workers; the app's modules are importable as streamlit sees them."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

sys.path[:0] = [str(Path(__file__).parents[2] / "app"), str(Path(__file__).parent)]

from app_stores import APP, build_all  # noqa: E402 - lies in the folder that was named above


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one store of each kind."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "popen" in base.name else base) / "app stores"
    with (folder.with_suffix(".lock")).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            build_all(folder)
            (folder / "done").touch()
    return folder


@pytest.fixture
def open_app(stores, monkeypatch):
    """An app session: ``open_app("steps", run="healthy")``; another folder by ``root=``."""
    monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(stores))
    monkeypatch.delenv("DIAGNOSE_APP_CONFIG", raising=False)
    monkeypatch.setenv("STREAMLIT_CLIENT_SHOW_ERROR_DETAILS", "full")

    def start(page="overview", *, root=None, **params):
        if root is not None:
            monkeypatch.setenv("DIAGNOSE_APP_ROOT", str(root))
        session = AppTest.from_file(str(APP / "main.py"), default_timeout=60)
        for name, value in params.items():
            session.query_params[name] = str(value)
        session.run()
        if page != "overview":
            session.switch_page(f"app_pages/{page}.py").run()
        return session

    return start
