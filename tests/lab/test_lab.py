"""Every recorded run gets the right verdict, culprit and cause; healthy ones blame nobody."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from lab_support import LAB, judge, runs, truth

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not runs(), reason=f"no recorded runs at {LAB}")
@pytest.mark.parametrize("run", runs())
def test_recorded_run(run, tmp_path):
    known, said = truth(run), judge(run, tmp_path)

    if known.network is not None:
        assert said["verdict"].network_bound is known.network, said["verdict"].text
    for causes in known.causes:
        assert causes & {item.cause for item in said["loud"]}, [item.title for item in said["loud"]]
    for names in known.who:
        assert names & said["named"]
    advice = " ".join(text for item in said["findings"] for text in (item.title, item.message, *item.actions))
    assert not re.search("nvidia|nvlink|dcgm|nccl-tests|cuda", advice, re.IGNORECASE)  # they ran on processors
    if not known.causes:
        assert [item.title for item in said["loud"] if item.ranks or item.hosts] == []
