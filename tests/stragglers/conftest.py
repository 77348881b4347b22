from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from known_jobs import JOBS
from pipeline_job import write_job


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory):
    """Folder of a job's traces, written once."""
    root = tmp_path_factory.mktemp("jobs")

    def folder(name: str) -> Path:
        if not (root / name).exists():
            write_job(JOBS[name], root / name)
        return root / name

    return folder
