"""Real traces against splits that an independent exact script computed: equal to the nanosecond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from kineto_files import read_file

from diagnose.analysis.rank.reduce import reduce_rank

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
REFERENCE = TRACES / "reference.yaml"
PAIRS = {
    "compute_ns": "compute_busy_ns",
    "exposed_comm_ns": "exposed_comm_ns",
    "overlapped_comm_ns": "overlap_comm_compute_ns",
    "exposed_memcpy_ns": "mem_only_ns",
    "idle_ns": "idle_ns",
}


def cases() -> dict[str, dict[str, Any]]:
    """Files with activities of one device."""
    if not REFERENCE.is_file():
        return {}
    sets = yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))
    return {
        name: entry
        for about, files in sets.items()
        if about != "_about"
        for name, entry in files.items()
        if entry.get("n_gpu_events") and len(entry.get("devices") or {}) == 1 and (TRACES / name).is_file()
    }


CASES = cases()


@pytest.mark.skipif(not CASES, reason=f"{REFERENCE} is not here")
@pytest.mark.parametrize("name", list(CASES) or ["absent"])
def test_split_equals_the_reference(name: str) -> None:
    (device,) = CASES[name]["devices"].values()
    rows = reduce_rank(read_file(TRACES / name).trace, keep_kernels=False).frames["breakdown"]
    split = {row["step"]: row for row in rows.iter_rows(named=True)}
    whole = device.get("gpu_span_wide") or device["gpu_span"]
    assert {ours: split[-1][ours] for ours in PAIRS} == {ours: whole[theirs] for ours, theirs in PAIRS.items()}
    if "gpu_span_wide" in device:
        return  # its steps are given under the narrow rule only, in which DeepEP's kernels are compute
    for step, parts in (device.get("launched_in_step") or {}).items():
        if parts.get("n"):
            found = split[int(step.split("#")[1])]
            wanted = {ours: parts[theirs] for ours, theirs in PAIRS.items() if ours != "idle_ns"}
            assert {ours: found[ours] for ours in wanted} == wanted, step


@pytest.mark.skipif(not CASES, reason=f"{REFERENCE} is not here")
def test_kernels_of_deepep_are_communication() -> None:
    trace = read_file(TRACES / "deepseek-v3-train" / "train.json").trace
    kernels = reduce_rank(trace, keep_kernels=True).frames["kernel"]
    comm = kernels.filter(pl.col("class") == "comm").get_column("name").to_list()
    assert len(comm) == 32
    assert not [name for name in comm if "get_dispatch_layout" in name]
